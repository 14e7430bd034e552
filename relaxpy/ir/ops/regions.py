"""Operators on regions of images, and their kernels.

A region is a row of five numbers: the image, and the left, upper, right and lower border.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce as folded
from typing import TYPE_CHECKING, Any, Literal

from relaxpy.ir.core.dtype import INT32, INT64, VOID, DataType
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.ops.definition.signature import integer_literal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Loops, Number, Tensor, whole, written
from relaxpy.ir.te.topi.reduction import argsort
from relaxpy.ir.te.topi.transform import transpose
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import ceil, exp, floor
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

#: The upper, left, lower and right border of a region.
Borders = tuple[Number, Number, Number, Number]


def larger(a: Number, b: Number) -> Number:
    """The maximum of two numbers, where the second is not NaN."""
    return Select(a > b, a, b)


def smaller(a: Number, b: Number) -> Number:
    """The minimum."""
    return Select(a < b, a, b)


def _int(x: Number) -> Number:
    return ops.cast_to(x, DataType("int64"))


def _rounded(x: Number) -> Number:
    """The nearest integer, with ties rounded away from 0."""
    return _int(Select(x < 0.0, ceil(x - 0.5), floor(x + 0.5)))


def _like(x: Number, dtype: Any) -> Number:
    return ops.cast_to(whole(x), DataType(str(dtype)))


def _is_near(sizes: Sequence[Number], y: Number, z: Number) -> Number:
    """The condition that (y, z) is at most a pixel outside of an image of `sizes`."""
    height, width = (_like(size, y.dtype) for size in sizes)
    return (y >= -1.0) & (y <= height) & (z >= -1.0) & (z <= width)


def _corners(
    k: Loops, sizes: Sequence[Number], y: Number, z: Number
) -> list[tuple[Number, Number, Number]]:
    """For both axes the pixels before and after a point, and its distance from the former."""
    dtype = y.dtype
    sides: list[tuple[Number, Number, Number]] = []
    for place, extent in zip((y, z), sizes, strict=True):
        inside = k.local(larger(place, ops.const(0.0, dtype)))
        low = k.local(_int(inside[0]))
        with k.when(low[0] >= extent - 1):
            k.store(low, 0, whole(extent) - 1)
            k.store(inside, 0, _like(low[0], dtype))
        high = k.local(smaller(low[0] + 1, whole(extent) - 1))
        sides.append((low[0], high[0], k.local(inside[0] - _like(low[0], dtype))[0]))
    return sides


def _clamped(k: Loops, x: Any, at: tuple[Number, ...], y: Number, z: Number) -> Number:
    """The bilinear interpolation of `x[at]` at (y, z); borders are extended by one pixel."""
    found = k.local(ops.const(0.0, x.dtype))
    sizes = x.shape[-2:]
    with k.when(_is_near(sizes, y, z)):
        terms = _terms(lambda i, j: x[(*at, i, j)], _corners(k, sizes, y, z))
        k.store(found, 0, folded(operator.add, terms))
    return found[0]


def _terms(
    pixel: Callable[[Number, Number], Number], corners: Sequence[tuple[Number, Number, Number]]
) -> list[Number]:
    """The pixels of an image around a point times their weights."""
    (top, bottom, p), (left, right, q) = corners
    return [
        pixel(i, j) * weight * factor
        for i, weight in ((top, 1.0 - p), (bottom, p))
        for j, factor in ((left, 1.0 - q), (right, q))
    ]


def _borders(k: Loops, rois: Any, r: Number, scale: float, shift: float = 0.0) -> Borders:
    """The upper, left, lower and right border of a region, in pixels of the image."""
    left, top, right, bottom = (k.local(rois[r, c] * scale - shift)[0] for c in (1, 2, 3, 4))
    return top, left, bottom, right


@dataclass(frozen=True)
class _Axis:
    """The points of a region along an axis."""

    first: Number
    extent: Number
    step: Number
    points: Number
    bins: Number

    def fraction(self, bin_: Number, point: Number) -> Number:
        """The position of a point of a bin, as a fraction of the extent."""
        dtype = self.step.dtype
        inner = (_like(point, dtype) + 0.5) / _like(self.points, dtype)
        return (_like(bin_, dtype) + inner) / _like(self.bins, dtype)

    def at(self, bin_: Number, point: Number) -> Number:
        """The position of a point of a bin, in pixels."""
        dtype = self.step.dtype
        inner = (_like(point, dtype) + 0.5) * self.step / _like(self.points, dtype)
        return self.first + _like(bin_, dtype) * self.step + inner


def _axes(
    k: Loops, borders: Borders, pooled: tuple[Number, Number], ratio: int, least: float | None
) -> list[_Axis]:
    """The points along both axes of a region."""
    top, left, bottom, right = borders
    axes = []
    for first, last, count in ((top, bottom, pooled[0]), (left, right, pooled[1])):
        extent = last - first
        dtype = extent.dtype
        wide = extent if least is None else larger(extent, ops.const(least, dtype))
        step = k.local(wide / _like(count, dtype))[0]
        points = whole(ratio) if ratio > 0 else _int(ceil(step))
        axes.append(_Axis(first, extent, step, k.local(points, "int64")[0], count))
    return axes


def averaged(
    x: Tensor,
    rois: Tensor,
    scale: float,
    pooled: tuple[Number, Number],
    ratio: int,
    *,
    shift: float = 0.0,
    least: float | None = None,
    channels: Number | None = None,
    greatest: Literal["", "terms", "values"] = "",
) -> Tensor:
    """The mean over a grid of points in each bin; both operands have the same datatype of floats.

    With a number of `channels`, each bin of a result's channel has a channel of its own. With
    `greatest`, it is the maximum of the values at the points, or of all terms that these add.
    """
    dtype = str(x.dtype)
    rows, columns = pooled
    each = ratio if ratio > 0 else 2  # where it depends on the regions, a guess
    points = [rois.shape[0], rows, columns, each, each]
    last = channels is None and _are_many(points, [x.shape[0], *x.shape[2:]])

    def place(c: Number, i: Number, j: Number) -> tuple[Number, ...]:
        return (i, j, c) if last else (c, i, j)

    def write(k: Loops, x: Any, rois: Any, out: Any) -> None:
        sizes, count = (x.shape[1:3], out.shape[3]) if last else (x.shape[2:], out.shape[1])
        with k.loop(out.shape[0]) as r:
            borders = _borders(k, rois, r, scale, shift)
            n = k.local(_int(rois[r, 0]))[0]
            down, across = _axes(k, borders, pooled, ratio, least)
            number = down.points * across.points
            if channels is None:
                number = larger(number, ops.const(1, "int64"))
            divisor = k.local(_like(number, dtype))[0]
            with k.every(out.shape[1:]) as at:
                k.store(out, (r, *at), ops.const(0.0, dtype))
            # A point has the same place and weights in each channel.
            with k.every((rows, columns, down.points, across.points)) as (i, j, a, b):
                y, z = k.local(down.at(i, a))[0], k.local(across.at(j, b))[0]

                def add(c: Number, value: Number) -> None:
                    total = out[(r, *place(c, i, j))]
                    if greatest:
                        is_first = (a == 0) & (b == 0)
                        value = Select(is_first | (value > total), value, total)
                    k.store(out, (r, *place(c, i, j)), value if greatest else total + value)

                near = _is_near(sizes, y, z)
                with k.when(near):
                    corners = _corners(k, sizes, y, z)
                    with k.loop(count) as c:
                        channel = c if channels is None else (c * rows + i) * columns + j
                        terms = _terms(lambda u, v: x[(n, *place(channel, u, v))], corners)
                        parts = terms if greatest == "terms" else [folded(operator.add, terms)]
                        values = []
                        for part in parts:
                            kept = k.array([count if last else 1], dtype)
                            k.store(kept, c if last else 0, part)
                            values.append(kept[c if last else 0])
                        add(c, folded(larger, values))
                if greatest:
                    with k.when(~near), k.loop(count) as c:
                        add(c, ops.const(0.0, dtype))
            if not greatest:
                with k.every(out.shape[1:]) as at:
                    k.store(out, (r, *at), out[(r, *at)] / divisor)

    shape = place(x.shape[1] if channels is None else channels, rows, columns)
    data = transpose(x, [0, 2, 3, 1]) if last else x
    [found] = written("roi_align", [((rois.shape[0], *shape), dtype)], [data, rois], write)
    return transpose(found, [0, 3, 1, 2]) if last else found


def _are_many(points: Sequence[Number], pixels: Sequence[Number]) -> bool:
    """True if it pays to bring the channels of each pixel together.

    A vector of them is read at a point then. That of a pixel takes less than a quarter of the time.
    """
    counts = [integer_literal(size) for size in (*points, *pixels)]
    known = [count for count in counts if count is not None]
    split = len(points)
    return known == counts and 4 * math.prod(known[:split]) >= math.prod(known[split:])


def averaged_gradients(
    gradient: Tensor,
    x: Tensor,
    rois: Tensor,
    scale: float,
    ratio: int,
    *,
    least: float | None,
    greatest: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients of `averaged`, or of its `greatest` values, by the image and the borders."""

    def write(k: Loops, gradient: Any, x: Any, rois: Any, by_x: Any, by_rois: Any) -> None:
        for buffer in (by_x, by_rois):
            with k.every(buffer.shape) as at:
                k.store(buffer, at, 0.0)
        with k.loop(rois.shape[0]) as r:
            borders = _borders(k, rois, r, scale)
            n = k.local(_int(rois[r, 0]))[0]
            down, across = _axes(k, borders, (gradient.shape[2], gradient.shape[3]), ratio, least)
            count = k.local(_like(down.points * across.points, x.dtype))[0]
            with k.every(gradient.shape[1:]) as (c, i, j):
                chosen = k.local(ops.const(-1, "int64"))
                if greatest:
                    most = k.local(ops.const(0.0, x.dtype))
                    with k.every((down.points, across.points)) as (a, b):
                        y, z = k.local(down.at(i, a))[0], k.local(across.at(j, b))[0]
                        value = _clamped(k, x, (n, c), y, z)
                        with k.when((chosen[0] < 0) | (value > most[0])):
                            k.store(chosen, 0, a * across.points + b)
                            k.store(most, 0, value)
                with k.every((down.points, across.points)) as (a, b):
                    y, z = k.local(down.at(i, a))[0], k.local(across.at(j, b))[0]
                    near = _is_near(x.shape[-2:], y, z)
                    if greatest:
                        near = near & (chosen[0] == a * across.points + b)
                    with k.when(near):
                        g = gradient[r, c, i, j]
                        g = k.local(g if greatest else g / count)[0]
                        (top, bottom, p), (left, right, q) = _corners(k, x.shape[-2:], y, z)
                        for row, weight in ((top, 1.0 - p), (bottom, p)):
                            for column, factor in ((left, 1.0 - q), (right, q)):
                                at = (n, c, row, column)
                                k.store(by_x, at, by_x[at] + g * weight * factor)
                        (a0, a1), (b0, b1) = (
                            (x[n, c, row, left], x[n, c, row, right]) for row in (top, bottom)
                        )
                        slopes = (
                            (b0 - a0) * (1.0 - q) + (b1 - a1) * q,
                            (a1 - a0) * (1.0 - p) + (b1 - b0) * p,
                        )
                        for axis, bin_, point, place, slope, first in (
                            (down, i, a, y, slopes[0], 2),
                            (across, j, b, z, slopes[1], 1),
                        ):
                            part = axis.fraction(bin_, point)
                            if least is not None:
                                part = Select(axis.extent > least, part, ops.const(0.0, x.dtype))
                            moved = k.local(Select(place > 0.0, g * slope * scale, 0.0))[0]
                            for border, share in ((first, 1.0 - part), (first + 2, part)):
                                k.store(by_rois, (r, border), by_rois[r, border] + moved * share)

    outputs = [(x.shape, str(x.dtype)), (rois.shape, str(rois.dtype))]
    by_x, by_rois = written("roi_align_backward", outputs, [gradient, x, rois], write)
    return by_x, by_rois


