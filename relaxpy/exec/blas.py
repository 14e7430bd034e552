"""The BLAS library of NumPy."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import numpy as np

from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Blas:
    """A BLAS library; unknown fields are empty, or 0.

    Fields:
        name: as NumPy calls it, with the version.
        core: the CPU that its kernels are written for.
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
    core, threads = _openblas("get_corename"), _openblas("get_num_threads")
    if core is None or threads is None:
        return Blas(name, "", 0)
    core.restype = ctypes.c_char_p
    return Blas(name, core().decode(), threads())


@cache
def _openblas(function: str) -> Any:
    """A function of the OpenBLAS of NumPy, or None if NumPy uses another BLAS."""
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None
    # A library also resolves symbols of those that it is linked with.
    names = (
        f"{prefix}_{function}{suffix}"
        for prefix in ("scipy_openblas", "openblas")
        for suffix in ("64_", "_64", "")
    )
    return next((found for n in names if (found := getattr(library, n, None)) is not None), None)


class _Limit:
    """A reference-counted limit: the callers that need one BLAS thread, and the earlier number.

    Another thread may fork this process at each call of BLAS: while the number may be limited,
    there are callers.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.callers = 0
        self.before = 1

    def enter(self) -> None:
        """Let BLAS use one thread."""
        with self.lock:
            if not self.callers:
                self.before = _openblas("get_num_threads")()
            self.callers += 1
            if self.callers == 1 and self.before != 1:
                _openblas("set_num_threads")(1)

    def leave(self) -> None:
        """After the last caller, restore the number of BLAS threads."""
        with self.lock:
            # A number that somebody has set meanwhile is left unchanged.
            is_last = self.callers == 1
            if is_last and self.before != 1 and _openblas("get_num_threads")() == 1:
                _openblas("set_num_threads")(self.before)
            self.callers -= 1

    def forget(self) -> None:
        """Reset in a forked child, which lacks the parent's other threads, possible callers."""
        self.lock = threading.Lock()
        if self.callers:
            self.callers = 1
            self.leave()


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.forget)


def has_thread_limit() -> bool:
    """True if the number of threads of NumPy's BLAS can be set for the process."""
    needed = ("get_num_threads", "set_num_threads", "get_parallel")
    # With OpenMP, each Python thread has its own number.
    return None not in map(_openblas, needed) and _openblas("get_parallel")() != OPENMP


OPENMP: Final = 2
"""The result of `get_parallel` of an OpenBLAS that runs on OpenMP threads."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which matmuls use one thread, in all threads of the process.

    Only if `has_thread_limit()`. Several threads may be inside at once.
    """
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()
