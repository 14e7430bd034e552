"""The number of threads that a program may use."""

from __future__ import annotations

import os
import sys
from typing import Final

from relaxpy.errors import MisuseError

THREADS: Final = "RELAXPY_NUM_THREADS"
"""The environment variable with the number of threads."""
MOST_THREADS: Final = 4096
"""The largest number of threads."""


def thread_count() -> int:
    """RELAXPY_NUM_THREADS, or the number of processors that this process may use.

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
