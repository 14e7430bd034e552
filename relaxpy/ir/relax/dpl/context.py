"""PatternContext: patterns with constraints between them, which are matched against a block."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Self

from relaxpy.errors import MisuseError
from relaxpy.ir.relax.nodes import BindingBlock
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.graph import VarMatches
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


class PatternContext:
    """Collects the constraints that are written inside `with`.

    They come from `used_by`, `only_used_by`, `fork_to`, `same_shape_as` and from the arguments of
    call patterns. An `incremental` context inherits those of the enclosing context.
    """

    def __init__(self, incremental: bool = False) -> None:
        if not isinstance(incremental, bool):
            raise MisuseError(f"incremental is True or False, found {incremental!r:.60}")
        self.incremental = incremental
        self.edges: list[Edge] = []
        self.same_shapes: list[tuple[DFPattern, ...]] = []

    def __enter__(self) -> Self:
        enclosing = innermost()
        if self.incremental and enclosing is not None:
            self.edges[:0] = [e for e in enclosing.edges if e not in self.edges]
            self.same_shapes[:0] = [g for g in enclosing.same_shapes if g not in self.same_shapes]
        _open.set((*_open.get(), self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _open.set(_open.get()[:-1])

    @staticmethod
    @user_facing
    def current() -> PatternContext:
        """The innermost context that is open.

        Errors:
            MisuseError: no context is open.
        """
        context = innermost()
        if context is None:
            raise MisuseError(
                "no PatternContext is open", hint="open one: with PatternContext() as ctx: ..."
            )
        return context

    def copy_constraints(self, copies: dict[DFPattern, DFPattern]) -> None:
        """Copy the constraints between patterns for their copies."""
        self.edges.extend(
            replace(edge, used=copies[edge.used], user=copies[edge.user])
            for edge in tuple(self.edges)
            if edge.used in copies and edge.user in copies
        )
        self.same_shapes.extend(
            tuple(copies[p] for p in group)
            for group in tuple(self.same_shapes)
            if all(p in copies for p in group)
        )

    @user_facing
    def match_dfb(self, dfb: BindingBlock) -> VarMatches | None:
        """The variable of the block that each pattern matches, or None if there is no match.

        Different patterns match different variables, unless one is a subpattern that matches the
        same expression as the other. An argument that is not a variable is its own match. `>>`
        counts the uses in the block.

        Errors:
            MisuseError (also TypeError): `dfb` is not a block.
        """
        from relaxpy.ir.relax.dpl.graph import BindingGraph, GraphMatcher

        if not isinstance(dfb, BindingBlock):
            raise MisuseError(
                f"a context is matched against a DataflowBlock, found {type(dfb).__name__}",
                about=dfb,
                hint="func.body.blocks are the blocks of a function",
            )
        return next(GraphMatcher(self, BindingGraph(dfb.bindings)).matches(), None)


_open: ContextVar[tuple[PatternContext, ...]] = ContextVar("relaxpy_pattern_contexts", default=())


def innermost() -> PatternContext | None:
    """The innermost context that is open."""
    contexts = _open.get()
    return contexts[-1] if contexts else None
