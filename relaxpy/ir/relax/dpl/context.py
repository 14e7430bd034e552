"""PatternContext: patterns with constraints between them, which are matched against a block."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.relax.dpl import constraints
from relaxpy.ir.relax.dpl.graph import BindingGraph, GraphMatcher, VarMatches
from relaxpy.ir.relax.nodes import BindingBlock


class PatternContext(constraints.Constraints):
    """Collects the constraints that are written inside `with`.

    They come from `used_by`, `only_used_by`, `fork_to`, `same_shape_as` and from the arguments of
    call patterns. An `incremental` context inherits those of the enclosing context.
    """

    def __init__(self, incremental: bool = False) -> None:
        super().__init__()
        if not isinstance(incremental, bool):
            raise MisuseError(f"incremental is True or False, found {incremental!r:.60}")
        self.incremental = incremental

    def __enter__(self) -> Self:
        enclosing = constraints.current()
        if self.incremental and enclosing is not None:
            self.inherit(enclosing)
        constraints.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        constraints.leave()

    @staticmethod
    @user_facing
    def current() -> PatternContext:
        """The innermost context that is open.

        Errors:
            MisuseError: no context is open.
        """
        context = constraints.current()
        if not isinstance(context, PatternContext):
            raise MisuseError(
                "no PatternContext is open", hint="open one: with PatternContext() as ctx: ..."
            )
        return context

    @user_facing
    def match_dfb(self, dfb: BindingBlock) -> VarMatches | None:
        """The variable of the block that each pattern matches, or None if there is no match.

        Different patterns match different variables, unless one is a subpattern that matches the
        same expression as the other. An argument that is not a variable is its own match. `>>`
        counts the uses in the block.

        Errors:
            MisuseError (also TypeError): `dfb` is not a block.
        """
        if not isinstance(dfb, BindingBlock):
            raise MisuseError(
                f"a context is matched against a DataflowBlock, found {type(dfb).__name__}",
                about=dfb,
                hint="func.body.blocks are the blocks of a function",
            )
        graph = BindingGraph(dfb.bindings)
        return next(GraphMatcher(self, graph).matches(), None)
