"""Runs kernels on blocks of rows: in which order, on which threads, and with which memory."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from relaxpy.exec.blas import has_thread_limit, one_blas_thread
from relaxpy.exec.runtime.threads import thread_count

TARGET = 1 << 21
"""The bytes that a block may access, so that intermediate results stay in the cache of a core.

Four times as many where threads share the blocks: with more blocks they wait more often for Python.
"""
SHORTEST_RUN = 1 << 12
"""The contiguous bytes in a block below which gaps between them cost more than the cache saves."""
WORTH_SCRATCH = 1 << 16
"""The number of bytes from which new memory from the system costs more than `Scratch`."""
WORTH_THREADS = 1 << 24
"""The amount of work from which several threads are faster than one.

It is as much as so many products in a product of matrices, about 0.3 milliseconds.
"""


threads = cache(thread_count)
"""The number of threads that share blocks."""


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(threads() - 1, 1), "relaxpy")


if hasattr(os, "register_at_fork"):
    # A child process does not have the threads of its parent.
    os.register_at_fork(after_in_child=_pool.cache_clear)


class Scratch:
    """Memory of intermediate results, which one block after the other uses.

    The system would take back the memory of large arrays, and clear it before it is used again.
    """

    __slots__ = ("memory", "used")

    def __init__(self) -> None:
        self.memory = np.empty(2 * TARGET, np.uint8)
        self.used = 0

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """As `np.empty`, in this memory if it suffices."""
        kind = np.dtype(dtype)
        start = self.used
        end = start + math.prod(shape) * kind.itemsize
        if end > self.memory.size:
            return np.empty(shape, kind)
        self.used = -(-end // 64) * 64
        return np.ndarray(shape, kind, self.memory, start)


_Rows: TypeAlias = Callable[[int, int, Callable[..., Any]], None]

_scratch: list[Scratch] = []
"""Memory that no thread uses at present, at most one for each thread."""


def blocks(
    rows: _Rows,
    start: int,
    stop: int,
    row_bytes: int,
    row_work: int,
    run_bytes: int = SHORTEST_RUN,
    products: bool = False,
) -> None:
    """Run `rows(lo, hi, empty)` for blocks of `start` to `stop`, in any order, perhaps in parallel.

    A row has `row_bytes`, and `row_work` that takes as long as so many products in a product of
    matrices; `run_bytes` of a row are contiguous with those of the next, where a block has gaps.
    `empty` allocates arrays that only that block uses. If rows contain `products` of matrices,
    threads compute one each.
    """
    count = stop - start
    least = -(-SHORTEST_RUN // max(run_bytes, 1))
    if count * row_work >= WORTH_THREADS and threads() > 1:
        if products:
            is_even = count % threads() == 0 or count >= 4 * threads()
            if is_even and perf_counter() >= _busy_until and has_thread_limit():
                _share_products(rows, start, stop)
                return
        elif count > least:
            step = min(4 * TARGET // max(row_bytes, 1), -(-count // (2 * threads())))
            _share(rows, start, stop, max(least, step))
            return
    total = count * row_bytes
    if total <= min(TARGET, WORTH_SCRATCH):
        if count > 0:
            rows(start, stop, np.empty)
        return
    step = max(least, TARGET // row_bytes)
    _run(rows, iter(range(start, stop, step)), stop, step)


BUSY_SECONDS = 0.3
"""How long threads leave products to BLAS after they have found the processors busy.

Threads of OpenBLAS wait actively for 0.13 seconds after a product.
"""
_busy_until = 0.0
MOST_SLOW = 3
"""How many slow products, one after the other, show that the processors are busy."""
_slow = 0


def _share_products(rows: _Rows, start: int, stop: int) -> None:
    """Run a block on each thread, with products on one thread of BLAS each."""
    global _busy_until, _slow
    own: list[float] = []

    def timed(lo: int, hi: int, empty: Callable[..., Any]) -> None:
        begin = perf_counter()
        rows(lo, hi, empty)
        own.append(perf_counter() - begin)

    begin = perf_counter()
    with one_blas_thread():
        _share(timed, start, stop, -(-(stop - start) // threads()))
    end = perf_counter()
    _slow = _slow + 1 if end - begin > MOST_WAITING * min(own) else 0
    if _slow >= MOST_SLOW:
        _slow, _busy_until = 0, end + BUSY_SECONDS


MOST_WAITING = 1.6
"""The time of a shared product, divided by that of its fastest block, up to which it is fast."""


def _share(rows: _Rows, start: int, stop: int, step: int) -> None:
    """Run blocks of `step` rows on several threads, until one fails.

    Errors: that of the first block that fails, as all blocks before it have begun.
    """
    starts = iter(range(start, stop, step))
    errors: dict[int, Exception] = {}

    def noted(lo: int, hi: int, empty: Callable[..., Any]) -> None:
        try:
            rows(lo, hi, empty)
        except Exception as error:  # of any kind: the caller's thread raises it
            errors[lo] = error
            _end(starts)

    def work() -> None:
        with np.errstate(all="ignore"):
            _run(noted, starts, stop, step)

    jobs: list[Future[None]] = []
    helpers = min(threads(), -(-(stop - start) // step)) - 1
    # When the interpreter shuts down, no thread can start.
    with suppress(RuntimeError):
        jobs.extend(_pool().submit(work) for _ in range(helpers))
    # This thread works, too: it only waits for blocks that others have begun.
    try:
        work()
    finally:
        _end(starts)
        begun = [job for job in jobs if not job.cancel()]
        wait(begun)
    for job in begun:
        job.result()
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            errors.clear()  # they refer to this dictionary


def _end(starts: Iterator[int]) -> None:
    """Let no other block begin."""
    deque(starts, 0)


def _run(rows: _Rows, starts: Iterator[int], stop: int, step: int) -> None:
    """Run the blocks from `starts`, of which other threads may take some."""
    try:
        scratch = _scratch.pop()
    except IndexError:
        scratch = Scratch()
    for lo in starts:
        scratch.used = 0
        rows(lo, min(lo + step, stop), scratch.empty)
    if len(_scratch) < threads():
        _scratch.append(scratch)
