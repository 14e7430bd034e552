"""The threads of a program: their number, CPUs, rounding, and busy times while it is profiled.

Native workers write to a ring of 64-bit words: how many threads are profiled, how many entries were
written, then the entries: the thread that runs the loop, the worker, and two times in nanoseconds.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import cache, wraps
from threading import Thread
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.exec.machine.process import process
from relaxpy.ir.core.fork_lock import ForkLock

THREADS: Final = "RELAXPY_NUM_THREADS"
"""The environment variable with the number of threads."""
MOST_THREADS: Final = 4096
"""The largest number of threads."""


def thread_count() -> int:
    """RELAXPY_NUM_THREADS, or the number of CPUs that this process may use.

    It is 1 where Python starts no threads.

    Errors:
        MisuseError: RELAXPY_NUM_THREADS is not an integer from 1 to MOST_THREADS.
    """
    text = os.environ.get(THREADS)
    if text is None:
        return min(process().cpus(), MOST_THREADS)
    # Python refuses to read integers of thousands of digits.
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MOST_THREADS:
        raise MisuseError(
            f"{THREADS} is {text[:40]!r}, expected an integer from 1 to {MOST_THREADS}",
            hint=f"set {THREADS} to the number of threads, such as 4, or unset it",
        )
    return int(text) if process().system.has_threads else 1


@cache
def _current_processor() -> Any:
    """The function of the C library that returns the CPU of the calling thread, or None."""
    # PyDLL: the call is too short to release the GIL.
    is_known = process().system.has_affinity
    return getattr(ctypes.PyDLL(None), "sched_getcpu", None) if is_known else None


def keep_from_this_processor(workers: Iterable[Thread]) -> frozenset[int]:
    """Keep threads that are about to be woken off the CPU of the calling thread.

    Linux often queues a thread on the CPU of the one that wakes it, although other CPUs are idle.
    Returns the CPUs that they should be allowed to use again as soon as they run; empty if nothing
    has changed.
    """
    current = _current_processor()
    if current is None:
        return frozenset()
    allowed = frozenset(os.sched_getaffinity(0))
    others = allowed - {current()}
    if not others:
        return frozenset()
    for worker in workers:
        try:
            os.sched_setaffinity(worker.native_id or 0, others)
        except OSError:  # it has ended, or the system forbids it
            return frozenset()
    return allowed


@cache
def _environment_functions() -> tuple[Any, Any] | None:
    """The functions of C that read and set how a thread rounds; None if there are none."""
    names = "fegetenv", "fesetenv"
    if not process().has(*names):
        return None
    # As with PyDLL, the GIL is kept.
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    read, write = (kind(process().address(name)) for name in names)
    return read, write


def as_this_thread_rounds() -> Callable[[], object]:
    """A function that lets another thread round as this one does.

    It takes subnormal numbers for zeros if this one does.
    """
    functions = _environment_functions()
    if functions is None:
        return lambda: None
    read, write = functions
    words = (ctypes.c_uint64 * _ENVIRONMENT_WORDS)()
    read(ctypes.addressof(words))
    return lambda: write(ctypes.addressof(words))


_ENVIRONMENT_WORDS: Final = 16
"""More than an environment of floats has on any system (4 of 8 bytes)."""


def rounding() -> str:
    """How this thread rounds, and whether it takes subnormal numbers for zeros.

    These are results of arithmetic, such as a compiler computes.
    """
    one, half, tiny = _OPERANDS
    results = _SUBNORMAL * one, _NORMAL * half, one + tiny, one - tiny, tiny - one
    return struct.pack("<5d", *results).hex()


_OPERANDS: Final = 1.0, 0.5, 2.0**-60
_SUBNORMAL: Final = float.fromhex("0x1p-1074")
_NORMAL: Final = sys.float_info.min

ENTRIES: Final = 1 << 16
"""The most entries that are kept, a power of two."""

_LOCK: Final = ForkLock()


class WorkerTime(NamedTuple):
    """A worker's share of one parallel loop that the thread `owner` runs.

    Units:
        seconds of `time.perf_counter`
    """

    owner: int
    worker: int
    start: float
    stop: float


_of_numpy: deque[WorkerTime] = deque(maxlen=ENTRIES)


@cache
def ring() -> Any:
    """The words that native workers read and write."""
    count = 2 + 4 * ENTRIES
    # These zeros are only allocated when they are written.
    return (ctypes.c_int64 * count).from_buffer(np.zeros(count, np.int64).data)


@contextmanager
def worker_times() -> Iterator[deque[WorkerTime]]:
    """Let workers record their times; at the end, the deque has those of this thread's loops.

    The first ones are lost if there are more than `ENTRIES`.
    """
    words, owner, begin = ring(), process().thread_id(), perf_counter()
    found: deque[WorkerTime] = deque(maxlen=ENTRIES)
    with _LOCK:
        words[0] += 1
    first = words[1]
    try:
        yield found
    finally:
        with _LOCK:
            words[0] -= 1
        last = words[1]
        native = (
            WorkerTime(words[at], words[at + 1], words[at + 2] * 1e-9, words[at + 3] * 1e-9)
            for index in range(max(first, last - ENTRIES), last)
            for at in (2 + 4 * (index % ENTRIES),)
        )
        both = [*native, *_of_numpy.copy()]
        found.extend(time for time in both if time.owner == owner and time.start >= begin)
        if not words[0]:
            _of_numpy.clear()


@contextmanager
def measured(owner: int) -> Iterator[None]:
    """Record the time of this worker, if a thread is profiled."""
    if not ring()[0]:
        yield
        return
    start = perf_counter()
    try:
        yield
    finally:
        _of_numpy.append(WorkerTime(owner, process().thread_id(), start, perf_counter()))


T = TypeVar("T")

_silent = Context()
_silent.run(np.seterr, all="ignore")
silent_context = _silent.copy
"""A new context with NumPy's warnings suppressed."""


def without_warnings(function: Callable[..., T]) -> Callable[..., T]:
    """Decorate `function` so that NumPy does not warn of overflow, division by zero and NaN.

    It takes positional arguments only. It must not call users' code, which would not see its
    context variables. Entering a copy of a context takes a third of the time of entering
    `numpy.errstate`.
    """

    @wraps(function)
    def silent(*args: Any) -> T:
        return silent_context().run(function, *args)

    return silent
