"""FuseTransposeMatmul: a matmul with a transposed matrix becomes one kernel."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.op.definition.rules import te_kernel, tensor_sinfo
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.algebra.matmuls import is_transposition, shape_of
from relaxpy.ir.relax.transform.legalize import is_known
from relaxpy.ir.relax.transform.rewrite_pass import FusionPass
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import dataclass, replace

_NAME = "NT_matmul"


@dataclass(frozen=True)
class FuseTransposeMatmul(FusionPass):
    """Computes `x @ permute_dims(w)` of a dataflow block by a kernel that reads `w` in its order.

    It is applied before LegalizeOps, to matmuls of tensors of known shape and datatype. The
    transposed matrix is removed if nothing else uses it.
    """

    @override
    def rewriter(self, builder: BlockBuilder) -> BindingRewriter:
        return _Fusing(builder)


class _Fusing(BindingRewriter):
    """Replaces the matmuls of one function."""

    def __init__(self, builder: BlockBuilder) -> None:
        super().__init__()
        self._builder = builder

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = _call_of("relax.matmul", binding.value)
        if call is None or not isinstance(block, rx.DataflowBlock):
            return None
        x, second = call.args
        turned = _call_of("relax.permute_dims", self.value_of(second))
        if turned is None or not isinstance(second, rx.DataflowVar) or not is_transposition(turned):
            return None
        [w] = turned.args
        sinfo = tensor_sinfo(call)
        if sinfo is None or not all(map(is_known, map(self._builder.struct_info_of, (x, w, call)))):
            return None
        if not prove_equal(_last_size(x), _last_size(w)):
            return None
        wide = call.attrs["out_dtype"]
        kernel = te_kernel(
            self._builder, _product, _NAME, x, w, out_dtype=wide, dtype=str(sinfo.dtype)
        )
        return replace(kernel, span=call.span)


def _last_size(tensor: rx.Expr) -> PrimExpr:
    shape = shape_of(tensor)
    assert shape is not None
    return shape[-1]


def _call_of(name: str, value: rx.Expr | None) -> rx.Call | None:
    """The value if it is a call of an operator."""
    return value if rx.is_call_of(value, name) else None


def _product(x: Tensor, w: Tensor, out_dtype: str | None, dtype: str) -> Tensor:
    product = topi.matmul(x, w, transp_b=True, out_dtype=out_dtype, name=_NAME)
    return as_dtype(product, DataType(dtype))
