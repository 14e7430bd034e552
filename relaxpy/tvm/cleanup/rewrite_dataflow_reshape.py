"""RewriteDataflowReshape: kernels that only reshape become reshapes again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typing_extensions import override

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.op_pattern import has_reshape_pattern
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass


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
