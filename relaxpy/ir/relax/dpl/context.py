"""PatternContext: patterns and constraints between them, matched against a block as a whole."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.relax.dpl import constraints
from relaxpy.ir.relax.dpl.graph import BindingGraph, Found, GraphMatcher
from relaxpy.ir.relax.nodes import BindingBlock


class PatternContext(constraints.Constraints):
    """Collects the constraints that are written inside `with`.

    They come from `used_by`, `only_used_by`, `fork_to`, `same_shape_as` and from the arguments of
    call patterns. An `incremental` one begins with those of the context around it.
    """

    def __init__(self, incremental: bool = False) -> None:
        super().__init__()
        if not isinstance(incremental, bool):
            raise MisuseError(f"incremental is True or False, found {incremental!r:.60}")
        self.incremental = incremental

    def __enter__(self) -> Self:
        around = constraints.current()
        if self.incremental and around is not None:
            self.begin_with(around)
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
            MisuseError: none is.
        """
        found = constraints.current()
        if not isinstance(found, PatternContext):
            raise MisuseError(
                "no PatternContext is open", hint="open one: with PatternContext() as ctx: ..."
            )
        return found

    @user_facing
    def match_dfb(self, dfb: BindingBlock) -> Found | None:
        """Variables of the block that its patterns stand for together, or None if there are none.

        Different patterns stand for different variables, except where one is a part of the other
        that matches the same. An argument that is no variable stands for itself. `>>` counts the
        uses in the block.

        Errors:
            MisuseError (also TypeError): `dfb` is no block.
        """
        if not isinstance(dfb, BindingBlock):
            raise MisuseError(
                f"a context is matched against a DataflowBlock, found {type(dfb).__name__}",
                about=dfb,
                hint="func.body.blocks has those of a function",
            )
        graph = BindingGraph(dfb.bindings)
        return next(GraphMatcher(self, graph).matches(), None)
