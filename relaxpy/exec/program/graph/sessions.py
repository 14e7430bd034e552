"""Calls of packed functions in a native function, which share an object such as a cache.

Before a native function runs, the packed function gets all of its calls on the object, and returns
a `Plan`: the functions that each call runs, with their arguments, which machine code calls
(`packed_calls.py`). These are builtins for the most part, so that Python runs as often whatever the
number of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from relaxpy.errors import RelaxpyError
from relaxpy.exec.native.calls.entry import with_fallback
from relaxpy.exec.runtime.registry import planner
from relaxpy.exec.runtime.values import Array
from relaxpy.support.dataclass import dataclass

Forms: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The datatype of each tensor, and its shape after the number of rows, which all share."""
Numbers: TypeAlias = tuple[int | float, ...]
Step: TypeAlias = "tuple[Any, tuple[Any, ...]]"
"""A function with its arguments; a list has those of each call by number, and so has a `Part`."""


def run_steps(steps: Iterable[Step], number: int) -> None:
    """Run the steps of a call without a `Part`, as machine code does."""

    def of_call(item: Any) -> Any:
        return item[number] if type(item) is list else item

    for function, arguments in steps:
        of_call(function)(*map(of_call, arguments))


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The calls of a packed function on an object, for tensors with a number of rows.

    It lives while the native function runs, which takes no addresses but those of its objects.

    Fields:
        valid: one int64, which becomes 0 when the object changes so that the plan is outdated.
        tensors: contiguous arrays. Inputs are copied to the first ones before each call, outputs
            from the last ones after it.
        steps: those of all calls, at most `ARGUMENTS` arguments each.
    """

    valid: Array
    rows: int
    tensors: Sequence[Array]
    steps: tuple[Step, ...]

    def words(self) -> Array:
        """The words that machine code reads."""
        objects = map(id, (self.valid, self.steps, *self.tensors))
        return np.array([self.rows, *objects], np.int64)


ARGUMENTS = 16
ROWS, VALID, STEPS, TENSORS = range(4)
"""The positions of these words, the last ones the addresses of objects."""


@dataclass(frozen=True, slots=True)
class Session:
    """The calls of the packed function `symbol` on the argument at a `position`, in their order.

    Each has its numbers. Their tensors have the same forms.
    """

    position: int
    symbol: str
    forms: Forms
    calls: tuple[Numbers, ...]

    @classmethod
    def loaded(cls, position: int, symbol: str, forms: Any, calls: Any) -> Session:
        """The session of a JSON form."""
        shapes = ((dtype, tuple(shape)) for dtype, shape in forms)
        return cls(position, symbol, tuple(shapes), tuple(map(tuple, calls)))

    def plan(self, args: Sequence[Any]) -> Plan | None:
        """The plan for the arguments of the native function; None if there is none."""
        plan = planner(self.symbol)
        if plan is None or self.position >= len(args):
            return None
        try:
            found: Plan | None = plan(args[self.position], self.forms, self.calls)
        except RelaxpyError:  # the text raises it where it belongs
            return None
        return found


@dataclass(frozen=True, slots=True, eq=False)
class WithSessions:
    """A native function with sessions, whose words are its last arguments."""

    native: Callable[..., Any]
    fallback: Callable[..., Any]
    sessions: Sequence[Session]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The result of native code, or of the fallback, for the other arguments."""
        plans = [session.plan(args) for session in self.sessions]  # which live until the result
        found = [plan for plan in plans if plan is not None]
        if keywords or len(found) < len(plans):
            return self.fallback(*args, **keywords)
        return self.native(*args, *[plan.words() for plan in found])

    def with_fallback(self, fallback: Callable[..., Any]) -> WithSessions:
        """The function with another fallback; machine code has to be there."""
        native = with_fallback(self.native, WithoutSessions(fallback, len(self.sessions)))
        return WithSessions(native, fallback, self.sessions)


@dataclass(frozen=True, slots=True, eq=False)
class WithoutSessions:
    """The fallback of such a function, without the words of `count` sessions."""

    fallback: Callable[..., Any]
    count: int

    def __call__(self, *args: Any) -> Any:
        """The result of the text."""
        return self.fallback(*args[: len(args) - self.count])
