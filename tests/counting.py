"""The work of a piece of code, counted rather than timed: the same on every machine."""

import gc
import sys
from collections.abc import Callable


def calls(run: Callable[[], object]) -> int:
    """How many functions, Python's own included, `run` calls.

    The garbage collector rests meanwhile: the finalisers of what earlier code left are no work
    of `run`.
    """
    count = 0

    def count_call(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    previous = sys.getprofile()
    sys.setprofile(count_call)
    try:
        run()
    finally:
        sys.setprofile(previous)
        gc.enable()
    return count
