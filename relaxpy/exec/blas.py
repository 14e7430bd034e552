"""The BLAS that NumPy multiplies matrices with."""

from __future__ import annotations

import ctypes

import numpy as np

from relaxpy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Blas:
    """A BLAS; what a library does not tell is empty, or 0.

    Fields:
        name: as NumPy calls it, with the version.
        core: the processor that its kernels are written for.
        threads: the number of threads that it uses.
    """

    name: str
    core: str
    threads: int


def numpy_blas() -> Blas:
    """The BLAS of NumPy."""
    config = np.show_config(mode="dicts")
    found = config.get("Build Dependencies", {}).get("blas", {}) if config else {}
    name = " ".join(str(found[key]) for key in ("name", "version") if found.get(key))
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return Blas(name, "", 0)
    # A library finds the functions of those that it is linked with.
    for prefix in ("scipy_openblas", "openblas"):
        for suffix in ("64_", "_64", ""):
            core = getattr(library, f"{prefix}_get_corename{suffix}", None)
            threads = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
            if core is not None and threads is not None:
                core.restype = ctypes.c_char_p
                return Blas(name, core().decode(), threads())
    return Blas(name, "", 0)