def bins(
    k: Loops,
    sizes: Sequence[Number],
    rois: Any,
    r: Number,
    at: tuple[Number, Number],
    counts: tuple[Number, Number],
    scale: float,
    more: int,
) -> tuple[tuple[Number, Number], tuple[Number, Number], Number]:
    """The first pixel of a bin and the number of pixels along both axes, and the image.

    Images have `sizes`, regions `counts` bins; `more` is 1 where the last border belongs to a
    region.
    """
    dtype, zero = rois.dtype, ops.const(0, "int64")
    top, left, bottom, right = (
        k.local(_rounded(border))[0] for border in _borders(k, rois, r, scale)
    )
    spans: list[tuple[Number, Number]] = []
    borders = ((top, bottom), (left, right))
    for (first, last), bin_, count, size in zip(borders, at, counts, sizes, strict=True):
        extent = larger(last - first + more, ops.const(1, "int64"))
        step = k.local(_like(extent, dtype) / _like(count, dtype))[0]
        begin = _int(floor(_like(bin_, dtype) * step)) + first
        end = _int(ceil(_like(bin_ + 1, dtype) * step)) + first
        limit = whole(size) - (1 - more)
        begin, end = (k.local(smaller(larger(bound, zero), limit))[0] for bound in (begin, end))
        spans.append((begin, k.local(larger(end - begin, zero))[0]))
    down, across = spans
    return down, across, k.local(_int(rois[r, 0]))[0]


