"""RemoveRedundantReshape: reshapes of reshapes, and those that change nothing.

RewriteDataflowReshape: kernels that only reshape become reshapes again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typing_extensions import override

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Effects, Escapes, computes, may_fail
from relaxpy.ir.relax.analysis.op_pattern import has_reshape_pattern
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, without_unused
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir.prim_func import PrimFunc
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


@dataclass(frozen=True)
class RewriteDataflowReshape(RewritePass):
    """Replaces calls of kernels that only reshape, inside dataflow blocks, by reshapes.

    Outputs of the blocks stay, so that they are new tensors.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        kinds: dict[str, bool] = {}
        return lambda func: _Reshapes(mod.functions_by_name, kinds).expr(func)


class _Reshapes(BindingRewriter):
    """Rewrites bindings; `kinds` caches whether kernels only reshape."""

    def __init__(self, functions: Mapping[str, rx.BaseFunc], kinds: dict[str, bool]) -> None:
        super().__init__()
        self.functions, self.kinds = functions, kinds

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(block, rx.DataflowBlock) or not isinstance(binding.var, rx.DataflowVar):
            return None
        if not rx.is_call_of(call, "relax.call_tir"):
            return None
        kernel, operands = call.args[:2]
        if not isinstance(kernel, rx.GlobalVar) or not isinstance(operands, rx.Tuple):
            return None
        if not operands.fields or not self._reshapes(kernel.name_hint):
            return None
        source, result = operands.fields[0].struct_info, binding.var.struct_info
        if not _is_reshape(source, result):
            return None
        assert isinstance(result, rx.TensorStructInfo)
        assert isinstance(result.shape, rx.ShapeExpr)
        return rx.Call(Op.get("relax.reshape"), (operands.fields[0], result.shape), span=call.span)

    def _reshapes(self, name: str) -> bool:
        if name not in self.kinds:
            func = self.functions.get(name)
            self.kinds[name] = isinstance(func, PrimFunc) and has_reshape_pattern(func)
        return self.kinds[name]


def _is_reshape(source: object, result: object) -> bool:
    """Return whether two tensors are known to have the same datatype and equally many elements."""
    if not isinstance(source, rx.TensorStructInfo) or not isinstance(result, rx.TensorStructInfo):
        return False
    before, after = source.get_shape(), result.get_shape()
    if before is None or after is None or source.dtype.is_void or source.dtype != result.dtype:
        return False
    return (
        isinstance(result.shape, rx.ShapeExpr)
        and prove_equal(product(before), product(after)) is True
    )
