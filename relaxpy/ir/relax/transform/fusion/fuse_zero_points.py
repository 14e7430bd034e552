"""FuseZeroPoints: products of integers read the bytes that they multiply."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from relaxpy.dataclass import dataclass, replace
from relaxpy.ir.core.dtype import INT32
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.rules import same, te_kernel, tensor_sinfo
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.algebra.products import have_same_shape, shape_of
from relaxpy.ir.relax.transform.rewrite_pass import FusionPass
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import broadcast_index, is_const
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr

_BYTE = 8


@dataclass(frozen=True)
class FuseZeroPoints(FusionPass):
    """Computes products of bytes without their zero points from products of the bytes.

    `matmul(astype(a, "int32") - p, astype(b, "int32") - q)` of a dataflow block is
    `matmul(a, b) - p * sum(b - q) - q * sum(a)`, exactly, as integers are modulo a power of two, if
    no zero point depends on the axis of the sum. There may be one or none. The conversions are
    removed if nothing else uses them. It is applied before LegalizeOps.
    """

    @override
    def rewriter(self, builder: BlockBuilder) -> BindingRewriter:
        return _Fusing(builder)


class _Fusing(BindingRewriter):
    """Replaces the products of one function."""

    def __init__(self, builder: BlockBuilder) -> None:
        super().__init__()
        self._builder = builder

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call, sinfo = binding.value, tensor_sinfo(binding.value)
        if not rx.is_call_of(call, "relax.matmul") or not isinstance(block, rx.DataflowBlock):
            return None
        if sinfo is None or sinfo.dtype != INT32:
            return None
        left, right = (self._bytes_of(x, axis) for x, axis in zip(call.args, (-1, -2), strict=True))
        if left is None or right is None:
            return None
        (a, *p), (b, *q) = left, right
        rows, columns = shape_of(a), shape_of(b)
        if rows is None or columns is None or not same(rows[-1], columns[-2]):
            return None
        result: rx.Expr = te_kernel(self._builder, _product, "matmul_of_bytes", a, b)
        for point in p:
            result = R.subtract(result, R.multiply(point, self._sums(-2, b, *q)))
        for point in q:
            result = R.subtract(result, R.multiply(self._sums(-1, a), point))
        assert isinstance(result, rx.Call)
        return replace(result, span=call.span)

    def _sums(self, axis: int, *operands: rx.Expr) -> rx.Expr:
        """The sums of bytes without their zero point."""
        return te_kernel(self._builder, _sums, "sums_of_bytes", axis, *operands)

    def _bytes_of(self, operand: rx.Expr, summed: int) -> Sequence[rx.Expr] | None:
        """The bytes that an operand is computed from, and their zero point, if there is one."""
        value = self.value_of(operand)
        if not rx.is_call_of(value, "relax.subtract"):
            found = self._widened(value)
            return None if found is None else [found]
        [wide, point] = value.args
        found, sizes = self._widened(self.value_of(wide)), shape_of(point)
        if found is None or sizes is None or not have_same_shape(found, operand):
            return None
        if len(sizes) >= -summed and not is_const(sizes[summed], 1):
            return None
        source = self.value_of(point)
        [source] = source.args if rx.is_call_of(source, "relax.astype") else [point]
        is_zero = isinstance(source, rx.Constant) and not source.data.any()
        return [found] if is_zero else [found, point]

    def _widened(self, value: rx.Expr | None) -> rx.Expr | None:
        """The matrices of bytes that are converted to integers of 32 bits."""
        if not rx.is_call_of(value, "relax.astype"):
            return None
        [x] = value.args
        sinfo, wide = tensor_sinfo(x), tensor_sinfo(value)
        if sinfo is None or wide is None or wide.dtype != INT32 or len(shape_of(x) or ()) < 2:
            return None
        is_byte = sinfo.dtype.is_int and sinfo.dtype.bits == _BYTE
        return x if is_byte else None


def _product(a: Tensor, b: Tensor) -> Tensor:
    return topi.matmul(a, b, out_dtype="int32")


def _sums(axis: int, data: Tensor, point: Tensor | None = None) -> Tensor:
    """The sums along an axis, which is kept, of elements without their zero point."""

    def element(*index: PrimExpr) -> PrimExpr:
        value = ops.cast_to(data(*index), INT32)
        if point is None:
            return value
        return ops.sub(value, point(*broadcast_index(point.shape, index, data.shape)))

    return topi.sum(computed(data.shape, element, "shifted"), axis, keepdims=True)