def maxima(
    x: Tensor, rois: Tensor, scale: float, rows: Number, columns: Number, *, places: bool = True
) -> list[Tensor]:
    """The maximum of each bin, 0 if it is empty, and with `places` its position, then -1."""
    shape, dtype = [rois.shape[0], rows, columns, x.shape[1]], str(x.dtype)

    def write(k: Loops, x: Any, rois: Any, *outs: Any) -> None:
        sizes = x.shape[1:3]
        with k.every(shape[:3]) as (r, i, j):
            (y0, high), (z0, wide), n = bins(k, sizes, rois, r, (i, j), (rows, columns), scale, 1)
            for out, empty in zip(outs, (0.0, -1), strict=False):
                with k.loop(shape[3]) as c:
                    k.store(out, (r, i, j, c), empty)
            # A pixel is of the same bin in each channel.
            with k.loop(high, start=y0) as y, k.loop(wide, start=z0) as z:
                is_first = (y == y0) & (z == z0)
                values = k.array(shape[3:], dtype)
                with k.loop(shape[3]) as c:
                    k.store(values, c, x[n, y, z, c])
                with k.loop(shape[3]) as c:
                    at = (r, i, j, c)
                    value, most = values[c], outs[0][at]
                    is_more = is_first | (value > most)
                    if places:
                        place = ops.cast_to(y * whole(sizes[1]) + z, DataType("int32"))
                        k.store(outs[1], at, Select(is_more, place, outs[1][at]))
                    k.store(outs[0], at, Select(is_more, value, most))

    outputs = [(shape, dtype), (shape, "int32")][: 1 + places]
    found = written("roi_pool", outputs, [transpose(x, [0, 2, 3, 1]), rois], write)
    return [transpose(out, [0, 3, 1, 2]) for out in found]


