"""Images: pools, other sizes, torchvision's operators of regions, and which boxes stay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.ops.regions import find_bin, larger, smaller
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.te.tensor import Tensor, compute, reduce_axis
from relaxpy.ir.te.text import T, kernel_text, variable
from relaxpy.ir.te.topi.pooling import adaptive_pool, adaptive_pool1d, adaptive_pool3d
from relaxpy.ir.te.topi.shapes import FILTERS, double
from relaxpy.ir.te.topi.transform import reshape
from relaxpy.ir.tir import intrin, ops, reduce
from relaxpy.ir.tir.expr import EQ, IntImm, Select
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import (
    Size,
    as_size,
    dtype_of,
    kernel,
    number,
    rank_of,
    reshaped,
    shape_of,
    wide_dtype,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import (
    MAXIMA,
    ByAxes,
    Windows,
    added,
    averaged,
    deformed,
    max_indices,
    maxima,
    mean_pooled,
    pooled,
)
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.linear import each
from relaxpy.plugins.torch.ops.movement import to_shape
from relaxpy.plugins.torch.registry import converter
from relaxpy.support.dataclass import dataclass


@converter("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
@converter("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def upsample_nearest(cx: Context, x: Expr, size: Any, *scales: Any) -> Expr:
    _check_scales(cx, x, scales, copies=rank_of(x) == 4)
    return _resized(cx, x, "nearest_neighbor", "asymmetric", "floor")


def _check_scales(cx: Context, x: Expr, scales: Sequence[Any], *, copies: bool = False) -> None:
    """PyTorch samples by the given scales, also where they are not the ratios of the sizes.

    Some operators copy an axis whose size stays.
    """
    given = scales[0] if len(scales) == 1 and isinstance(scales[0], (tuple, list)) else scales
    for old, new, scale in zip(shape_of(x)[2:], cx.result_shape()[2:], given or (), strict=False):
        exact = isinstance(old, int) and isinstance(new, int) and scale and old * scale == new
        exact = exact or (copies and cx.importer.symbols.equal(old, new))
        if scale is not None and not exact and scale != int(scale):
            raise UnsupportedError(f"the scale {scale} of {old} elements that become {new}")


def _resized(cx: Context, x: Expr, method: str, coordinates: str, rounding: str = "") -> Expr:
    count = rank_of(x) - 2
    wanted = cx.result_shape()[2:]
    more = {"rounding_method": rounding} if rounding else {}
    data = x
    if count == 1:
        data, wanted = R.expand_dims(x, 2), [1, *wanted]
    op = R.image.resize3d if count == 3 else R.image.resize2d
    y = op(data, tuple(wanted), method=method, coordinate_transformation_mode=coordinates, **more)
    return R.squeeze(y, [2]) if count == 1 else y


@converter("upsample_linear1d", "upsample_linear1d.vec")
@converter("upsample_bilinear2d", "upsample_bilinear2d.vec")
@converter("upsample_trilinear3d", "upsample_trilinear3d.vec")
def upsample_linear(cx: Context, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    if dtype_of(x) == "uint8" and rank_of(x) == 4:
        return _filtered(cx, x, align_corners, _scales(scales), "linear", widened=False)
    if not align_corners:
        _check_scales(cx, x, scales, copies=True)
    return _resized(cx, x, "linear", "align_corners" if align_corners else "half_pixel")


@converter("upsample_bicubic2d", "upsample_bicubic2d.vec")
def upsample_bicubic(cx: Context, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    if dtype_of(x) == "uint8":
        return _filtered(cx, x, align_corners, _scales(scales), "cubic", widened=False)
    if not align_corners:
        _check_scales(cx, x, scales)
    return _resized(cx, x, "cubic", "align_corners" if align_corners else "half_pixel")


@converter("col2im")
def col2im(
    cx: Context,
    x: Expr,
    image: Sequence[Size],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Expr:
    batched = cx.emit(x if rank_of(x) == 3 else R.expand_dims(x, 0))
    sizes = list(zip(image, kernel, dilation, padding, stride, strict=True))
    windows = [
        (size + 2 * pad - (n - 1) * hole - 1) // step + 1 for size, n, hole, pad, step in sizes
    ]

    def folded(columns: Tensor) -> Tensor:
        batch, depth, _ = columns.shape
        members = map(as_size, kernel)
        parts = [batch, depth // math.prod(kernel), *members, *map(as_size, windows)]
        y = reshape(columns, parts)
        return added(y, [*map(as_size, image)], stride, dilation, padding)

    y = cx.te(folded, batched, name="col2im")
    return y if rank_of(x) == 3 else R.squeeze(y, [0])


@dataclass(frozen=True, slots=True)
class _Filter:
    """The weights along an axis: how much of each old element is in each new one.

    Each new element has a window of `count` old ones; shrinking may widen it. Of unknown sizes it
    has all old ones.
    """

    old: PrimExpr
    new: PrimExpr
    step: PrimExpr
    method: str
    align_corners: bool
    widened: bool

    @classmethod
    def of(
        cls,
        sizes: tuple[Size, Size],
        scale: float | None,
        method: str,
        corners: bool,
        widened: bool,
    ) -> _Filter:
        """That between an old and a new size."""
        old, new = map(as_size, sizes)
        before, after, one = double(old), double(new), double(1.0)
        step = before / after if scale is None else double(1 / scale)
        if corners:
            several = after > one
            step = Select(several, (before - one) / Select(several, after - one, one), double(0.0))
        return cls(old, new, step, method, corners, widened)

    @property
    def reach(self) -> int:
        """The minimum number of elements of a window on one side."""
        return FILTERS[self.method][0]

    @property
    def width(self) -> PrimExpr:
        """The factor by which windows are widened."""
        return ops.maximum(self.step, double(1.0)) if self.widened else double(1.0)

    @property
    def count(self) -> PrimExpr:
        """The elements of a window."""
        width = number(self.width)
        if not isinstance(self.old, IntImm) or not isinstance(width, float):
            return self.old
        # Ends are rounded.
        most = math.floor(2 * self.reach * width + 2.0**-20) + self.widened
        return as_size(min(most, self.old.value))

    @property
    def is_product(self) -> bool:
        """True if each window has all old elements, so that the sums are a matmul."""
        return self.count is self.old

    def centre(self, at: PrimExpr) -> PrimExpr:
        """The position of the new element `at` among the old ones."""
        half = double(0.5)
        if self.widened:
            return self.step * (at + half)
        centre = self.step * at if self.align_corners else self.step * (at + half) - half
        return ops.maximum(centre, double(0.0)) if self.method == "linear" else centre

    def end(self, at: PrimExpr, side: int) -> PrimExpr:
        """The beginning or the end of a window."""
        reach = self.width * double(side * self.reach)
        return intrin.trunc(self.centre(at) + reach + double(0.5))

    def first(self, at: PrimExpr) -> PrimExpr:
        """The first element of a window, with `count` elements from there."""
        zero = as_size(0)
        if self.is_product:
            return zero
        place = double(at)
        begin = self.end(place, -1) if self.widened else self.taps(place)[0]
        return ops.maximum(ops.minimum(ops.cast_to(begin, "int64"), self.old - self.count), zero)

    def taps(self, at: PrimExpr) -> list[PrimExpr]:
        """The elements of a window that is not widened; some may be beyond the edges."""
        below = intrin.floor(self.centre(at))
        return [below + double(n) for n in range(1 - self.reach, self.reach + 1)]

    def weight(self, place: PrimExpr, at: PrimExpr) -> PrimExpr:
        """The weight of the old element at `place` in the new one `at`."""
        zero, centre, filtered = double(0.0), self.centre(at), FILTERS[self.method][1]
        if self.widened:
            inside = ops.all_of(place >= self.end(at, -1), place < self.end(at, 1))
            distance = intrin.abs(place - centre + double(0.5))
            return Select(inside, filtered(distance / self.width, -0.5), zero)
        # Those on the edges stand for those beyond.
        total, last = zero, double(self.old) - double(1.0)
        for source in self.taps(at):
            at_edge = ops.minimum(ops.maximum(source, zero), last)
            weight = filtered(intrin.abs(source - centre), -0.75)
            total = total + Select(ops.compare(EQ, at_edge, place), weight, zero)
        return total

    def weights(self, cx: Context) -> Expr:
        """A column of weights for each new element."""

        def weights() -> Tensor:
            def element(k: PrimExpr, x: PrimExpr) -> PrimExpr:
                return self.weight(double(self.first(x) + k), double(x))

            return compute((self.count, self.new), element)

        found = cx.te(weights, name="weights")
        return cx.emit(found / R.sum(found, [0], True)) if self.widened else found

    def sums(self, cx: Context, data: Expr, weights: Expr, axis: int) -> Expr:
        """The weighted sums of windows along the last axis or the one before."""
        turned = [0, 1, 3, 2]
        if self.is_product:
            order = turned if axis == 2 else [0, 1, 2, 3]
            rows = R.permute_dims(cx.tensor(data, dtype_of(weights)), order)
            return cx.emit(R.permute_dims(R.matmul(rows, weights), order))
        if axis == 3:  # elements of windows are not consecutive in the result: vectors are rows
            rows = cx.emit(R.permute_dims(data, turned))
            return cx.emit(R.permute_dims(self.sums(cx, rows, weights, 2), turned))

        def filtered(data: Tensor, weights: Tensor) -> Tensor:
            first = compute((self.new,), self.first, "first")

            def element(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
                k = reduce_axis((as_size(0), self.count), "k")
                value = ops.cast_to(data(n, c, first(y) + k.var, x), weights.dtype)
                return reduce.sum(value * weights(k.var, y), axis=k)

            return compute((*data.shape[:2], self.new, data.shape[3]), element)

        return cx.te(filtered, data, weights)


def _as_integers(cx: Context, weights: Expr) -> tuple[Expr, Expr]:
    """Weights times the largest power of 2 for which they fit into 16 bits, and its exponent."""
    powers = const(2.0 ** np.arange(1, 23), "float64")
    half = const(0.5, "float64")
    most = R.floor(R.max(weights) * powers + half)
    fits = most < const(2.0**15, "float64")
    digits = cx.emit(R.sum(R.astype(fits, "int32")))
    scaled = weights * const(2.0, "float64") ** R.astype(digits, "float64")
    scaled = cx.emit(scaled)
    return R.astype(R.trunc(scaled + R.sign(scaled) * half), "int32"), digits


def _filtered(
    cx: Context,
    x: Expr,
    align_corners: bool,
    scales: Sequence[float | None],
    method: str,
    *,
    widened: bool,
) -> Expr:
    """The columns and the rows as weighted sums, each rounded where the elements are bytes."""
    y, is_bytes = x, dtype_of(x) == "uint8"
    kind = "int32" if is_bytes else "float32" if "16" in dtype_of(x) else dtype_of(x)
    sizes = list(zip(shape_of(x), cx.result_shape(), strict=True))
    filters = {
        axis: _Filter.of(sizes[axis], scales[axis - 2], method, align_corners, widened)
        for axis in (2, 3)
    }
    # Columns are the ones that are transposed, best while there are few rows; in a matmul rows are.
    less, more = reversed(sizes[3]) if filters[2].is_product else sizes[2]
    is_less = isinstance(less, int) and isinstance(more, int) and less < more
    for axis in (3, 2) if is_bytes or is_less else (2, 3):
        along = filters[axis]
        weights, digits = along.weights(cx), None
        if is_bytes:
            weights, digits = _as_integers(cx, weights)
        y = along.sums(cx, cx.emit(y), cx.emit(cx.tensor(weights, kind)), axis)
        if digits is not None:
            one, zero, top = (const(value, kind) for value in (1, 0, 255))
            half = R.left_shift(one, digits - one)
            y = R.minimum(R.maximum(R.right_shift(y + half, digits), zero), top)
            y = cx.emit(R.astype(y, "uint8"))
    return y


def _scales(scales: Sequence[Any]) -> Sequence[float | None]:
    """The scales of rows and columns, which are one argument of some operators."""
    given = scales[0] if len(scales) == 1 else scales
    return given or (None, None)


@converter("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def upsample_filtered(cx: Context, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    method = "linear" if "linear" in str(cx.node.target) else "cubic"
    return _filtered(cx, x, align_corners, _scales(scales), method, widened=True)


@converter("roi_align", namespace="torchvision")
def roi_align(
    cx: Context,
    x: Expr,
    rois: Expr,
    scale: float,
    rows: Size,
    columns: Size,
    ratio: int,
    aligned: bool,
) -> Expr:
    shift, least = (0.5, None) if aligned else (0.0, 1.0)
    return averaged(cx, x, rois, scale, (rows, columns), ratio, shift=shift, least=least)


def _channels(cx: Context) -> Expr:
    """The index of the input channel for each element of a result."""
    shape = cx.result_shape(1)
    bins = R.arange(0, cx.simplify(shape[1] * shape[2] * shape[3]), 1, "int32")
    return R.broadcast_to(reshaped(bins, [1, *shape[1:]]), tuple(shape))


@converter("ps_roi_align", namespace="torchvision")
def ps_roi_align(
    cx: Context, x: Expr, rois: Expr, scale: float, rows: Size, columns: Size, ratio: int
) -> tuple[Expr, Expr]:
    options: Any = {"shift": 0.5, "least": None, "channels": cx.result_shape(0)[1]}
    return averaged(cx, x, rois, scale, (rows, columns), ratio, **options), _channels(cx)


@converter("roi_pool", namespace="torchvision")
def roi_pool(
    cx: Context, x: Expr, rois: Expr, scale: float, rows: Size, columns: Size
) -> list[Expr]:
    return maxima(cx, x, rois, scale, rows, columns, places=True)


@converter("ps_roi_pool", namespace="torchvision")
def ps_roi_pool(
    cx: Context, x: Expr, rois: Expr, scale: float, rows: Size, columns: Size
) -> tuple[Expr, Expr]:
    dtype = wide_dtype(x)
    image, boxes = (cx.emit(cx.tensor(item, dtype)) for item in (x, rois))
    inputs, outputs = {"x": image, "rois": boxes}, {"out": (cx.result_shape(0), dtype)}
    (found,) = kernel(cx, "ps_roi_pool", outputs, inputs, _means_of_bins, scale=scale)
    return found, _channels(cx)


@kernel_text
def _means_of_bins(x: Any, rois: Any, out: Any, scale: float) -> None:
    rows, columns = T.meta_var(out.shape[2:])
    for r, c, i, j in T.grid(*out.shape):
        down, across = [T.decl_buffer((2,), "int64") for _ in range(2)]
        left, top, right, bottom = T.meta_var([rois[r, k] * scale for k in range(1, 5)])
        find_bin(down, top, bottom, i, rows, x.shape[2], 0)
        find_bin(across, left, right, j, columns, x.shape[3], 0)
        total = T.decl_buffer((1,), x.dtype)
        total[0] = 0.0
        for y in T.serial(down[0], down[1]):
            for z in T.serial(across[0], across[1]):
                channel = T.meta_var((c * rows + i) * columns + j)
                total[0] += x[T.Cast("int64", rois[r, 0]), channel, y, z]
        high = larger(down[1] - down[0], T.int64(0))
        wide = larger(across[1] - across[0], T.int64(0))
        out[r, c, i, j] = total[0] / T.Cast(x.dtype, larger(high * wide, T.int64(1)))


@converter("nms", namespace="torchvision")
def nms(cx: Context, boxes: Expr, scores: Expr, threshold: float) -> Expr:
    """The boxes that overlap no better one by more than the threshold, the best one first."""
    dtype = wide_dtype(boxes)
    corners = cx.emit(cx.tensor(boxes, dtype))
    order = cx.emit(R.argsort(scores, 0, descending=True, dtype="int64"))
    inputs = {"boxes": corners, "order": order}
    outputs: dict[str, tuple[list[Size], str]] = {"kept": (shape_of(boxes)[:1], "int64")}
    outputs["found"] = [1], "int64"
    kept, found = kernel(cx, "nms", outputs, inputs, _suppress, threshold=threshold)
    return R.strided_slice(kept, [0], [0], [cx.number_of(found, "kept")])


@kernel_text
def _suppress(boxes: Any, order: Any, kept: Any, found: Any, threshold: float) -> None:
    found[0] = 0
    for i in T.serial(boxes.shape[0]):
        box, stays = order[i], variable(T.bool(True))
        for j in T.serial(found[0]):
            other = kept[j]
            across, down = [
                smaller(boxes[box, c + 2], boxes[other, c + 2])
                - larger(boxes[box, c], boxes[other, c])
                for c in range(2)
            ]
            joint = larger(across, 0.0) * larger(down, 0.0)
            one, two = [
                (boxes[b, 2] - boxes[b, 0]) * (boxes[b, 3] - boxes[b, 1]) for b in (box, other)
            ]
            if joint / (one + two - joint) > threshold:
                stays[0] = False
        if stays[0]:
            kept[found[0]] = box
            found[0] += 1


@converter("deform_conv2d", namespace="torchvision")
def deform_conv2d(
    cx: Context, x: Expr, weight: Expr, offset: Expr, mask: Expr, bias: Expr, *numbers: Any
) -> Expr:
    stride, pad, dilation = (numbers[k : k + 2] for k in (0, 2, 4))
    groups, moved, is_masked = numbers[6:9]
    dtype = wide_dtype(x)
    data, filters, moves, factors, added = (
        cx.emit(cx.tensor(item, dtype)) for item in (x, weight, offset, mask, bias)
    )
    sizes: Any = shape_of(weight)[2:]
    windows = Windows.of(data, sizes, stride, dilation, [*pad, *pad], "NOTSET")
    weights = factors if is_masked else None
    y = deformed(cx, data, filters, moves, weights, windows, groups, moved)
    return y + reshaped(added, [1, -1, 1, 1])


Ints = int | Sequence[int]


def _spatial(cx: Context) -> int:
    """The number of spatial axes, by the name of the operator."""
    return int(str(cx.node.target).partition("pool")[2][0])


def _batched(x: Expr, count: int) -> Expr:
    """Images with an axis of batches before that of channels."""
    return tensors.reshaped(x, [1, *tensors.shape_of(x)]) if tensors.rank_of(x) == count + 1 else x


def _windows(
    x: Expr, count: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Windows:
    pads = each(padding, count)
    sizes = each(kernel, count)
    strides = each(stride, count) if stride not in ([], ()) else sizes
    return Windows.of(x, sizes, strides, each(dilation, count), [*pads, *pads], "NOTSET")


@converter(
    *("max_pool1d", "max_pool2d", "max_pool3d"),
    *("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"),
)
def max_pool(
    cx: Context,
    x: Expr,
    kernel: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil: bool = False,
) -> Expr | tuple[Expr, Expr]:
    """Max pooling, with indices into each channel if the operator returns them."""
    count = _spatial(cx)
    data = _batched(x, count)
    windows = _windows(data, count, kernel, stride, padding, dilation)
    y = pooled(cx, MAXIMA, data, windows, ceil=ceil, inside=False)
    if "_with_indices" not in str(cx.node.target):
        return to_shape(cx, y, cx.result_shape())
    numbers = R.zeros(tuple(cx.result_shape(1)), "int64")
    if cx.uses(1):
        places = max_indices(cx, data, windows, ceil=ceil, by_columns=False, by_channel=True)
        numbers = to_shape(cx, places, cx.result_shape(1))
    return to_shape(cx, y, cx.result_shape(0)), numbers


@converter("avg_pool1d", "avg_pool2d", "avg_pool3d", wide=True)
def avg_pool(
    cx: Context,
    x: Expr,
    kernel: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    ceil: bool = False,
    inside: bool = True,
    divisor: int | None = None,
) -> Expr:
    count = _spatial(cx)
    data = _batched(x, count)
    windows = _windows(data, count, kernel, stride, padding, 1)
    if divisor is None:
        y = mean_pooled(cx, data, windows, ceil=ceil, inside=inside)
    else:
        wide = data if tensors.is_float(data) else R.astype(data, "float64")
        grown, whole = windows.padded(cx, cx.emit(wide), 0, ceil=ceil)
        means = mean_pooled(cx, grown, whole, ceil=False, inside=True)
        elements = math.prod(windows.kernel)
        if tensors.is_float(data):
            y = means * tensors.scalar(elements / divisor, x)
        else:  # the quotient of the sum, which is a whole number
            total = R.round(means * const(float(elements), "float64"))
            y = R.trunc(total / const(float(divisor), "float64"))
    return tensors.reshaped(y, cx.result_shape()) if data is not x else y


_ADAPTIVE = ByAxes("adaptive_avg_pool{}d")
#: The same for numbers of windows that are not known, which attributes of operators are not.
_POOLS = {1: adaptive_pool1d, 2: adaptive_pool, 3: adaptive_pool3d}


@converter(
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
)
def adaptive_avg_pool(cx: Context, x: Expr, sizes: Sequence[Any]) -> Expr:
    count = _spatial(cx)
    data = _batched(x, count)
    wanted = cx.result_shape()[-count:]
    if all(cx.is_size(size, 1) for size in wanted):
        axes = list(range(tensors.rank_of(x) - count, tensors.rank_of(x)))
        return R.mean(x, axes, True)
    if any(cx.is_size(size, 0) for size in wanted):  # the operator has no such output_size
        return R.zeros(cx.result_shape(), tensors.dtype_of(x))
    if all(isinstance(size, int) for size in wanted):
        y = _ADAPTIVE[count](data, list(wanted))
    else:
        y = cx.te(
            _POOLS[count], data, list(map(tensors.as_size, wanted)), "avg", name="adaptive_avg_pool"
        )
    return tensors.reshaped(y, cx.result_shape()) if data is not x else y


_GRID_METHODS = ("bilinear", "nearest", "bicubic")
_GRID_PADDINGS = ("zeros", "border", "reflection")


def _sampled(
    op: Any, images: Sequence[Expr], grid: Expr, method: int, padding: int, align_corners: bool
) -> Any:
    """An operator of images sampled at a grid, which has coordinates first."""
    rank = tensors.rank_of(grid)
    moved = R.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)])
    layout = "NCHW" if rank == 4 else "NCDHW"
    options = _GRID_METHODS[method], layout, _GRID_PADDINGS[padding], align_corners
    return op(*images, moved, *options)


@converter("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    cx: Context, x: Expr, grid: Expr, method: int, padding: int, align_corners: bool
) -> Expr:
    return _sampled(R.image.grid_sample, [x], grid, method, padding, align_corners)


@converter("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    cx: Context,
    grad: Expr,
    x: Expr,
    grid: Expr,
    method: int,
    padding: int,
    align_corners: bool,
    mask: Sequence[bool],
) -> tuple[Expr | None, Expr]:
    op = R.grad.grid_sample_backward
    both = cx.emit(_sampled(op, [grad, x], grid, method, padding, align_corners))
    of_grid = R.permute_dims(both[1], [0, *range(2, tensors.rank_of(grid)), 1])
    return both[0] if mask[0] else None, of_grid


@converter("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(cx: Context, x: Expr, sizes: Sequence[Any]) -> tuple[Expr, ...]:
    count = _spatial(cx)
    wanted = cx.result_shape(0)[-count:]
    outer = tensors.rank_of(x) - count
    before, inner_sizes = tensors.shape_of(x)[:outer], tensors.shape_of(x)[outer:]
    if all(cx.is_size(size, 1) for size in wanted):
        length = tensors.product(inner_sizes)
        rows = cx.emit(tensors.reshaped(x, [*before, length]))
        places = R.argmax(rows, outer, False)
        if tensors.is_float(x):  # of several NaN the last one
            numbers = R.arange(0, tensors.as_size(length), 1, "int64")
            last = cx.emit(R.max(R.where(R.isnan(rows), numbers, const(-1, "int64")), [outer]))
            places = R.where(last < const(0, "int64"), places, last)
        results = R.max(rows, [outer]), places
        return tuple(tensors.reshaped(result, [*before, *wanted]) for result in results)

    shape, dtypes = [*before, *wanted], (tensors.dtype_of(x), "int64")
    if any(cx.is_size(size, 0) for size in wanted):
        return tuple(R.zeros(shape, dtype) for dtype in dtypes)
    data, sizes = _batched(x, count), list(map(tensors.as_size, wanted))
    pooled = cx.te(_POOLS[count], data, sizes, "max", name="adaptive_max_pool")
    y = cx.emit(tensors.reshaped(pooled, shape)) if data is not x else pooled

    def indices(x: Tensor, y: Tensor) -> Tensor:
        old, new, beyond = x.shape[outer:], y.shape[outer:], ops.const((1 << 63) - 1, "int64")

        def first(*at: PrimExpr) -> PrimExpr:
            """That of the maximum; of NaN -1 less the last one."""
            number = as_size(0)
            members = []
            for index, size, windows in zip(at[outer:], old, new, strict=True):
                # As many as any window has: those after its end are its last one.
                rest = size % windows
                overlaps = windows % ops.maximum(rest, as_size(1)) > 0
                longest = size // windows + ops.minimum(rest, as_size(1)) + overlaps
                k = reduce_axis((as_size(0), longest))
                end = ops.ceildiv((index + 1) * size, windows)
                members.append((k, ops.minimum(index * size // windows + k.var, end - 1)))
                number = number * size + members[-1][1]
            value = x(*at[:outer], *(place for _, place in members))
            is_most = ops.compare(EQ, value, y(*at))
            code = Select(intrin.isnan(value), -1 - number, Select(is_most, number, beyond))
            return reduce.min(code, axis=[k for k, _ in members])

        found = compute(y.shape, first, "first")
        return compute(y.shape, lambda *at: Select(found(*at) < 0, -1 - found(*at), found(*at)))

    return y, cx.te(indices, x, y, name="adaptive_max_indices")
