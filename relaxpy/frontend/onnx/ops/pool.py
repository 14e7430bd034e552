"""Pools: maxima, means and norms of windows, of whole images and of regions, and their inverse."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.registry import Value, converter
from relaxpy.frontend.shared.pooling import (
    MAXIMA,
    MEANS,
    is_same,
    lowest,
    max_indices,
    mean_pooled,
    pooled,
)
from relaxpy.frontend.shared.tensors import (
    Size,
    dtype_of,
    product,
    rank_of,
    reshaped,
    scalar,
    shape_of,
)
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.frontend.shared.windows import Windows, simple
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.interpolation import double
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_expr import PrimExpr


@converter("MaxPool")
def max_pool(
    cx: Context,
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> list[Expr]:
    windows = Windows.of(x, kernel_shape, strides, dilations, pads, auto_pad)
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
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    windows = Windows.of(x, kernel_shape, strides, dilations, pads, auto_pad)
    return mean_pooled(cx, x, windows, ceil=bool(ceil_mode), inside=bool(count_include_pad))


def _power(x: Expr, p: float) -> Expr:
    """The absolute values to a power."""
    if p == 1:
        return R.abs(x)
    return R.square(x) if p == 2 else R.power(R.abs(x), scalar(p, x))


def _root(x: Expr, p: float) -> Expr:
    if p == 1:
        return x
    return R.sqrt(x) if p == 2 else R.power(x, scalar(1 / p, x))


@converter("LpPool")
def lp_pool(
    cx: Context,
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: float = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    windows = Windows.of(x, kernel_shape, strides, dilations, pads, auto_pad)
    powers, whole = windows.padded(cx, cx.emit(_power(x, p)), 0, ceil=bool(ceil_mode))
    means = pooled(cx, MEANS, powers, whole, ceil=False, inside=True)
    return _root(R.multiply(means, scalar(math.prod(whole.kernel), x)), p)


def _behind(x: Expr) -> list[int]:
    return list(range(2, rank_of(x)))


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
    windows = Windows.of(x, kernel_shape, strides, None, pads, "NOTSET")
    least: list[Size] = [
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
    shape = [*shape_of(x)[:2], *least]
    count = product(shape)
    empty = R.zeros((count,), dtype_of(x))
    flat = R.scatter_elements(empty, R.reshape(indices, (-1,)), R.reshape(x, (-1,)), 0)
    y: Expr = reshaped(flat, tuple(shape))
    if output_shape is None:
        return y
    wanted = cx.sizes(output_shape, "size")
    before = [0] * len(shape)
    after = [
        0 if is_same(new, old) else simple(new - old)
        for new, old in zip(wanted, shape, strict=True)
    ]
    padded = cx.te(lambda t: pad(t, before, after), cx.emit(y), name="pad")
    return cx.match(padded, wanted, dtype_of(x))


@converter("MaxRoiPool")
def max_roi_pool(
    cx: Context, x: Expr, rois: Expr, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Expr:
    return cx.te(
        lambda data, regions: _region_maxima(data, regions, pooled_shape, spatial_scale),
        x,
        rois,
        name="max_roi_pool",
    )


def _region_maxima(x: Tensor, rois: Tensor, pooled: Sequence[int], scale: float) -> Tensor:
    """The maxima of the parts of regions, whose corners are whole; 0 where a part is empty."""

    def bounds(r: PrimExpr, part: PrimExpr, axis: int) -> tuple[PrimExpr, PrimExpr]:
        low, high = (
            intrin.floor(double(rois(r, ops.const(k, "int64"))) * double(scale) + double(0.5))
            for k in (2 - axis, 4 - axis)
        )
        width = ops.maximum(high - low + double(1.0), double(1.0)) / double(float(pooled[axis]))
        begin = intrin.floor(double(part) * width) + low
        end = intrin.ceil((double(part) + double(1.0)) * width) + low
        return ops.cast_to(begin, "int64"), ops.cast_to(end, "int64")

    def table(axis: int, side: int) -> Tensor:
        shape = [rois.shape[0], ops.const(pooled[axis], "int64")]
        return computed(shape, lambda r, part: bounds(r, part, axis)[side], "bound")

    tables = [[table(axis, side) for side in (0, 1)] for axis in (0, 1)]

    def element(r: PrimExpr, c: PrimExpr, ph: PrimExpr, pw: PrimExpr) -> PrimExpr:
        h = te.reduce_axis((ops.const(0, "int64"), x.shape[2]), "h")
        w = te.reduce_axis((ops.const(0, "int64"), x.shape[3]), "w")
        inside = []
        for axis, var, part in ((0, h.var, ph), (1, w.var, pw)):
            begin, end = tables[axis]
            inside += [var >= begin(r, part), var < end(r, part)]
        n = ops.cast_to(rois(r, ops.const(0, "int64")), "int64")
        value = x(n, c, h.var, w.var)
        lowest = ops.const(-math.inf, x.dtype)
        return reduce.max(tir.Select(ops.all_of(*inside), value, lowest), axis=[h, w])

    shape = [rois.shape[0], x.shape[1], *(ops.const(p, "int64") for p in pooled)]
    maxima = computed(shape, element, "roi_max")
    zero, lowest = ops.const(0, x.dtype), ops.const(-math.inf, x.dtype)

    def filled(*index: PrimExpr) -> PrimExpr:
        value = maxima(*index)
        return tir.Select(ops.compare(tir.EQ, value, lowest), zero, value)

    return computed(shape, filled, "roi_filled")


@converter("RoiAlign")
def roi_align_10(
    cx: Context,
    x: Expr,
    rois: Expr,
    batch_indices: Expr,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Expr:
    return roi_align(
        cx,
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


@converter("RoiAlign", since=16)
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
    aligned = coordinate_transformation_mode == "half_pixel"
    counts = (output_height, output_width)

    def kernel(data: Tensor, regions: Tensor, batches: Tensor) -> Tensor:
        options = (sampling_ratio, spatial_scale, aligned, mode == "max")
        return _aligned(data, regions, batches, counts, *options)

    return cx.te(kernel, x, rois, batch_indices, name="roi_align")


def _aligned(
    x: Tensor,
    rois: Tensor,
    batches: Tensor,
    counts: Sequence[int],
    ratio: int,
    scale: float,
    aligned: bool,
    greatest: bool,
) -> Tensor:
    """The mean or the greatest term of interpolated samples of the parts of regions."""
    offset = double(0.5 if aligned else 0.0)

    def corner(r: PrimExpr, k: int) -> PrimExpr:
        return double(rois(r, ops.const(k, "int64"))) * double(scale) - offset

    def along(r: PrimExpr, axis: int) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """The start of a region, the size of a part, and the number of samples in it."""
        low, high = corner(r, 1 - axis), corner(r, 3 - axis)
        length = high - low if aligned else ops.maximum(high - low, double(1.0))
        part = length / double(float(counts[axis]))
        samples = double(float(ratio)) if ratio > 0 else intrin.ceil(part)
        return low, part, samples

    def taps(
        r: PrimExpr, part: PrimExpr, sample: PrimExpr, axis: int
    ) -> tuple[PrimExpr, list[tuple[PrimExpr, PrimExpr]]]:
        """Whether a sample is in the image, and the two elements beside it with weights."""
        low, width, samples = along(r, axis)
        last = double(x.shape[axis + 2] - 1)
        at = low + double(part) * width + (double(sample) + double(0.5)) * width / samples
        inside = ops.all_of(at >= double(-1.0), at <= last + double(1.0))
        clamped = ops.maximum(ops.minimum(at, last), double(0.0))
        below = intrin.floor(clamped)
        above = ops.minimum(below + double(1.0), last)
        fraction = clamped - below
        return inside, [(below, double(1.0) - fraction), (above, fraction)]

    def element(r: PrimExpr, c: PrimExpr, ph: PrimExpr, pw: PrimExpr) -> PrimExpr:
        zero = ops.const(0, "int64")
        axes = []
        for axis in (0, 1):
            # At most as many samples as the image has elements, if their number is not given.
            most = ops.const(ratio, "int64") if ratio > 0 else x.shape[axis + 2] + 1
            axes.append(te.reduce_axis((zero, most), "s"))
        inside, sides = [], []
        for axis, part in ((0, ph), (1, pw)):
            valid, pairs = taps(r, part, axes[axis].var, axis)
            inside += [valid, double(axes[axis].var) < along(r, axis)[2]]
            sides.append(pairs)
        n = ops.cast_to(batches(r), "int64")
        terms = [
            double(x(n, c, ops.cast_to(h, "int64"), ops.cast_to(w, "int64"))) * weight_h * weight_w
            for h, weight_h in sides[0]
            for w, weight_w in sides[1]
        ]
        if greatest:
            most_of = terms[0]
            for term in terms[1:]:
                most_of = ops.maximum(most_of, term)
            counted = ops.all_of(inside[1], inside[3])
            here = tir.Select(ops.all_of(*inside), most_of, double(0.0))
            return reduce.max(tir.Select(counted, here, double(-math.inf)), axis=axes)
        total = terms[0] + terms[1] + terms[2] + terms[3]
        return reduce.sum(tir.Select(ops.all_of(*inside), total, double(0.0)), axis=axes)

    shape = [rois.shape[0], x.shape[1], *(ops.const(n, "int64") for n in counts)]
    reduced = computed(shape, element, "roi_samples")

    def finished(r: PrimExpr, *index: PrimExpr) -> PrimExpr:
        value: PrimExpr = reduced(r, *index)
        if not greatest:
            value = value / ops.maximum(along(r, 0)[2] * along(r, 1)[2], double(1.0))
        return ops.cast_to(value, x.dtype)

    return computed(shape, finished, "roi_align")
