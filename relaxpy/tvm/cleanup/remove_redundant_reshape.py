"""RemoveRedundantReshape: reshapes of reshapes, and those that change nothing."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Effects, Escapes, computes, may_fail
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, without_unused
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class RemoveRedundantReshape(RewritePass):
    """Reshapes the operand of a reshape directly, and removes reshapes to the shape there is.

    The first of two reshapes is removed if nothing else uses it, unless it may fail outside a
    dataflow block (OPT-8).

    A reshape that copies stays a copy where mutation could show the difference (OPT-11).
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        def shortened(func: rx.Function) -> rx.Function:
            shorter = _Shorter(Effects(Context(), mod.functions_by_name, func))
            after = shorter.expr(func)
            passed = shorter.passed_over
            return without_unused(after, lambda b: b.var not in passed) if passed else after

        return shortened


class _Shorter(BindingRewriter):
    """Remembers the operands of reshapes until they may have changed."""

    def __init__(self, effects: Effects) -> None:
        super().__init__()
        self.effects = effects
        self.operands: dict[rx.Expr, rx.Expr] = {}
        self.escapes: Escapes | None = None
        #: The representatives of variables that escape.
        self.escaping: set[rx.Expr] = set()
        #: Reshapes that need not be kept, and those of them that lost a user.
        self.removable: set[rx.Expr] = set()
        self.passed_over: set[rx.Expr] = set()

    @override
    def function(self, func: rx.Function) -> rx.Function:
        with self.effects.inside(func):
            return super().function(func)

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        outer = self.operands, self.escapes
        self.operands, self.escapes = {}, Escapes(seq, self.effects)
        after = super().sequence(seq)
        self.operands, self.escapes = outer
        return after

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value, var = binding.value, binding.var
        if self.effects.is_barrier(binding):
            self.operands.clear()
        if not rx.is_call_of(value, "relax.reshape") or var is None:
            return None
        direct, shape = value.args
        source = direct
        while source in self.operands:
            source = self.operands[source]
        self.operands[var] = source
        if isinstance(block, rx.DataflowBlock) or not may_fail(binding):
            self.removable.add(var)
        if source is not direct:
            self.passed_over |= {direct} & self.removable
        if _has_shape_of(source, var) and not self._both_escape(source, var):
            return source
        return None if source is direct else rebuild(value, args=(source, shape))

    def _both_escape(self, first: rx.Expr, second: rx.Var) -> bool:
        assert isinstance(first, rx.Var)
        assert self.escapes is not None
        value = self.value_of(first)
        one = value is None or not computes(value) or first in self.escaping
        one = one or self.escapes.escapes(self.original_of(first))
        other = self.escapes.escapes(self.original_of(second))
        if other and not one:
            self.escaping.add(first)
        return one and other


def _has_shape_of(operand: rx.Expr, result: rx.Var) -> bool:
    """Return whether a variable is known to have the shape of the result."""
    actual, expected = operand.struct_info, result.struct_info
    if not isinstance(operand, rx.Var) or actual is None or expected is None:
        return False
    return is_base_of(expected, actual)