def maxima_gradient(gradient: Tensor, places: Tensor, x: Tensor, rois: Tensor) -> Tensor:
    """The gradient of `maxima` with respect to the image: it goes to the maximal elements."""

    def write(k: Loops, gradient: Any, places: Any, x: Any, rois: Any, out: Any) -> None:
        with k.every(out.shape) as at:
            k.store(out, at, 0.0)
        width = whole(x.shape[-1])
        with k.every(gradient.shape) as (r, c, i, j):
            n, place = k.local(_int(rois[r, 0]))[0], k.local(_int(places[r, c, i, j]))[0]
            with k.when(place >= 0):
                at = (n, c, ops.floordiv(place, width), ops.floormod(place, width))
                k.store(out, at, out[at] + gradient[r, c, i, j])

    inputs = [gradient, places, x, rois]
    [found] = written("roi_pool_backward", [(x.shape, str(x.dtype))], inputs, write)
    return found


def suppressed(
    data: Tensor,
    count: Tensor,
    indices: Tensor,
    *,
    max_output_size: int,
    iou_threshold: float,
    force_suppress: bool,
    top_k: int,
    coord_start: int,
    score_index: int,
    id_index: int,
    return_indices: bool,
    invalid_to_bottom: bool,
    soft_nms_sigma: float,
    score_threshold: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The boxes, best first, the entries of `indices` for the selected ones, and their number.

    All are -1 where no box remains. Boxes follow each other if scores decay, or with
    `invalid_to_bottom`, and indices with `return_indices`.
    """
    dtype, (batch, size, fields) = str(data.dtype), data.shape
    lowest = ops.const(-float("inf"), dtype)

    def score(b: Number, j: Number) -> Number:
        return Select(j < count[b], data(b, j, score_index), lowest)

    ranked = te.compute((batch, size), score, name="ranked")
    order = argsort(ranked, axis=1, is_ascend=False, dtype="int32")
    zero, none = ops.const(0.0, dtype), ops.const(-1, "int32")
    decays = soft_nms_sigma > 0
    least = ops.const(score_threshold if decays else 0.0, dtype)

    def write(k: Loops, *buffers: Any) -> None:
        data, order, count, indices, out, places, kept = buffers

        def clear(b: Number, j: Number) -> None:
            with k.loop(fields) as f:
                k.store(out, (b, j, f), -1.0)
            k.store(places, (b, j), none)

        def overlap(b: Number, i: Number, j: Number) -> Number:
            """The intersection of two boxes over their union."""
            spans, areas = [], [ops.const(1.0, dtype)] * 2
            for axis in (coord_start, coord_start + 1):
                ends = [(out[b, n, axis], out[b, n, axis + 2]) for n in (i, j)]
                low, high = ([f(*pair) for pair in ends] for f in (ops.minimum, ops.maximum))
                spans.append(ops.maximum(zero, ops.minimum(*high) - ops.maximum(*low)))
                areas = [a * (y - x) for a, x, y in zip(areas, low, high, strict=True)]
            shared = k.local(spans[0] * spans[1])[0]
            union = k.local(areas[0] + areas[1] - shared)[0]
            positive = union > zero
            return k.local(Select(positive, shared / Select(positive, union, union + 1.0), zero))[0]

        def against(b: Number, i: Number, j: Number) -> None:
            """Suppress box j, or lower its score, because of box i."""
            same = out[b, i, id_index] == out[b, j, id_index]
            anyone = force_suppress or id_index < 0
            with k.when(ops.const(1, "bool") if anyone else same):
                ratio = overlap(b, i, j)
                with k.when(ratio >= ops.const(iou_threshold, dtype)):
                    k.store(places, (b, j), none)
                    if not decays:
                        k.store(out, (b, j, score_index), -1.0)
                if decays:
                    with k.otherwise():
                        factor = exp(ratio * ratio * ops.const(-0.5 / soft_nms_sigma, dtype))
                        k.store(out, (b, j, score_index), out[b, j, score_index] * factor)
                        with k.when(out[b, j, score_index] <= least):
                            k.store(places, (b, j), none)

        def best(b: Number, first: Number, end: Number) -> Number:
            """The best of the boxes from `first` on that are not suppressed, or -1."""
            found, score = k.local(ops.const(-1, "int64")), k.local(least)
            with k.loop(end - first, start=first) as j:
                is_better = (places[b, j] >= 0) & (out[b, j, score_index] > score[0])
                with k.when(is_better):
                    k.store(found, 0, j)
                    k.store(score, 0, out[b, j, score_index])
            return found[0]

        def swap(b: Number, i: Number, j: Number) -> None:
            for buffer, at in ((places, ()), (out, (fields,))):
                with k.every(at) as rest:
                    held = k.local(buffer[(b, i, *rest)])
                    k.store(buffer, (b, i, *rest), buffer[(b, j, *rest)])
                    k.store(buffer, (b, j, *rest), held[0])

        def to_front(b: Number) -> None:
            """Compact the selected rows at the front."""
            total = k.local(ops.const(0, "int64"))
            with k.loop(size) as j, k.when(places[b, j] >= 0):
                if return_indices:
                    k.store(places, (b, total[0]), indices[b, places[b, j]])
                else:
                    with k.loop(fields) as f:
                        k.store(out, (b, total[0], f), out[b, j, f])
                k.store(total, 0, total[0] + 1)
            with k.loop(size - total[0], start=total[0]) as j:
                if return_indices:
                    k.store(places, (b, j), none)
                else:
                    clear(b, j)

        with k.loop(batch) as b:
            given = ops.cast_to(count[b], "int64")
            limit = size if top_k <= 0 else ops.minimum(size, ops.const(top_k, "int64"))
            end = k.local(ops.maximum(ops.minimum(given, limit), ops.const(0, "int64")))[0]
            with k.loop(size) as j:
                with k.when(j < end):
                    k.store(places, (b, j), order[b, j])
                    with k.loop(fields) as f:
                        k.store(out, (b, j, f), data[b, order[b, j], f])
                with k.otherwise():
                    clear(b, j)
            total = k.local(ops.const(0, "int64"))
            room = total[0] < max_output_size if max_output_size > 0 else ops.const(1, "bool")
            with k.loop(end) as i:
                chosen = best(b, total[0], end) if decays else i
                place = total[0] if decays else i
                accepted = chosen >= 0 if decays else out[b, i, score_index] > least
                with k.when(accepted & room):
                    if decays:
                        swap(b, place, chosen)
                    with k.loop(end - place - 1, start=place + 1) as j:
                        candidate = (places[b, j] >= 0) & (out[b, j, score_index] > least)
                        with k.when(candidate):
                            against(b, place, j)
                    k.store(total, 0, total[0] + 1)
                if not decays:
                    with k.otherwise():
                        clear(b, i)
            if decays:
                with k.loop(size - total[0], start=total[0]) as j:
                    clear(b, j)
            if return_indices or (invalid_to_bottom and not decays):
                to_front(b)
            k.store(kept, (b, 0), total[0])

    outputs = [(data.shape, dtype), ((batch, size), "int32"), ((batch, 1), "int32")]
    inputs = [data, order, count, indices]
    found, places, kept = written("non_max_suppression", outputs, inputs, write)
    return found, places, kept


def _require_images(
    data: rx.TensorStructInfo, rois: rx.TensorStructInfo, pooled_size: tuple[int, ...]
) -> tuple[int, int]:
    """The rows and columns of the bins."""
    for name, sinfo, ndim in (("data", data, 4), ("rois", rois, 2)):
        rules.require_float(sinfo, name)
        if sinfo.ndim not in (-1, ndim):
            raise rules.refuse(f"{name} has rank {ndim}, found {sinfo}", sinfo)
    shape = literal_shape(rois)
    if shape is not None and rules.differ(shape[1], ops.const(5, INT64)):
        raise rules.refuse(
            f"a region is five numbers, those of the image and of the borders; found {rois}", rois
        )
    if len(pooled_size) not in (1, 2) or min(pooled_size) < 1:
        raise rules.refuse(
            f"pooled_size is one number of at least 1, or two, found {list(pooled_size)}", data
        )
    return pooled_size[0], pooled_size[-1]


def _pooled(
    data: rx.TensorStructInfo, rois: rx.TensorStructInfo, bins: tuple[int, int], channels_at: int
) -> rx.TensorStructInfo:
    images, boxes = literal_shape(data), literal_shape(rois)
    vdevice = rules.joint_vdevice((data, rois), strict=False)
    if images is None or boxes is None:
        return rules.tensor(None, data.dtype, vdevice, 4)
    sizes = [boxes[0], *(ops.const(n, INT64) for n in bins)]
    sizes.insert(channels_at, images[channels_at])
    return rules.tensor(tuple(sizes), data.dtype, vdevice)


def _operands(
    builder: BlockBuilder, call: rx.Call, order: list[int] | None, *results: rx.Expr
) -> list[Any]:
    """Images with channels first, as results are, and regions, in at least 32 bits."""
    data, rois = call.args
    sinfo: Any = builder.struct_info_of(data)
    wide = "float64" if str(sinfo.dtype) == "float64" else "float32"
    images = [*results, data]
    if order is not None:
        images = [builder.emit(R.permute_dims(image, order)) for image in images]
    return [builder.emit(R.astype(x, wide)) for x in (*images, rois)]


def _legalize_align(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    attrs: Any = call.attrs
    last = attrs["layout"] == "NHWC"
    size = attrs["pooled_size"]
    found: Any = builder.emit_te(
        averaged,
        *_operands(builder, call, [0, 3, 1, 2] if last else None),
        attrs["spatial_scale"],
        (size[0], size[-1]),
        attrs["sample_ratio"],
        least=None if attrs["aligned"] else 1.0,
        greatest="values" if attrs["mode"] == "max" else "",
        primfunc_name_hint="roi_align",
    )
    if last:
        found = builder.emit(R.permute_dims(found, [0, 2, 3, 1]))
    return _as_operand(builder, call, 0, found)


def _as_operand(builder: BlockBuilder, call: rx.Call, place: int, found: rx.Expr) -> rx.Expr:
    """The result in the datatype of an operand."""
    sinfo: Any = builder.struct_info_of(call.args[place])
    result: rx.Expr = R.astype(found, sinfo.dtype)
    return result


def _gradient_align(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    attrs: Any = call.attrs
    last = attrs["layout"] == "NHWC"
    both: Any = builder.emit_te(
        averaged_gradients,
        *_operands(builder, call, [0, 3, 1, 2] if last else None, gradient),
        attrs["spatial_scale"],
        attrs["sample_ratio"],
        least=None if attrs["aligned"] else 1.0,
        greatest=attrs["mode"] == "max",
        primfunc_name_hint="roi_align_backward",
    )
    by_data, by_rois = (builder.emit(rx.TupleGetItem(both, k)) for k in (0, 1))
    if last:
        by_data = builder.emit(R.permute_dims(by_data, [0, 2, 3, 1]))
    return [_as_operand(builder, call, k, x) for k, x in enumerate((by_data, by_rois))]


@register("relax.vision.roi_align", pure=True, legalize=_legalize_align, gradient=_gradient_align)
def roi_align(
    data: rx.TensorStructInfo,
    rois: rx.TensorStructInfo,
    pooled_size: tuple[int, ...],
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    mode: Literal["avg", "max"] = "avg",
) -> rx.TensorStructInfo:
    """ROI align: the mean or maximum of interpolated values in each bin of regions.

    A region is divided into `pooled_size` bins. Each has `sample_ratio` points along both axes, or
    as many as it has rows and columns, rounded up, if that is not above 0. The value at a point is
    interpolated bilinearly; points more than a pixel outside are 0. Unless `aligned`, a region has
    at least one row and one column.

    Shapes:
        data    in `layout`, floats
        rois    (n, 5), floats: the image, and the left, upper, right and lower border, which are
                multiplied by `spatial_scale`
        result  (n, channels, rows, columns), or channels last as data
    Errors:
        StructInfoError: an operand has another rank, datatype or shape, or bins are not one or two
            numbers of at least 1.
    Source:
        Mask R-CNN (He et al., 2017), as TVM computes it.
    """
    bins = _require_images(data, rois, pooled_size)
    return _pooled(data, rois, bins, layout.index("C"))


def _maxima(builder: BlockBuilder, call: rx.Call, operands: list[Any], *, places: bool) -> Any:
    size: Any = call.attrs["pooled_size"]
    bins = (call.attrs["spatial_scale"], size[0], size[-1])
    options: Any = {"places": places, "primfunc_name_hint": "roi_pool"}
    found = builder.emit_te(maxima, *operands, *bins, **options)
    return builder.emit(rx.TupleGetItem(found, 1 if places else 0))


def _legalize_pool(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    operands = _operands(builder, call, None)
    return _as_operand(builder, call, 0, _maxima(builder, call, operands, places=False))


def _gradient_pool(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    result, *operands = _operands(builder, call, None, gradient)
    places = _maxima(builder, call, operands, places=True)
    by_data: Any = builder.emit_te(
        maxima_gradient, result, places, *operands, primfunc_name_hint="roi_pool_backward"
    )
    return [_as_operand(builder, call, 0, by_data), R.grad.no_grad(call.args[1])]


@register("relax.vision.roi_pool", pure=True, legalize=_legalize_pool, gradient=_gradient_pool)
def roi_pool(
    data: rx.TensorStructInfo,
    rois: rx.TensorStructInfo,
    pooled_size: tuple[int, ...],
    spatial_scale: float,
    layout: Literal["NCHW"] = "NCHW",
) -> rx.TensorStructInfo:
    """ROI pooling: the maximum of each bin of regions, or 0 where a bin has no pixels.

    Borders are rounded to pixels, and belong to the region.

    Shapes:
        data    (batch, channels, height, width), floats
        rois    (n, 5), floats, as for `roi_align`
        result  (n, channels, rows, columns)
    Errors:
        StructInfoError: as for `roi_align`.
    Source:
        Fast R-CNN (Girshick, 2015); ONNX, MaxRoiPool.
    """
    return _pooled(data, rois, _require_images(data, rois, pooled_size), layout.index("C"))


def _legalize_suppression(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    attrs: Any = {str(name): call.attrs[name] for name in call.attrs}
    hint = {"primfunc_name_hint": "non_max_suppression"}
    found: Any = builder.emit_te(suppressed, *call.args, **attrs, **hint)
    boxes, *rest = (builder.emit(rx.TupleGetItem(found, k)) for k in range(3))
    if not attrs["return_indices"]:
        return boxes
    return rx.Tuple((boxes, *rest) if attrs["soft_nms_sigma"] > 0 else tuple(rest))


@register("relax.vision.non_max_suppression", pure=True, legalize=_legalize_suppression)
def non_max_suppression(
    data: rx.TensorStructInfo,
    valid_count: rx.TensorStructInfo,
    indices: rx.TensorStructInfo,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> rx.StructInfo:
    """Non-maximum suppression: the boxes of each image, best first, without overlapping ones.

    The first `valid_count` boxes are considered, of these the `top_k` best if that is above 0, and
    `max_output_size` remain at most if that is. Boxes overlap too much if the ratio of the areas of
    their intersection and their union is at least `iou_threshold`, and they are of the same class,
    `id_index` is -1, or `force_suppress`. If `soft_nms_sigma` is above 0, the scores of others that
    overlap decay by exp(-ratio ** 2 / (2 * soft_nms_sigma)), the best one is chosen each time,
    and boxes remain whose score is above `score_threshold`.

    Shapes:
        data         (batch, n, fields), floats: four coordinates of opposite corners from
                     `coord_start` on, a score and a class
        valid_count  (batch,), int32
        indices      (batch, n), int32: what the positions in data stand for
        result       with `return_indices` the tuple of (batch, n), those that remain and then -1,
                     and (batch, 1), how many, in int32; as data before these if scores decay.
                     Otherwise as data: rows that do not remain are -1, and last with
                     `invalid_to_bottom`
    Errors:
        StructInfoError: an operand has another rank, datatype or shape, or an index is not that of
            a field.
    Source:
        TVM; Soft-NMS (Bodla et al., 2017).
    """
    rules.require_float(data, "data")
    for name, sinfo, ndim in (
        ("data", data, 3),
        ("valid_count", valid_count, 1),
        ("indices", indices, 2),
    ):
        if sinfo.ndim not in (-1, ndim):
            raise rules.refuse(f"{name} has rank {ndim}, found {sinfo}", sinfo)
        if sinfo is not data and sinfo.dtype not in (INT32, VOID):
            raise rules.refuse_type(f"{name} is int32, found {sinfo}", sinfo)
    shape = literal_shape(data)
    fields = None if shape is None else integer_literal(shape[2])
    for name, index, least, width in (
        ("score_index", score_index, 0, 1),
        ("id_index", id_index, -1, 1),
        ("coord_start", coord_start, 0, 4),
    ):
        if index < least or (fields is not None and index + width > fields):
            raise rules.refuse(
                f"{name} is at least {least} and that of a field, found {index} for {data}", data
            )
    for name, sinfo in (("valid_count", valid_count), ("indices", indices)):
        sizes = literal_shape(sinfo)
        if shape is not None and sizes is not None and any(map(rules.differ, sizes, shape)):
            raise rules.refuse(f"{name} has the sizes of data, {data}, found {sinfo}", sinfo)
    if not return_indices:
        return data
    vdevice = rules.joint_vdevice((data, valid_count, indices), strict=False)
    listed = rules.tensor(None if shape is None else shape[:2], INT32, vdevice, 2)
    one = None if shape is None else (shape[0], ops.const(1, INT64))
    total = rules.tensor(one, INT32, vdevice, 2)
    return rx.TupleStructInfo((*([data] if soft_nms_sigma > 0 else []), listed, total))
