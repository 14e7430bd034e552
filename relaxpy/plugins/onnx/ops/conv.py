"""Convolutions, transposed and deformable ones, matrix multiplication, and pools.

Pools are maxima, means and norms of windows, of whole images and of regions, and their inverse.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TypedDict

from typing_extensions import Unpack

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.tir import ops
from relaxpy.plugins.importing import tensors, windows
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import (
    CONVOLUTIONS,
    LAYOUTS,
    MAXIMA,
    MEANS,
    TRANSPOSED,
    WindowAttributes,
    Windows,
    at_least,
    deformed,
    is_same,
    lowest,
    max_indices,
    mean_pooled,
    padded,
    pooled,
    simple,
    spatial,
    whole,
)
from relaxpy.plugins.onnx.context import Context, Value, converter


def with_bias(y: Expr, bias: Expr | None) -> Expr:
    """The result plus a number for each channel."""
    if bias is None:
        return y
    return y + tensors.reshaped(
        bias, (1, tensors.shape_of(bias)[0], *[1] * (tensors.rank_of(y) - 2))
    )


def convolved(
    cx: Context, x: Expr, w: Expr, windows: Windows, group: int, out_dtype: str | None = None
) -> Expr:
    """The convolution; padding that depends on sizes is added before."""
    count = spatial(x)
    if not windows.is_fixed:
        x, windows = windows.padded(cx, x, 0)
    layout = LAYOUTS[count]
    result: Expr = CONVOLUTIONS[count](
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


def kernel_of(w: Expr, kernel_shape: Sequence[int] | None) -> Sequence[tensors.Size]:
    """The sizes of a filter along its spatial axes.

    Errors:
        UnsupportedError: the attribute says others.
    """
    sizes = tensors.shape_of(w)[2:]
    if kernel_shape and any(
        isinstance(size, int) and size != stated
        for size, stated in zip(sizes, kernel_shape, strict=False)
    ):
        raise UnsupportedError(f"kernel_shape is {list(kernel_shape)}, but the filter has {sizes}")
    return kernel_shape or sizes


@converter("Conv")
def conv(
    cx: Context,
    x: Expr,
    w: Expr,
    b: Expr | None = None,
    *,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **spans: Unpack[WindowAttributes],
) -> Expr:
    windows = Windows.of(x, kernel_of(w, kernel_shape), **spans)
    return with_bias(cx.emit(convolved(cx, x, w, windows, group)), b)


def sizes_known_behind(w: Expr) -> list[int]:
    """The sizes of a filter along its spatial axes, which are numbers.

    Errors:
        UnsupportedError: one is symbolic.
    """
    sizes = [size for size in tensors.shape_of(w)[2:] if isinstance(size, int)]
    if len(sizes) != tensors.rank_of(w) - 2:
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
    pads: Sequence[tensors.Size] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    count = spatial(x)
    kernel = kernel_of(w, kernel_shape)
    explicit = auto_pad if auto_pad in ("NOTSET", "VALID") else "NOTSET"
    windows = Windows.of(x, kernel, strides, dilations, pads, explicit)
    for more, *least in zip(output_padding or (), windows.strides, windows.dilations, strict=False):
        if more >= max(least):
            raise UnsupportedError(
                f"output_padding is {more}, expected less than strides or dilations, {least}"
            )
    before, after = list(windows.before), list(windows.after)
    for k in range(count):
        more = output_padding[k] if output_padding else 0
        step = windows.strides[k]
        wanted: tensors.Size | None = None
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
    y: Expr = TRANSPOSED[count](x, w, windows.strides, crops, 0, windows.dilations, group)
    added = [simple(crop - width) for crop, width in zip(crops, removed, strict=True)]
    if not all(tensors.is_size(width, 0) for width in added):
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
    windows = Windows.of(x, kernel, strides, dilations, pads)
    y = deformed(cx, x, w, offset, mask, windows, group, offset_group)
    return with_bias(cx.emit(y), b)


@converter("MatMul")
def matmul(cx: Context, a: Expr, b: Expr) -> Expr:
    return R.matmul(a, b)


@converter("Gemm", ignored=["broadcast"])
def gemm(
    cx: Context,
    a: Expr,
    b: Expr,
    c: Expr | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    left = R.permute_dims(a) if transA else a
    right = R.permute_dims(b) if transB else b
    product = R.matmul(left, right)
    terms = [(product, alpha), *([] if c is None or beta == 0.0 else [(c, beta)])]
    if tensors.is_float(a) or all(factor.is_integer() for _, factor in terms):
        return functools.reduce(R.add, [_scaled(x, factor) for x, factor in terms])
    wide = [_scaled(R.astype(x, "float64"), factor) for x, factor in terms]
    return R.astype(functools.reduce(R.add, wide), tensors.dtype_of(a))


def _scaled(x: Expr, factor: float) -> Expr:
    result: Expr = x if factor == 1.0 else x * tensors.scalar(factor, x)
    return result


@converter("MaxPool")
def max_pool(
    cx: Context,
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    ceil_mode: int = 0,
    storage_order: int = 0,
    **spans: Unpack[WindowAttributes],
) -> list[Expr]:
    windows = Windows.of(x, kernel_shape, **spans)
    data, ceil = x, bool(ceil_mode)
    if not windows.is_fixed:
        data, windows = windows.padded(cx, x, lowest(x))
    y = pooled(cx, MAXIMA, data, windows, ceil=ceil, inside=False)
    if len(cx.node.outputs) < 2:
        return [y]
    if data is not x:
        raise UnsupportedError("indices of windows whose padding depends on symbolic sizes")
    return [y, max_indices(cx, x, windows, ceil=ceil, by_columns=bool(storage_order))]


@converter("AveragePool")
def average_pool(
    cx: Context,
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    **spans: Unpack[WindowAttributes],
) -> Expr:
    windows = Windows.of(x, kernel_shape, **spans)
    return mean_pooled(cx, x, windows, ceil=bool(ceil_mode), inside=bool(count_include_pad))


def _power(x: Expr, p: float) -> Expr:
    """The absolute values to a power."""
    if p == 1:
        return R.abs(x)
    return R.square(x) if p == 2 else R.abs(x) ** tensors.scalar(p, x)


def _root(x: Expr, p: float) -> Expr:
    if p == 1:
        return x
    return R.sqrt(x) if p == 2 else x ** tensors.scalar(1 / p, x)


@converter("LpPool")
def lp_pool(
    cx: Context,
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    ceil_mode: int = 0,
    p: float = 2,
    **spans: Unpack[WindowAttributes],
) -> Expr:
    windows = Windows.of(x, kernel_shape, **spans)
    powers, whole = windows.padded(cx, cx.emit(_power(x, p)), 0, ceil=bool(ceil_mode))
    means = pooled(cx, MEANS, powers, whole, ceil=False, inside=True)
    return _root(means * tensors.scalar(math.prod(whole.kernel), x), p)


def _behind(x: Expr) -> list[int]:
    return list(range(2, tensors.rank_of(x)))


@converter("GlobalAveragePool")
def global_average_pool(cx: Context, x: Expr) -> Expr:
    return R.mean(x, _behind(x), keepdims=True)


@converter("GlobalMaxPool")
def global_max_pool(cx: Context, x: Expr) -> Expr:
    return R.max(x, _behind(x), keepdims=True)


@converter("GlobalLpPool")
def global_lp_pool(cx: Context, x: Expr, *, p: float = 2) -> Expr:
    return _root(R.sum(_power(x, p), _behind(x), keepdims=True), p)


@converter("MaxUnpool")
def max_unpool(
    cx: Context,
    x: Expr,
    indices: Expr,
    output_shape: Value = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    windows = Windows.of(x, kernel_shape, strides, pads=pads)
    least: list[tensors.Size] = [
        simple((size - 1) * step + span - low - high)
        for size, step, span, low, high in zip(
            windows.sizes,
            windows.strides,
            windows.kernel,
            windows.before,
            windows.after,
            strict=True,
        )
    ]
    shape = [*tensors.shape_of(x)[:2], *least]
    count = tensors.product(shape)
    indices = cx.within(indices, "indices", 0, simple(count - 1))

    def kernel(indices: Tensor, values: Tensor) -> Tensor:
        # None of them counts from the end.
        places = computed(indices.shape, lambda i: ops.cast_to(indices(i), "uint64"), "places")
        empty = computed([tensors.as_size(count)], lambda _: ops.const(0, values.dtype), "empty")
        return topi.scatter_elements(empty, places, values)

    pair = (cx.emit(R.reshape(item, (-1,))) for item in (indices, x))
    flat = cx.te(kernel, *pair, name="max_unpool")
    y: Expr = tensors.reshaped(flat, tuple(shape))
    if output_shape is None:
        return y
    wanted = cx.sizes(output_shape, "size", len(shape))
    before = [0] * len(shape)
    after = [
        0 if is_same(new, old) else simple(new - old)
        for new, old in zip(wanted, shape, strict=True)
    ]
    padded = cx.te(lambda t: pad(t, before, after), cx.emit(y), name="pad")
    return cx.match(padded, wanted, tensors.dtype_of(x))


@converter("MaxRoiPool")
def max_roi_pool(
    cx: Context, x: Expr, rois: Expr, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Expr:
    (found,) = windows.maxima(cx, x, rois, spatial_scale, *pooled_shape, places=False)
    return tensors.as_dtype(found, tensors.dtype_of(x))


_MODE = {"mode": ("avg", "max")}
_MODES = _MODE | {"coordinate_transformation_mode": ("half_pixel", "output_half_pixel")}


class _Sampling(TypedDict, total=False):
    """How values of a region are sampled; `roi_align` has the defaults."""

    mode: str
    output_height: int
    output_width: int
    sampling_ratio: int
    spatial_scale: float


@converter("RoiAlign", admitted=_MODE)
def roi_align_10(
    cx: Context, x: Expr, rois: Expr, batch_indices: Expr, **sampling: Unpack[_Sampling]
) -> Expr:
    corners = "output_half_pixel"
    return roi_align(cx, x, rois, batch_indices, coordinate_transformation_mode=corners, **sampling)


@converter("RoiAlign", since=16, admitted=_MODES)
def roi_align(
    cx: Context,
    x: Expr,
    rois: Expr,
    batch_indices: Expr,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Expr:
    shift, least = (0.5, None) if coordinate_transformation_mode == "half_pixel" else (0.0, 1.0)
    numbers = R.expand_dims(tensors.as_dtype(batch_indices, tensors.dtype_of(rois)), 1)
    found = windows.averaged(
        cx,
        x,
        cx.emit(R.concat([numbers, rois], 1)),
        spatial_scale,
        (output_height, output_width),
        sampling_ratio,
        shift=shift,
        least=least,
        greatest="terms" if mode == "max" else "",
    )
    return tensors.as_dtype(found, tensors.dtype_of(x))
