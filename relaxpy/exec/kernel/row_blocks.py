"""Runs kernels on blocks of rows: in which order, on which threads, and with which memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

import numpy as np

TARGET = 1 << 21
"""The bytes that a block may access, so that intermediate results stay in the cache of a core."""
SHORTEST_RUN = 1 << 12
"""The contiguous bytes in a block below which gaps between them cost more than the cache saves."""
WORTH_SCRATCH = 1 << 16
"""The number of bytes from which new memory from the system costs more than `Scratch`."""
WORTH_THREADS = 1 << 25
"""The number of bytes from which several threads are faster than one."""


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CORES, "relaxpy")


if hasattr(os, "register_at_fork"):
    # A child process does not have the threads of its parent.
    os.register_at_fork(after_in_child=_pool.cache_clear)


class Scratch:
    """Memory of intermediate results, which one block after the other uses.

    The system would take back the memory of large arrays, and clear it before it is used again.
    """

    __slots__ = ("memory", "used")

    def __init__(self) -> None:
        self.memory = np.empty(TARGET, np.uint8)
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
"""Memory that no thread uses at present, at most one for each core."""


def blocks(
    rows: _Rows,
    start: int,
    stop: int,
    row_bytes: int,
    run_bytes: int = SHORTEST_RUN,
) -> None:
    """Run `rows(lo, hi, empty)` for blocks of `start` to `stop`, in any order, perhaps in parallel.

    A row has `row_bytes`; `run_bytes` of them are contiguous with those of the next row, where a
    block has gaps. `empty` allocates arrays that only that block uses.
    """
    count = stop - start
    total = count * row_bytes
    if total <= min(TARGET, WORTH_SCRATCH):
        if count > 0:
            rows(start, stop, np.empty)
        return
    least = -(-SHORTEST_RUN // max(run_bytes, 1))
    step = max(least, TARGET // row_bytes)
    if total < WORTH_THREADS or count <= step or CORES == 1:
        _run(rows, iter(range(start, stop, step)), stop, step)
        return
    step = max(least, min(step, -(-count // (2 * CORES))))
    starts = iter(range(start, stop, step))

    def work() -> None:
        with np.errstate(all="ignore"):
            _run(rows, starts, stop, step)

    jobs: list[Future[None]] = []
    # When the interpreter shuts down, no thread can start.
    with suppress(RuntimeError):
        jobs.extend(_pool().submit(work) for _ in range(CORES - 1))
    # This thread works, too: it only waits for blocks that others have begun.
    try:
        work()
    finally:
        begun = [job for job in jobs if not job.cancel()]
        wait(begun)
    for job in begun:
        job.result()


def _run(rows: _Rows, starts: Iterator[int], stop: int, step: int) -> None:
    """Run the blocks from `starts`, of which other threads may take some."""
    try:
        scratch = _scratch.pop()
    except IndexError:
        scratch = Scratch()
    for lo in starts:
        scratch.used = 0
        rows(lo, min(lo + step, stop), scratch.empty)
    if len(_scratch) < CORES:
        _scratch.append(scratch)
