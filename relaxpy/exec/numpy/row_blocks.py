"""Runs kernels on blocks of rows: their order, threads and memory."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from queue import SimpleQueue
from threading import Lock, Thread, local
from typing import Any, TypeAlias

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.machine.blas import has_thread_limit, one_blas_thread
from relaxpy.exec.machine.process import process
from relaxpy.exec.machine.tuning import Blocks
from relaxpy.exec.runtime.threads import (
    as_this_thread_rounds,
    keep_from_this_processor,
    measured,
    thread_count,
)
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.core.fork_lock import ForkLock

threads = cache(thread_count)
"""The number of threads that share blocks."""


class _Job:
    """Work that a worker may begin, unless it has been cancelled.

    The work may end in an `error` that is not an `Exception`, such as `KeyboardInterrupt`.
    """

    __slots__ = ("ended", "error", "taken", "work")

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.error: BaseException | None = None
        self.taken = Lock()
        self.ended = Lock()
        self.ended.acquire()

    def run(self) -> None:
        """Do the work, unless the job is taken."""
        if self.taken.acquire(blocking=False):
            try:
                self.work()
            except BaseException as error:  # the thread that waits raises it
                self.error = error
            finally:
                self.work = _nothing
                self.ended.release()

    def take_back(self) -> None:
        """Cancel the job; if a worker has begun it, wait for its end.

        It then drops its references to arrays, although it stays queued while workers are busy.
        """
        if self.taken.acquire(blocking=False):
            self.work = _nothing
        else:
            self.ended.acquire()


def _nothing() -> None:
    """The work of a job that has ended."""


class _Pool:
    """At most `count` threads that wait for jobs: fewer if the system does not start more.

    It hands a job over in about a quarter of the time of `concurrent.futures`.
    """

    def __init__(self, count: int) -> None:
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        self.workers: list[Thread] = []
        # The system limits the threads of a process, and no thread starts at interpreter exit.
        with suppress(RuntimeError):
            for _ in range(count):
                worker = Thread(target=self._serve, name="relaxpy", daemon=True)
                worker.start()
                self.workers.append(worker)

    def _serve(self) -> None:
        while True:
            self.jobs.get().run()

    def submit(self, work: Callable[[], None], count: int) -> list[_Job]:
        """Submit the work to up to `count` workers, on other CPUs than that of this thread."""
        allowed, owner = keep_from_this_processor(self.workers), process().thread_id()
        round_as_here = as_this_thread_rounds()

        def elsewhere() -> None:
            if allowed:
                with suppress(OSError):  # the process may no longer use them
                    os.sched_setaffinity(0, allowed)
            round_as_here()
            with measured(owner):
                work()

        jobs = [_Job(elsewhere) for _ in range(min(count, len(self.workers)))]
        for job in jobs:
            self.jobs.put(job)
        return jobs


@cache
def _pool() -> _Pool:
    return _Pool(max(threads() - 1, 1))


_starts_pool = ForkLock()
"""Held by the thread that needs `_pool`, so that only the first one starts workers."""


if hasattr(os, "register_at_fork"):
    # A child process does not have the threads of its parent.
    os.register_at_fork(after_in_child=_pool.cache_clear)


_here = local()
"""The `interrupts` of the blocks that this thread shares with others."""


def end_if_interrupted() -> None:
    """End the block of this thread if a signal has interrupted the thread that waits for it.

    Errors: InterruptedError.
    """
    if getattr(_here, "interrupts", ()):
        raise InterruptedError


class Scratch:
    """Memory of intermediate results, reused block by block.

    The system would reclaim the memory of large arrays, and clear it before reuse.
    """

    __slots__ = ("memory", "used")

    def __init__(self) -> None:
        self.memory = np.empty(2 * Blocks.TARGET, np.uint8)
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
"""Unused scratch memory, at most one for each thread."""


def blocks(
    rows: _Rows,
    start: int,
    stop: int,
    row_bytes: int,
    row_work: int,
    run_bytes: int = Blocks.SHORTEST_RUN,
    of_batch: bool = False,
    by_blas: bool = False,
    once: bool = False,
    regular: bool = False,
) -> None:
    """Run `rows(lo, hi, empty)` for blocks of `start` to `stop`, in any order, perhaps in parallel.

    A row has `row_bytes`, and `row_work` in multiply-adds of a matmul; `run_bytes` of a row are
    contiguous with those of the next, where a block has gaps. `empty` allocates arrays that only
    that block uses. If rows are matmuls `of_batch`, each is computed on one thread; other matmuls
    are parallelised `by_blas`, block by block. Rows that overwrite memory that they read are
    computed `once`. The number of threads does not change `regular` blocks.

    Errors:
        RuntimeCheckError: that of the first row that fails, or of the first step in a block that
            does, if rows are computed once.
    """
    block = rows if once else partial(_block, rows)
    count = stop - start
    most = max(Blocks.MOST_WORK // max(row_work, 1), 1)
    least = -(-Blocks.SHORTEST_RUN // max(run_bytes, 1))
    if count * row_work >= Blocks.WORTH_THREADS and threads() > 1 and not by_blas:
        if of_batch:
            is_even = count % threads() == 0 or count >= 4 * threads()
            if is_even and has_thread_limit():
                with one_blas_thread():
                    _share(block, start, stop, min(most, -(-count // threads())))
                return
        elif count > least:
            step = min(4 * Blocks.TARGET // max(row_bytes, 1), -(-count // (2 * threads())))
            if regular:
                step = Blocks.TARGET // max(row_bytes, 1)
            _share(block, start, stop, min(most, max(least, step)))
            return
    total = count * row_bytes
    if total <= min(Blocks.TARGET, Blocks.WORTH_SCRATCH) and count <= most:
        if count > 0:
            block(start, stop, np.empty)
        return
    step = min(most, max(least, Blocks.TARGET // max(row_bytes, 1)))
    _run(block, iter(range(start, stop, step)), stop, step)


def combine(ufunc: np.ufunc, parts: dict[int, Array], out: Array, initial: Any) -> None:
    """Store in `out` the combined results of blocks, in the order of their rows.

    Without rows this is the `initial` value; the result of a single block is in `out` already.
    """
    if not parts:
        out[...] = initial
    elif len(parts) > 1:
        values = [parts[row] for row in sorted(parts)]
        if out.ndim == 0:
            ufunc.reduce(np.array(values), out=out)
            return
        out[...] = values[0]
        for value in values[1:]:
            ufunc(out, value, out=out)


def _block(rows: _Rows, lo: int, hi: int, empty: Callable[..., Any]) -> None:
    """Run a block, which checks all rows of a step at once; raise the error of its first row.

    The rows before that are computed again, by bisection, in at most twice the time of the block.
    Completed blocks are not, as they may have overwritten memory that they read.
    """
    try:
        rows(lo, hi, empty)
    except RuntimeCheckError:
        while hi - lo > 1:
            middle = (lo + hi) // 2
            try:
                rows(lo, middle, np.empty)
            except RuntimeCheckError:
                hi = middle
            else:
                lo = middle
        rows(lo, hi, np.empty)
        raise


def _share(block: _Rows, start: int, stop: int, step: int) -> None:
    """Run blocks of `step` rows on several threads, until one fails.

    Errors: that of the first block that fails, as all blocks before it have begun.
    """
    starts = iter(range(start, stop, step))
    errors: dict[int, Exception] = {}
    interrupts: list[BaseException] = []

    def noted(lo: int, hi: int, empty: Callable[..., Any]) -> None:
        try:
            block(lo, hi, empty)
        except Exception as error:  # of any kind: the caller's thread raises it
            errors[lo] = error
            _end(starts)

    def work() -> None:
        outer, _here.interrupts = getattr(_here, "interrupts", ()), interrupts
        try:
            with np.errstate(all="ignore"):
                _run(noted, starts, stop, step)
        finally:
            _here.interrupts = outer

    with _starts_pool:
        pool = _pool()
    jobs = pool.submit(work, min(threads(), -(-(stop - start) // step)) - 1)
    # This thread works, too: it only waits for blocks that others have begun.
    try:
        work()
    except BaseException as error:  # that of the handler of a signal
        interrupts.append(error)
    _end(starts)
    for job in jobs:
        try:
            job.take_back()
        except BaseException as error:
            interrupts.append(error)
            job.ended.acquire(timeout=1)  # its block ends soon
    if interrupts:
        try:
            raise interrupts[0]
        finally:
            interrupts.clear()  # they refer to this list
    for job in jobs:
        if job.error is not None:
            raise job.error
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            errors.clear()  # they refer to this dictionary


def _end(starts: Iterator[int]) -> None:
    """Stop: no other block begins."""
    deque(starts, 0)


def _run(block: _Rows, starts: Iterator[int], stop: int, step: int) -> None:
    """Run the blocks from `starts`; other threads may take some of them."""
    try:
        scratch = _scratch.pop()
    except IndexError:
        scratch = Scratch()
    for lo in starts:
        scratch.used = 0
        block(lo, min(lo + step, stop), scratch.empty)
    if len(_scratch) < threads():
        _scratch.append(scratch)
