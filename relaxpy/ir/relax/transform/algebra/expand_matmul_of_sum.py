"""ExpandMatmulOfSum: the matmul with a sum becomes the sum of matmuls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from typing_extensions import override

from relaxpy.ir.core.node import Attr
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Effects, may_fail
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.rewrite.unused import without_unused
from relaxpy.ir.relax.transform.algebra import products
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass, replace

_Term: TypeAlias = tuple[rx.Expr, tuple[Attr, ...]]
"""A factor, and the axes by which it is permuted, if it is."""


@dataclass(frozen=True)
class ExpandMatmulOfSum(RewritePass):
    """x @ (a + b) -> x @ a + x @ b, and the same for the transposed sum.

    A sum stays if it can be computed before the function is called, from its weights alone: see
    `relax.analysis.computable_at_compile_time`, and if the matmul has another datatype. Rounding
    may differ.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        early = products.known_at_compile_time(mod)

        def expanded(func: rx.Function) -> rx.Function:
            rewriter = _Expanding(early, Effects(Context(), mod.functions_by_name, func))
            after = rewriter.expr(func)
            superfluous = rewriter.expanded
            return without_unused(after, lambda binding: binding.var not in superfluous)

        return expanded


class _Expanding(BindingRewriter):
    """Expands the matmuls of one function.

    `sums` and `permuted` are calls whose operands may be used here, and `known` has the matmuls
    with their terms: a term of several sums is multiplied once, else there could be exponentially
    many matmuls. The variables that are `expanded` may have become unused.
    """

    def __init__(self, early: Collection[rx.Expr], effects: Effects) -> None:
        super().__init__()
        self.early, self.effects = early, effects
        self.expanded: set[rx.Expr | None] = set()
        self._forget()

    def _forget(self) -> None:
        self.sums: dict[rx.Expr, rx.Call] = {}
        self.permuted: dict[rx.Expr, rx.Call] = {}
        self.known: dict[object, rx.Expr] = {}

    @override
    def function(self, func: rx.Function) -> rx.Function:
        with self.effects.inside(func):
            return super().function(func)

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        outer = self.sums, self.permuted, self.known
        self._forget()
        after = super().block(block)
        self.sums, self.permuted, self.known = outer
        return after

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if self.effects.is_barrier(binding):
            self._forget()  # OPT-3
        elif isinstance(binding, rx.VarBinding) and isinstance(call, rx.Call):
            if rx.is_call_of(call, "relax.matmul"):
                return self._expanded(binding, call, block)
            if not isinstance(block, rx.DataflowBlock) and may_fail(binding):
                return None  # OPT-8
            if rx.is_call_of(call, "relax.permute_dims"):
                self.permuted[binding.var] = call
            elif (
                rx.is_call_of(call, "relax.add")
                and products.have_same_shape(*call.args)
                and not all(term in self.early for term in call.args)
            ):
                self.sums[binding.var] = call
        return None

    def _terms(self, factor: _Term) -> Sequence[_Term]:
        """The terms of a factor that is a sum, or a permuted one; none of any other."""
        expr, axes = factor
        permuted = None if axes else self.permuted.get(expr)
        if permuted is not None and permuted.args[0] in self.sums:
            self.expanded.add(expr)
            expr, axes = permuted.args[0], (permuted.attrs["axes"],)
        total = self.sums.get(expr)
        if total is None:
            return ()
        self.expanded.add(expr)
        return [(term, axes) for term in total.args]

    def _expanded(self, old: rx.VarBinding, call: rx.Call, block: rx.BindingBlock) -> Rewritten:
        """The bindings of the matmuls with the terms of a sum, and of their sum."""
        x, factor = call.args
        if not products.have_one_dtype(call, x, factor):
            return None
        kind = rx.DataflowVar if isinstance(block, rx.DataflowBlock) else rx.Var
        bindings: list[rx.Binding] = []

        def bound(key: object, value: rx.Call) -> rx.Expr:
            if key not in self.known:
                var = kind("lv", value.struct_info, old.span)
                bindings.append(rx.VarBinding(var, replace(value, span=old.span), old.span))
                self.known[key] = var
            return self.known[key]

        waiting: list[_Term] = [(factor, ())]
        while True:
            term = expr, axes = waiting.pop()
            key = (x, *term)
            terms = self._terms(term)
            missing = [t for t in terms if (x, *t) not in self.known]
            if missing:
                waiting += (term, *reversed(missing))
            elif terms:
                total = R.add(*(self.known[x, *t] for t in terms))
                if not waiting:
                    return [*bindings, replace(old, value=replace(total, span=call.span))]
                bound(key, total)
            elif not waiting:
                return None
            else:
                permuted = bound(term, R.permute_dims(expr, *axes)) if axes else expr
                bound(key, R.matmul(x, permuted))
