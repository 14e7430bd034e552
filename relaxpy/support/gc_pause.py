"""Pausing Python's cyclic garbage collector while many nodes are built."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def gc_paused(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate `function` so that the cyclic garbage collector is paused while it runs.

    Nodes form no cycles, so that reference counting frees them. The collector runs whenever the
    number of objects has grown enough. While a large program is built it would therefore visit the
    same nodes over and over, which takes half of the time to parse 10,000 bindings.
    """

    @functools.wraps(function)
    def paused(*args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return paused
