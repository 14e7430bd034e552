"""The number of threads that a program may use, and the CPUs on which they wake up."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from relaxpy.errors import MisuseError

THREADS: Final = "RELAXPY_NUM_THREADS"
"""The environment variable with the number of threads."""
MOST_THREADS: Final = 4096
"""The largest number of threads."""


def thread_count() -> int:
    """RELAXPY_NUM_THREADS, or the number of CPUs that this process may use.

    Errors:
        MisuseError: RELAXPY_NUM_THREADS is not an integer from 1 to MOST_THREADS.
    """
    text = os.environ.get(THREADS)
    if text is None:
        found = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
        return min(found or 1, MOST_THREADS)
    # Python refuses to read integers of thousands of digits.
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MOST_THREADS:
        raise MisuseError(
            f"{THREADS} is {text[:40]!r}, expected an integer from 1 to {MOST_THREADS}",
            hint=f"set {THREADS} to the number of threads, such as 4, or unset it",
        )
    return int(text)


@cache
def _current_processor() -> Any:
    """The function of the C library that returns the CPU of the calling thread, or None."""
    # PyDLL: the call is too short to release the GIL.
    return getattr(ctypes.PyDLL(None), "sched_getcpu", None) if sys.platform == "linux" else None


def keep_from_this_processor(workers: Iterable[int]) -> frozenset[int]:
    """Keep threads that are about to be woken off the CPU of the calling thread.

    Linux often queues a thread on the CPU of the one that wakes it, although other CPUs are idle.
    Workers are identified as by `threading.get_native_id`. Returns the CPUs that they should be
    allowed to use again as soon as they run; empty if nothing has changed.
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
            os.sched_setaffinity(worker, others)
        except OSError:  # it has ended, or the system forbids it
            return frozenset()
    return allowed
