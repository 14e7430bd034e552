"""Pausing Python's cyclic garbage collector while many nodes are built."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_FEW: Final = 1 << 12
"""The number of new objects that the collector may visit after a pause."""
_MANY: Final = 1 << 16
"""The same in a program with frozen objects, which are counted one by one."""
_COLLECTED: Final = 1 << 20
"""The number of new objects after which garbage is collected."""


class _NewObjects:
    """The objects that remain after pauses, and how many of them a visit may take."""

    few = _FEW
    _kept = 0

    def keep(self, number: int) -> None:
        """Move all objects to the oldest generation; after many, collect garbage instead."""
        if gc.get_freeze_count():  # of objects that the program has frozen, one by one
            self.few = _MANY
            return
        self.few = _FEW
        self._kept += number
        if self._kept > _COLLECTED:
            self._kept = 0
            gc.collect()
        else:
            gc.freeze()
            gc.unfreeze()


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
        gc.disable()
        before = gc.get_count()[0]
        try:
            return function(*args, **kwargs)
        finally:
            new = gc.get_count()[0] - before
            if new > _new_objects.few:
                _new_objects.keep(new)
            gc.enable()

    return paused
