"""The work of a piece of code, counted rather than timed: the same on every machine."""

import gc
import sys
from collections.abc import Callable
from cProfile import Profile
from typing import Any


def calls(run: Callable[[], object]) -> int:
    """How many functions, Python's own included, `run` calls."""
    return sum(entry.callcount for entry in _profiled(run).getstats())


def calls_of(function: Any, run: Callable[[], object]) -> int:
    """How many times `run` calls a function of Python."""
    entries = _profiled(run).getstats()
    return sum(entry.callcount for entry in entries if entry.code is function.__code__)


def _profiled(run: Callable[[], object]) -> Profile:
    """The profile of `run`.

    The garbage collector rests meanwhile: the finalisers of what earlier code left are no work
    of `run`.
    """
    profile = Profile(subcalls=False)
    gc.disable()
    profile.enable()
    try:
        run()
    finally:
        profile.disable()
        gc.enable()
    return profile


def depth() -> int:
    """How many Python functions are running."""
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count
