"""Pausing Python's cyclic garbage collector while many nodes are built."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

LOOKS_UP_NAMES: Final = True  # its functions stand between a name and who asks for it
P = ParamSpec("P")
T = TypeVar("T")

_FEW: Final = 1 << 12
"""The number of new objects that the collector may visit after a pause of a program that starts."""
_MANY: Final = 1 << 16
"""The same later: old objects that a program gives up are found late."""
_COLLECTED: Final = 16
"""The number of pauses with more new objects after which garbage is collected."""


class _NewObjects:
    """The number of objects that the next visit may take, and how often there were more."""

    def __init__(self) -> None:
        self.few = _FEW
        self._times = 0

    def keep(self) -> None:
        """Move all objects to the oldest generation; every sixteenth time collect garbage."""
        if gc.get_freeze_count():  # of objects that the program has frozen, one by one
            self.few = _MANY
            return
        self._times += 1
        if self._times % _COLLECTED:
            gc.freeze()
            gc.unfreeze()
        else:
            self.few = _MANY
            gc.collect()


_new_objects: Final = _NewObjects()


def gc_paused(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate `function` so that the cyclic garbage collector is paused while it runs.

    Nodes form no cycles, so that reference counting frees them. The collector runs whenever the
    number of objects has grown enough. While a large program is built it would therefore visit the
    same nodes over and over, which takes half of the time to parse 10,000 bindings. Objects that
    remain afterwards count as old: a first visit would take a tenth of the time to create them.
    """

    @functools.wraps(function)
    def paused(*args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.isenabled():
            return function(*args, **kwargs)
        before = gc.get_count()[0]
        try:  # an interrupt may come at any place
            gc.disable()
            return function(*args, **kwargs)
        finally:
            try:
                if gc.get_count()[0] - before > _new_objects.few:
                    _new_objects.keep()
            finally:
                gc.enable()

    return paused
