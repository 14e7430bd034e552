"""The BLAS library of NumPy."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import numpy as np

from relaxpy.ir.core.dtype import Array
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


def _openblas(function: str) -> Any:
    """A function of the OpenBLAS of NumPy, or None if NumPy uses another BLAS."""
    prefixes, suffixes = ("scipy_openblas", "openblas"), ("64_", "_64", "")
    return _symbol(*(f"{start}_{function}{end}" for start in prefixes for end in suffixes))


@cache
def _symbol(*names: str) -> Any:
    """The first of these functions that NumPy's BLAS has, or None."""
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None
    # A library also resolves symbols of those that it is linked with.
    return next((found for n in names if (found := getattr(library, n, None)) is not None), None)


def run_lapack(name: str, batch: tuple[int, ...], *operands: Array | bytes | int) -> bool:
    """Call a BLAS or LAPACK function for each matrix of a batch; False if NumPy does not bring it.

    Letters and integers are the same for all. Arrays are contiguous, with the dimensions of the
    batch first, and the first of them has the datatype; those of integers have 64 bits.
    """
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    letter = {"f": "s", "d": "d", "F": "c", "D": "z"}.get(arrays[0].dtype.char)
    function = _symbol(f"scipy_{letter}{name}_64_")
    if function is None:
        return False
    count = math.prod(batch)
    columns: list[list[Any]] = []
    for x in operands:
        if isinstance(x, np.ndarray):
            first, step = x.ctypes.data, x.nbytes // count if x.shape[: len(batch)] == batch else 0
            columns.append([ctypes.c_void_p(first + k * step) for k in range(count)])
        else:
            columns.append([x if isinstance(x, bytes) else ctypes.byref(ctypes.c_int64(x))] * count)
    for each in zip(*columns, strict=True):
        function(*each)
    return True


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
