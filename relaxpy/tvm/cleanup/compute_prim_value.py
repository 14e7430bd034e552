"""ComputePrimValue: scalar expressions become calls of kernels that compute them."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.errors import Span
from relaxpy.ir.core.traverse import rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.relations.shape_vars import variables_of
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, map_with_builder
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.intrin import ret
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Evaluate
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class ComputePrimValue(Pass):
    """Replaces scalar values other than literals and variables by calls of kernels.

    Kernels are not known to be pure. Dataflow blocks and functions that may only make pure calls
    keep their values, so this pass comes after ToNonDataflow and RemovePurityChecking.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        return normalize_module(
            map_with_builder(mod, lambda func, builder: _Computing(builder).expr(func))
        )


class _Computing(BindingRewriter):
    def __init__(self, builder: BlockBuilder) -> None:
        super().__init__()
        self.builder = builder
        self.is_free = False

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer = self.is_free
        self.is_free = not func.is_pure or bool(func.attrs.get("relax.force_pure", False))
        after = super().function(func)
        self.is_free = outer
        return after

    def _call(self, value: tir.PrimExpr, span: Span | None) -> rx.Call:
        """A call of a kernel that computes a value."""
        sizes = tuple(dict.fromkeys(variables_of(value)))
        params = {size: size.renamed(size.name) for size in sizes}
        body = Evaluate(ret(substitute(value, params)))
        kernel = PrimFunc(tuple(params.values()), body, value.dtype)
        kernel = kernel.with_attr("tir.is_host_func", True)
        callee = self.builder.add_func(kernel, "compute_symbolic_expr")
        return rx.Call(callee, tuple(map(rx.PrimValue, sizes)), span=span)

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        seq = super().sequence(seq)
        new: list[rx.Binding] = []
        body = self._computed(seq.body, new) if self.is_free else seq.body
        if not new:
            return seq
        return rebuild(seq, blocks=(*seq.blocks, rx.BindingBlock(tuple(new))), body=body)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value = binding.value
        if not self.is_free or isinstance(block, rx.DataflowBlock):
            return None
        new: list[rx.Binding] = []
        is_bound = isinstance(binding, rx.VarBinding)
        if isinstance(value, rx.PrimValue) and _is_compound(value) and is_bound:
            value = self._call(value.value, value.span)
        elif isinstance(value, (rx.Call, rx.Tuple)):
            value = self._computed(value, new)
        if not isinstance(binding, rx.VarBinding):
            return [*new, replace(binding, value=value)] if new else None
        var = binding.var
        if value.struct_info != var.struct_info:
            var = self._derived(var)
        is_same = value is binding.value and var is binding.var
        return None if is_same else [*new, rx.VarBinding(var, value, binding.span)]

    def _derived(self, var: rx.Var) -> rx.Var:
        """The variable with struct info that is derived, if that so far has a computed value."""
        nodes = () if var.struct_info is None else walk(var.struct_info)
        if not any(isinstance(n, rx.PrimStructInfo) and n.value is not None for n in nodes):
            return var
        return self.rederived(var)

    def _computed(self, expr: rx.Expr, new: list[rx.Binding]) -> rx.Expr:
        """An expression over the results of kernels, which are bound in `new`."""
        match expr:
            case rx.PrimValue() if _is_compound(expr):
                var = rx.Var("value", span=expr.span)
                new.append(rx.VarBinding(var, self._call(expr.value, expr.span), expr.span))
                return var
            case rx.Tuple(fields=fields):
                after = self._all(fields, new)
                return expr if after is fields else rebuild(expr, fields=after)
            case rx.Call(args=args):
                after = self._all(args, new)
                return expr if after is args else rebuild(expr, args=after)
            case _:
                return expr

    def _all(self, exprs: tuple[rx.Expr, ...], new: list[rx.Binding]) -> tuple[rx.Expr, ...]:
        count = len(new)
        after = tuple(
            self._computed(e, new) if isinstance(e, (rx.PrimValue, rx.Tuple)) else e for e in exprs
        )
        return exprs if len(new) == count else after


def _is_compound(value: rx.PrimValue) -> bool:
    return not isinstance(value.value, (tir.IntImm, tir.FloatImm, tir.Var))
