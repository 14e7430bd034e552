"""Pools: maxima, means and norms of windows, of whole images and of regions, and their inverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from typing_extensions import Unpack

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.topi.padding import pad
from relaxpy.plugins.importing import tensors, windows
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import (
    MAXIMA,
    MEANS,
    WindowAttributes,
    Windows,
    is_same,
    lowest,
    max_indices,
    mean_pooled,
    pooled,
    simple,
)
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.registry import Value, converter


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
    return R.square(x) if p == 2 else R.power(R.abs(x), tensors.scalar(p, x))


def _root(x: Expr, p: float) -> Expr:
    if p == 1:
        return x
    return R.sqrt(x) if p == 2 else R.power(x, tensors.scalar(1 / p, x))


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
    return _root(R.multiply(means, tensors.scalar(math.prod(whole.kernel), x)), p)


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
    empty = R.zeros((count,), tensors.dtype_of(x))
    indices = cx.within(indices, "indices", 0, simple(count - 1))
    flat = R.scatter_elements(empty, R.reshape(indices, (-1,)), R.reshape(x, (-1,)), 0)
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
    found, _ = windows.maxima(cx, x, rois, spatial_scale, *pooled_shape)
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
