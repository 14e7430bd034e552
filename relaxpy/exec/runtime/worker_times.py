"""Records the busy times of both thread pools' workers while a thread is profiled.

Native workers write to a ring of 64-bit words: how many threads are profiled, how many entries were
written, then the entries: the thread that runs the loop, the worker, and two times in nanoseconds.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import get_native_id
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np

from relaxpy.ir.core.fork_lock import ForkLock

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
    words, owner, begin = ring(), get_native_id(), perf_counter()
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
        _of_numpy.append(WorkerTime(owner, get_native_id(), start, perf_counter()))
