"""Quantisation of tensors to integers or narrow floats, and back."""

from __future__ import annotations

from relaxpy.ir.core.dtype import FLOAT32, INT32, DataType
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.interpolation import sum_dtype
from relaxpy.ir.te.topi.shapes import normal_axis
from relaxpy.ir.tir import intrin, ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.ops import is_const

__all__ = ["dequantize", "quantize"]


def _parameter(
    x: Tensor | PrimExpr, index: tuple[PrimExpr, ...], axis: int, wide: DataType
) -> PrimExpr:
    """The value of a parameter for the element at an index of the data."""
    if isinstance(x, PrimExpr):
        return ops.cast_to(x, wide)
    if x.ndim == 0:
        return ops.cast_to(x(), wide)
    if is_const(x.shape[0], 1):
        return ops.cast_to(x(ops.const(0, x.shape[0].dtype)), wide)
    return ops.cast_to(x(index[normal_axis(axis, len(index))]), wide)


def _clipped(value: PrimExpr, dtype: DataType) -> PrimExpr:
    """The finite number of `dtype` that is nearest to a float."""
    low, high = ops.int_range(dtype) if dtype.is_int else ops.float_range(dtype)
    bounded = ops.minimum(value, ops.const(float(high), value.dtype))
    return ops.cast_to(ops.maximum(bounded, ops.const(float(low), value.dtype)), dtype)


def quantize(
    data: Tensor, scale: Tensor | PrimExpr, zero_point: Tensor | PrimExpr, axis: int, out_dtype: str
) -> Tensor:
    """round(data / scale) + zero_point, or the nearest number of `out_dtype`.

    Only integers are rounded, halves to even. A parameter is a scalar, or has one number for each
    index along the axis.
    """
    dtype = DataType(out_dtype)
    wide = sum_dtype(data.dtype, scale.dtype, zero_point.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        value = ops.cast_to(data(*index), wide) / _parameter(scale, index, axis, wide)
        rounded = intrin.round(value) if dtype.is_int else value
        return _clipped(ops.add(rounded, _parameter(zero_point, index, axis, wide)), dtype)

    return computed(data.shape, element, "quantized")


def dequantize(
    data: Tensor, scale: Tensor | PrimExpr, zero_point: Tensor | PrimExpr, axis: int, out_dtype: str
) -> Tensor:
    """(data - zero_point) * scale; the result is finite if `out_dtype` is narrower than float32.

    A parameter is a scalar, or has one number for each index along the axis.
    """
    dtype = DataType(out_dtype)
    wide = sum_dtype(data.dtype, scale.dtype, zero_point.dtype, dtype)

    is_narrow = all(d.is_int and d.bits <= 16 for d in (data.dtype, zero_point.dtype))
    exact = INT32 if is_narrow else wide

    def element(*index: PrimExpr) -> PrimExpr:
        zero = _parameter(zero_point, index, axis, exact)
        difference = ops.cast_to(ops.sub(ops.cast_to(data(*index), exact), zero), wide)
        value = ops.mul(difference, _parameter(scale, index, axis, wide))
        return _clipped(value, dtype) if dtype.bits < FLOAT32.bits else ops.cast_to(value, dtype)

    return computed(data.shape, element, "dequantized")
