"""What a PatternContext collects: which pattern is used by which, and which have one shape."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.pattern import DFPattern


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """`user` has `used` as an operand: as number `index` unless that is -1, as only user if `only`.

    One that is `implied` says what the pattern of a call says of its arguments anyway.
    """

    used: DFPattern
    user: DFPattern
    index: int = -1
    only: bool = False
    implied: bool = False


class Constraints:
    """The edges between patterns, and the sets of patterns with one shape, in order."""

    def __init__(self) -> None:
        self.edges: list[Edge] = []
        self.same_shapes: list[tuple[DFPattern, ...]] = []

    def begin_with(self, other: Constraints) -> None:
        """Take over what `other` has, too."""
        self.edges[:0] = [edge for edge in other.edges if edge not in self.edges]
        self.same_shapes[:0] = [g for g in other.same_shapes if g not in self.same_shapes]

    def repeat_for(self, table: dict[DFPattern, DFPattern]) -> None:
        """Let what holds between the patterns in `table` hold between those they stand for."""
        self.edges.extend(
            replace(edge, used=table[edge.used], user=table[edge.user])
            for edge in tuple(self.edges)
            if edge.used in table and edge.user in table
        )
        self.same_shapes.extend(
            tuple(table[p] for p in group)
            for group in tuple(self.same_shapes)
            if all(p in table for p in group)
        )


_open: ContextVar[tuple[Constraints, ...]] = ContextVar("relaxpy_pattern_contexts", default=())


def current() -> Constraints | None:
    """The constraints of the innermost open context."""
    found = _open.get()
    return found[-1] if found else None


def enter(constraints: Constraints) -> None:
    """Make a context the innermost one."""
    _open.set((*_open.get(), constraints))


def leave() -> None:
    """Leave the innermost context."""
    _open.set(_open.get()[:-1])
