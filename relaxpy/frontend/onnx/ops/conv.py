"""Convolutions, transposed and deformable ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.ops.movement import is_size
from relaxpy.frontend.onnx.ops.padding import padded
from relaxpy.frontend.onnx.registry import converter
from relaxpy.frontend.shared.tensors import Size, product, rank_of, reshaped, shape_of, sizes_known
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.frontend.shared.windows import LAYOUTS, Windows, at_least, simple, spatial, whole
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.interpolation import double
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.prim_expr import PrimExpr

_CONVOLUTIONS = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}
_TRANSPOSED = {1: R.nn.conv1d_transpose, 2: R.nn.conv2d_transpose, 3: R.nn.conv3d_transpose}


def with_bias(y: Expr, bias: Expr | None) -> Expr:
    """The result plus a number for each channel."""
    if bias is None:
        return y
    return R.add(y, reshaped(bias, (1, shape_of(bias)[0], *[1] * (rank_of(y) - 2))))


def convolved(
    cx: Context, x: Expr, w: Expr, windows: Windows, group: int, out_dtype: str | None = None
) -> Expr:
    """The convolution; padding that depends on sizes is added before."""
    count = spatial(x)
    if not windows.is_fixed:
        x, windows = windows.padded(cx, x, 0)
    layout = LAYOUTS[count]
    result: Expr = _CONVOLUTIONS[count](
        x,
        w,
        windows.strides,
        windows.pads,
        windows.dilations,
        group,
        layout,
        layout.replace("NC", "OI"),
        out_dtype=out_dtype,
    )
    return result


@converter("Conv")
def conv(
    cx: Context,
    x: Expr,
    w: Expr,
    b: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    kernel = kernel_shape or sizes_known_behind(w)
    windows = Windows.of(x, kernel, strides, dilations, pads, auto_pad)
    return with_bias(cx.emit(convolved(cx, x, w, windows, group)), b)


def sizes_known_behind(w: Expr) -> list[int]:
    """The sizes of a filter along its spatial axes, which are numbers.

    Errors:
        UnsupportedError: one is symbolic.
    """
    sizes = [size for size in shape_of(w)[2:] if isinstance(size, int)]
    if len(sizes) != rank_of(w) - 2:
        raise UnsupportedError("the sizes of the filter are symbolic")
    return sizes


@converter("ConvTranspose")
def conv_transpose(
    cx: Context,
    x: Expr,
    w: Expr,
    b: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[Size] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    count = spatial(x)
    kernel = kernel_shape or sizes_known_behind(w)
    explicit = auto_pad if auto_pad in ("NOTSET", "VALID") else "NOTSET"
    windows = Windows.of(x, kernel, strides, dilations, pads, explicit)
    before, after = list(windows.before), list(windows.after)
    for k in range(count):
        more = output_padding[k] if output_padding else 0
        step = windows.strides[k]
        wanted: Size | None = None
        if output_shape:
            wanted = list(output_shape)[-count:][k]
        elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            wanted = simple(windows.sizes[k] * step)
        if wanted is None:
            after[k] = simple(after[k] - more)
            continue
        full = (windows.sizes[k] - 1) * step + windows.span(k)
        total = at_least(simple(full + more - wanted), 0)
        half = simple(total // 2)
        before[k] = half if auto_pad == "SAME_UPPER" else simple(total - half)
        after[k] = simple(full - wanted - before[k])
    removed = [*before, *after]
    known = all(isinstance(width, int) for width in removed)
    crops = [max(whole(width), 0) for width in removed] if known else [0] * 2 * count
    y: Expr = _TRANSPOSED[count](x, w, windows.strides, crops, 0, windows.dilations, group)
    added = [simple(crop - width) for crop, width in zip(crops, removed, strict=True)]
    if not all(is_size(width, 0) for width in added):
        widths = [0, 0, *added[:count], 0, 0, *added[count:]]
        y = padded(cx, cx.emit(y), widths, "constant", None)
    return with_bias(cx.emit(y), b)


@converter("DeformConv")
def deform_conv(
    cx: Context,
    x: Expr,
    w: Expr,
    offset: Expr,
    b: Expr | None = None,
    mask: Expr | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    kernel = kernel_shape or sizes_known_behind(w)
    windows = Windows.of(x, kernel, strides, dilations, pads, "NOTSET")
    operands = [x, offset, *([mask] if mask is not None else [])]
    columns = cx.te(
        lambda *tensors: _columns(windows, offset_group, *tensors), *operands, name="deform"
    )
    batch, channels, members, *out = shape_of(columns)
    outputs, _ = sizes_known(w)[:2]
    depth = product([channels, members]) // group
    matrix = reshaped(w, (group, outputs // group, depth))
    y = R.matmul(matrix, reshaped(columns, (batch, group, depth, product(out))))
    return with_bias(cx.emit(reshaped(cx.emit(y), (batch, outputs, *out))), b)


def _columns(windows: Windows, groups: int, x: Any, offset: Any, mask: Any = None) -> Any:
    """The elements under each member of each window, moved by the offsets and interpolated."""
    count, members = windows.count, math.prod(windows.kernel)
    if count > 3:
        raise UnsupportedError(f"{count} axes of space are more than 3")
    channels = x.shape[1]
    zero = ops.const(0, "int64")

    def element(n: PrimExpr, c: PrimExpr, member: PrimExpr, *at: PrimExpr) -> PrimExpr:
        part = ops.floordiv(c * groups, channels) * members + member
        positions = []
        rest = member
        for k in reversed(range(count)):
            index = ops.floormod(rest, ops.const(windows.kernel[k], "int64"))
            rest = ops.floordiv(rest, ops.const(windows.kernel[k], "int64"))
            base = at[k] * windows.strides[k] - windows.before[k] + index * windows.dilations[k]
            positions.append(double(base) + double(offset(n, part * count + k, *at)))
        positions.reverse()
        total: PrimExpr = double(0.0)
        for corner in range(2**count):
            weight, inside, source = double(1.0), [], []
            for k, position in enumerate(positions):
                below = intrin.floor(position)
                high = corner >> k & 1
                weight = weight * (position - below if high else below + double(1.0) - position)
                bounded = ops.maximum(ops.minimum(below, double(2.0**40)), double(-(2.0**40)))
                index = ops.cast_to(bounded, "int64") + high
                inside += [index >= 0, index < x.shape[k + 2]]
                source.append(ops.maximum(ops.minimum(index, x.shape[k + 2] - 1), zero))
            value = double(x(n, c, *source)) * weight
            total = total + tir.Select(ops.all_of(*inside), value, double(0.0))
        if mask is not None:
            total = total * double(mask(n, part, *at))
        return ops.cast_to(total, x.dtype)

    shape = [*x.shape[:2], ops.const(members, "int64"), *offset.shape[2:]]
    return computed(shape, element, "deform_columns")
