"""Operators that were experimental until opset 9, in files of CoreML's and Caffe2's converters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.tensors import Size, dtype_of, scalar, shape_of
from relaxpy.plugins.importing.windows import simple
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.registry import Value, converter
from relaxpy.plugins.onnx.view import dtype_of as dtype_of_code


@converter("ConstantFill")
def constant_fill(
    cx: Context,
    x: Value = None,
    *,
    dtype: int = 1,
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
    shape: Sequence[int] = (),
    value: float = 0.0,
) -> Expr:
    """A tensor of one number in the shape of an operand, or that an operand or an attribute is."""
    sizes = list[Size](shape)
    if x is not None:
        sizes = cx.sizes(x, "size") if input_as_shape else shape_of(cx.tensor(x))
    name = dtype_of_code(dtype)
    return R.full((*sizes, *extra_shape), const(value, name), name)


@converter("Scale")
def scale(cx: Context, x: Expr, *, scale: float = 1.0) -> Expr:
    return R.multiply(x, scalar(scale, x))


@converter("Affine")
def affine(cx: Context, x: Expr, *, alpha: float = 1.0, beta: float = 0.0) -> Expr:
    return R.add(R.multiply(x, scalar(alpha, x)), scalar(beta, x))


@converter("ScaledTanh")
def scaled_tanh(cx: Context, x: Expr, *, alpha: float = 1.0, beta: float = 1.0) -> Expr:
    return R.multiply(R.tanh(R.multiply(x, scalar(beta, x))), scalar(alpha, x))


@converter("ParametricSoftplus")
def parametric_softplus(cx: Context, x: Expr, *, alpha: float = 1.0, beta: float = 1.0) -> Expr:
    return R.multiply(R.nn.softplus(R.multiply(x, scalar(beta, x))), scalar(alpha, x))


@converter("ImageScaler")
def image_scaler(cx: Context, x: Expr, *, bias: Sequence[float], scale: float = 1.0) -> Expr:
    shifts = const(np.array(bias).reshape(1, -1, 1, 1), dtype_of(x))
    return R.add(R.multiply(x, scalar(scale, x)), shifts)


@converter("Crop")
def crop(cx: Context, x: Expr, *, border: Sequence[int], scale: Sequence[int] = ()) -> Expr:
    """The image without borders: left, top, right, bottom; or what is `scale` high and wide."""
    left, top, right, bottom = border
    height, width = shape_of(x, 4)[2:]
    ends = [simple(height - bottom), simple(width - right)]
    if scale:
        ends = [top + scale[0], left + scale[1]]
    return R.strided_slice(x, [2, 3], [top, left], ends)
