"""Pure functions that keep their purity although their bodies get impure calls."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.ir.relax.nodes import Function
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter


class LoweringRewriter(BindingRewriter):
    """Rewrites functions; pure ones that change are declared pure by force (PU-10).

    A subclass whose new calls may all be pure sets `adds_impurity` where they are not.
    """

    adds_impurity = True

    @override
    def function(self, func: Function) -> Function:
        """The function after rewriting, with `relax.force_pure` if it is pure and has changed."""
        after = super().function(func)
        if after is func or not self.adds_impurity:
            return after
        if not func.is_pure or func.attrs.get("relax.force_pure", False):
            return after
        return after.with_attr("relax.force_pure", True)
