"""Quantisation: integers with a scale and a zero point for a tensor, an axis, or blocks of one."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
from typing_extensions import Unpack

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr
from relaxpy.plugins.importing.tensors import (
    dtype_of,
    is_float,
    normal_axis,
    rank_of,
    reshaped,
    scalar,
    shape_of,
    wide_dtype,
)
from relaxpy.plugins.importing.windows import FilterAttributes, WindowAttributes, Windows
from relaxpy.plugins.onnx.context import Context, converter
from relaxpy.plugins.onnx.ops.conv import convolved
from relaxpy.plugins.onnx.view import NARROW, code_of, dtype_of as dtype_of_code


def _integer_range(code: int) -> tuple[int, int]:
    """The minimum and maximum of an integer element type of ONNX."""
    dtype = dtype_of_code(code)
    bits = NARROW[code][0] if code in NARROW else np.dtype(dtype).itemsize * 8
    if dtype.startswith("u"):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _parameter(cx: Context, p: Expr, x: Expr, axis: int, block: int) -> Expr:
    """A scale or zero point so that it broadcasts to `x`."""
    sizes = shape_of(p)
    if not sizes or (sizes == [1] and not block):
        return R.reshape(p, ()) if sizes else p
    rank = rank_of(x)
    place = normal_axis(axis, rank)
    if block:
        whole = shape_of(x)[place]
        repeated = cx.emit(R.repeat(p, block, place))
        if isinstance(whole, int) and shape_of(repeated)[place] == whole:
            return repeated
        return R.strided_slice(repeated, [place], [0], [whole])
    if len(sizes) != 1:
        return p
    return reshaped(p, [sizes[0] if k == place else 1 for k in range(rank)])


def quantized(
    cx: Context, x: Expr, scale: Expr, zero: Expr | None, code: int, saturate: int, wide: str
) -> Expr:
    """x / scale + zero, rounded to the nearest number of an element type of ONNX."""
    value = R.astype(x, wide) / R.astype(scale, wide)
    return _rounded(value, zero, code, saturate, wide)


def _rounded(value: Expr, zero: Expr | None, code: int, saturate: int, wide: str) -> Expr:
    """value + zero, rounded to the nearest number of an element type of ONNX."""
    dtype = dtype_of_code(code)
    if "int" in dtype:
        value = R.round(value)
        if zero is not None:
            value = value + R.astype(zero, wide)
        low, high = _integer_range(code)
        return R.astype(R.clip(value, low, high), dtype)
    if zero is not None:
        value = value + R.astype(zero, wide)
    if saturate or "float4" in dtype:
        limit = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
        value = R.clip(value, -limit, limit)
    return R.astype(value, dtype)


def _wide(*tensors: Expr) -> str:
    return "float64" if any(dtype_of(t) == "float64" for t in tensors) else "float32"


@converter("QuantizeLinear")
def quantize_linear(
    cx: Context,
    x: Expr,
    y_scale: Expr,
    y_zero_point: Expr | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Expr:
    code = output_dtype or code_of("uint8")
    if y_zero_point is not None:
        code = cx.element_type(y_zero_point)
    scale = _parameter(cx, y_scale, x, axis, block_size)
    zero = None if y_zero_point is None else _parameter(cx, y_zero_point, x, axis, block_size)
    wide = dtype_of_code(precision) if precision else _wide(x)
    return cx.of_element_type(quantized(cx, x, scale, zero, code, saturate, wide), code)


@converter("DequantizeLinear")
def dequantize_linear(
    cx: Context,
    x: Expr,
    x_scale: Expr,
    x_zero_point: Expr | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Expr:
    dtype = dtype_of_code(output_dtype) if output_dtype else dtype_of(x_scale)
    scale = _parameter(cx, x_scale, x, axis, block_size)
    zero = None if x_zero_point is None else _parameter(cx, x_zero_point, x, axis, block_size)
    return dequantized(x, scale, zero, dtype)


def dequantized(x: Expr, scale: Expr, zero: Expr | None, dtype: str) -> Expr:
    """(x - zero) * scale, computed in float32 at least."""
    wide = wide_dtype(dtype)
    value = x
    if zero is not None:
        exact = wide if is_float(x) else "int32"
        value = R.astype(x, exact) - R.astype(zero, exact)
    product = R.astype(value, wide) * R.astype(scale, wide)
    return R.astype(product, dtype) if dtype != wide else product


def _shifted(x: Expr, zero: Expr | None, per_row: bool) -> Expr:
    """x - zero as int32; a vector of zero points is for the rows, or else the columns."""
    whole = R.astype(x, "int32")
    if zero is None:
        return whole
    point = R.astype(zero, "int32")
    sizes = shape_of(zero)
    if sizes == [1]:
        point = R.reshape(point, ())
    elif len(sizes) == 1 and per_row:
        point = R.expand_dims(point, -1)
    return whole - point


@converter("MatMulInteger")
def matmul_integer(
    cx: Context,
    A: Expr,
    B: Expr,
    a_zero_point: Expr | None = None,
    b_zero_point: Expr | None = None,
) -> Expr:
    left = _shifted(A, a_zero_point, per_row=True)
    return R.matmul(left, _shifted(B, b_zero_point, per_row=False), "int32")


def _convolved(
    cx: Context,
    x: Expr,
    w: Expr,
    x_zero: Expr | None,
    w_zero: Expr | None,
    *,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **spans: Unpack[WindowAttributes],
) -> Expr:
    """The convolution of integers without their zero points, in int32."""
    data = cx.emit(_shifted(x, x_zero, per_row=False))
    filters = R.astype(w, "int32")
    if w_zero is not None:
        filters = filters - R.astype(_channels(w_zero, rank_of(w)), "int32")
    windows = Windows.of(data, kernel_shape or shape_of(w)[2:], **spans)
    return cx.emit(convolved(cx, data, cx.emit(filters), windows, group, "int32"))


def _channels(p: Expr, axes: int) -> Expr:
    """A number, or one for each channel, as a tensor of `axes` axes that has channels first."""
    if shape_of(p) in ([], [1]):
        return R.reshape(p, ())
    return R.reshape(p, (-1, *[1] * (axes - 1)))


@converter("ConvInteger")
def conv_integer(
    cx: Context,
    x: Expr,
    w: Expr,
    x_zero_point: Expr | None = None,
    w_zero_point: Expr | None = None,
    **filters: Unpack[FilterAttributes],
) -> Expr:
    return _convolved(cx, x, w, x_zero_point, w_zero_point, **filters)


def _requantized(total: Expr, scale: Expr, y_scale: Expr, y_zero: Expr) -> Expr:
    """Sums of products in int32, times the product of their scales, as quantised numbers.

    The three scales are one factor, as in ONNX Runtime and the reference of ONNX: with another
    rounding, sums halfway between two numbers become the other one.
    """
    step = R.reshape(y_scale, ()) if rank_of(y_scale) else y_scale
    factor = scale / R.astype(step, "float32")
    value = R.astype(total, "float32") * factor
    return _rounded(value, _one(y_zero), code_of(dtype_of(y_zero)), 1, "float32")


def _one(p: Expr) -> Expr:
    return R.reshape(p, ()) if rank_of(p) and shape_of(p) == [1] else p


@converter("QLinearMatMul")
def qlinear_matmul(
    cx: Context,
    a: Expr,
    a_scale: Expr,
    a_zero_point: Expr,
    b: Expr,
    b_scale: Expr,
    b_zero_point: Expr,
    y_scale: Expr,
    y_zero_point: Expr,
) -> Expr:
    left = _shifted(a, a_zero_point, per_row=True)
    total = R.matmul(left, _shifted(b, b_zero_point, per_row=False), "int32")
    rows = R.astype(_one(a_scale), "float32")
    if len(shape_of(a_scale)) == 1 and shape_of(a_scale) != [1]:
        rows = R.expand_dims(rows, -1)
    scale = rows * R.astype(_one(b_scale), "float32")
    return _requantized(total, scale, y_scale, y_zero_point)


@converter("QLinearConv")
def qlinear_conv(
    cx: Context,
    x: Expr,
    x_scale: Expr,
    x_zero_point: Expr,
    w: Expr,
    w_scale: Expr,
    w_zero_point: Expr,
    y_scale: Expr,
    y_zero_point: Expr,
    B: Expr | None = None,
    **filters: Unpack[FilterAttributes],
) -> Expr:
    total = _convolved(cx, x, w, x_zero_point, w_zero_point, **filters)
    axes = rank_of(w) - 1
    if B is not None:
        total = total + _channels(B, axes)
    scale = _one(x_scale) * _channels(w_scale, axes)
    return _requantized(total, scale, y_scale, y_zero_point)


@converter("DynamicQuantizeLinear")
def dynamic_quantize_linear(cx: Context, x: Expr) -> list[Expr]:
    low = R.minimum(R.min(x), scalar(0, x))
    high = R.maximum(R.max(x), scalar(0, x))
    width = cx.emit(high - low)
    scale = cx.emit(width / 255)
    # Zeros only: the formula of ONNX divides 0 by 0; ONNX's reference and ONNX Runtime scale by 1.
    scale = cx.emit(R.where(R.equal(scale, scalar(0, x)), scalar(1, x), scale))
    exact = -low / scale
    zero = cx.emit(R.astype(R.clip(R.round(exact), 0, 255), "uint8"))
    y = quantized(cx, x, scale, zero, code_of("uint8"), 1, "float32")
    return [y, scale, zero]
