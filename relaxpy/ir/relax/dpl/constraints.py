"""The constraints of a PatternContext: which pattern uses which, and which have the same shape."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.pattern import DFPattern


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """`user` has `used` as operand `index`, or as any for -1, and is the only user if `only`.

    The pattern of a call implies an edge that is `implied`.
    """

    used: DFPattern
    user: DFPattern
    index: int = -1
    only: bool = False
    implied: bool = False


class Constraints:
    """The edges between patterns, and the lists of patterns with the same shape."""

    def __init__(self) -> None:
        self.edges: list[Edge] = []
        self.same_shapes: list[tuple[DFPattern, ...]] = []

    def inherit(self, other: Constraints) -> None:
        """Add the constraints of `other`, before those that exist."""
        self.edges[:0] = [edge for edge in other.edges if edge not in self.edges]
        self.same_shapes[:0] = [g for g in other.same_shapes if g not in self.same_shapes]

    def copy_for(self, table: dict[DFPattern, DFPattern]) -> None:
        """Copy the constraints between patterns in `table` for their copies."""
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
    contexts = _open.get()
    return contexts[-1] if contexts else None


def enter(constraints: Constraints) -> None:
    """Make a context the innermost one."""
    _open.set((*_open.get(), constraints))


def leave() -> None:
    """Leave the innermost context."""
    _open.set(_open.get()[:-1])
