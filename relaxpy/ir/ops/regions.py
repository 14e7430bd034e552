"""Operators on regions of images, and their kernels.

A region is a row of five numbers: the image, and the left, upper, right and lower border.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from functools import reduce as folded
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from relaxpy.ir.core.dtype import INT32, INT64, VOID, DataType
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.ops.definition.signature import integer_literal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Number, Tensor, whole
from relaxpy.ir.te.text import T, kernel_text, written
from relaxpy.ir.te.topi.reduction import argsort
from relaxpy.ir.te.topi.transform import transpose
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import ceil, floor

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


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


@kernel_text
def _find_corners(pixels: Any, rests: Any, axis: int, place: Any, size: Number) -> None:
    """The pixels before and after a point along an axis, and its distance from the former."""
    inside = larger(place[axis], 0.0)
    low = _int(inside)
    pixels[axis, 0] = smaller(low, size - 1)
    pixels[axis, 1] = smaller(low + 1, size - 1)
    rests[axis] = T.Select(low >= size - 1, 0.0, inside - _like(low, place.dtype))


def _corners(pixels: Any, rests: Any) -> Iterator[tuple[Number, Number, Number, Number]]:
    """The rows and columns of the pixels around a point, and their weights along both axes."""
    for i, weight in enumerate((1.0 - rests[0], rests[0])):
        for j, factor in enumerate((1.0 - rests[1], rests[1])):
            yield pixels[0, i], pixels[1, j], weight, factor


@kernel_text
def _find_bins(
    bins: Any, points: Any, axis: int, region: Any, count: Any, ratio: int, least: float | None
) -> None:
    """Where the bins between two borders of a region begin, the extent of all, and that of a bin.

    The number of points along the axis is that of a bin.
    """
    first, last = T.meta_var(region)
    bins[axis, 0] = first
    bins[axis, 1] = last - bins[axis, 0]
    extent = T.meta_var(bins[axis, 1])
    wide = T.meta_var(extent if least is None else larger(extent, ops.const(least, extent.dtype)))
    bins[axis, 2] = wide / _like(count, extent.dtype)
    points[axis] = ratio if ratio > 0 else T.ceil(bins[axis, 2])


@kernel_text
def _find_point(
    place: Any, bins: Any, points: Any, bin_: Sequence[Number], point: Sequence[Number]
) -> None:
    """The position of a point of a bin, in pixels along both axes."""
    place[0] = _position(bins, points, 0, bin_[0], point[0])
    place[1] = _position(bins, points, 1, bin_[1], point[1])


def _position(bins: Any, points: Any, axis: int, bin_: Number, point: Number) -> Number:
    dtype, step = bins.dtype, bins[axis, 2]
    inner = (_like(point, dtype) + 0.5) * step / _like(points[axis], dtype)
    return bins[axis, 0] + _like(bin_, dtype) * step + inner


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

    shape = place(x.shape[1] if channels is None else channels, rows, columns)
    data = transpose(x, [0, 2, 3, 1]) if last else x
    options = SimpleNamespace(pooled=pooled, ratio=ratio, scale=scale, shift=shift, least=least)
    options.index, options.is_last, options.greatest = place, last, greatest
    options.own_channels = channels is not None
    outputs = {"out": ((rois.shape[0], *shape), dtype)}
    [found] = written("roi_align", outputs, {"x": data, "rois": rois}, _average, options=options)
    return transpose(found, [0, 3, 1, 2]) if last else found


@kernel_text
def _average(x: Any, rois: Any, out: Any, options: SimpleNamespace) -> None:
    sizes = T.meta_var(x.shape[1:3] if options.is_last else x.shape[2:])
    channels = T.meta_var(out.shape[3 if options.is_last else 1])
    combine = T.meta_var(larger if options.greatest == "terms" else operator.add)
    for r in T.serial(out.shape[0]):
        bins, points = T.decl_buffer((2, 3), x.dtype), T.decl_buffer((2,), "int64")
        number, divisor = T.decl_buffer((1,), "int64"), T.decl_buffer((1,), x.dtype)
        left, top, right, bottom = T.meta_var(
            [rois[r, k] * options.scale - options.shift for k in range(1, 5)]
        )
        _find_bins(bins, points, 0, (top, bottom), options.pooled[0], options.ratio, options.least)
        _find_bins(bins, points, 1, (left, right), options.pooled[1], options.ratio, options.least)
        number[0] = _int(rois[r, 0])
        count = T.meta_var(points[0] * points[1])
        divisor[0] = count if options.own_channels else larger(count, T.int64(1))
        for (*at,) in T.grid(*out.shape[1:]):
            out[r, *at] = 0.0
        # A point has the same place and weights in each channel.
        for i, j, a, b in T.grid(*options.pooled, points[0], points[1]):
            place = T.decl_buffer((2,), x.dtype)
            _find_point(place, bins, points, (i, j), (a, b))
            is_near = T.meta_var(_is_near(sizes, place[0], place[1]))
            if is_near:
                pixels, rests = T.decl_buffer((2, 2), "int64"), T.decl_buffer((2,), x.dtype)
                _find_corners(pixels, rests, 0, place, sizes[0])
                _find_corners(pixels, rests, 1, place, sizes[1])
                for c in T.serial(channels):
                    at = T.meta_var((r, *options.index(c, i, j)))
                    channel = T.meta_var(
                        (c * options.pooled[0] + i) * options.pooled[1] + j
                        if options.own_channels
                        else c
                    )
                    terms = T.meta_var(
                        [
                            x[number[0], *options.index(channel, u, v)] * weight * factor
                            for u, v, weight, factor in _corners(pixels, rests)
                        ]
                    )
                    if options.greatest:
                        kept = T.decl_buffer((channels if options.is_last else 1,), x.dtype)
                        value = T.meta_var(kept[c if options.is_last else 0])
                        kept[c if options.is_last else 0] = folded(combine, terms)
                        is_more = T.meta_var(((a == 0) & (b == 0)) | (value > out[at]))
                        out[at] = T.Select(is_more, value, out[at])
                    else:
                        out[at] += folded(combine, terms)
            if options.greatest != "" and T.Not(is_near):
                for c in T.serial(channels):
                    at = T.meta_var((r, *options.index(c, i, j)))
                    is_more = T.meta_var(((a == 0) & (b == 0)) | (out[at] < 0.0))
                    out[at] = T.Select(is_more, 0.0, out[at])
        if not options.greatest:
            for (*at,) in T.grid(*out.shape[1:]):
                out[r, *at] /= divisor[0]


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
    outputs = {"by_x": (x.shape, str(x.dtype)), "by_rois": (rois.shape, str(rois.dtype))}
    inputs = {"gradient": gradient, "x": x, "rois": rois}
    options = SimpleNamespace(scale=scale, ratio=ratio, least=least, greatest=greatest)
    name = "roi_align_backward"
    by_x, by_rois = written(name, outputs, inputs, _average_gradients, options=options)
    return by_x, by_rois


@kernel_text
def _average_gradients(
    gradient: Any, x: Any, rois: Any, by_x: Any, by_rois: Any, options: SimpleNamespace
) -> None:
    sizes = T.meta_var(x.shape[2:])
    _clear(by_x)
    _clear(by_rois)
    for r in T.serial(rois.shape[0]):
        bins, points = T.decl_buffer((2, 3), x.dtype), T.decl_buffer((2,), "int64")
        number, count = T.decl_buffer((1,), "int64"), T.decl_buffer((1,), x.dtype)
        left, top, right, bottom = T.meta_var([rois[r, k] * options.scale for k in range(1, 5)])
        _find_bins(bins, points, 0, (top, bottom), gradient.shape[2], options.ratio, options.least)
        _find_bins(bins, points, 1, (left, right), gradient.shape[3], options.ratio, options.least)
        number[0] = _int(rois[r, 0])
        n = T.meta_var(number[0])
        count[0] = points[0] * points[1]
        for c, i, j in T.grid(*gradient.shape[1:]):
            chosen = T.decl_buffer((1,), "int64")
            chosen[0] = -1
            if options.greatest:
                most = T.decl_buffer((1,), x.dtype)
                most[0] = 0.0
                for a, b in T.grid(points[0], points[1]):
                    place = T.decl_buffer((2,), x.dtype)
                    _find_point(place, bins, points, (i, j), (a, b))
                    value = T.decl_buffer((1,), x.dtype)
                    value[0] = 0.0
                    if _is_near(sizes, place[0], place[1]):
                        pixels, rests = T.decl_buffer((2, 2), "int64"), T.decl_buffer((2,), x.dtype)
                        _find_corners(pixels, rests, 0, place, sizes[0])
                        _find_corners(pixels, rests, 1, place, sizes[1])
                        terms = [
                            x[n, c, u, v] * weight * factor
                            for u, v, weight, factor in _corners(pixels, rests)
                        ]
                        value[0] = folded(operator.add, terms)
                    if (chosen[0] < 0) | (value[0] > most[0]):
                        chosen[0] = a * points[1] + b
                        most[0] = value[0]
            for a, b in T.grid(points[0], points[1]):
                place = T.decl_buffer((2,), x.dtype)
                _find_point(place, bins, points, (i, j), (a, b))
                is_used = chosen[0] == a * points[1] + b if options.greatest else True
                if _is_near(sizes, place[0], place[1]) & is_used:
                    g = (
                        gradient[r, c, i, j]
                        if options.greatest
                        else gradient[r, c, i, j] / count[0]
                    )
                    pixels, rests = T.decl_buffer((2, 2), "int64"), T.decl_buffer((2,), x.dtype)
                    _find_corners(pixels, rests, 0, place, sizes[0])
                    _find_corners(pixels, rests, 1, place, sizes[1])
                    above, below, before, after = T.meta_var(
                        (pixels[0, 0], pixels[0, 1], pixels[1, 0], pixels[1, 1])
                    )
                    p, q = T.meta_var((rests[0], rests[1]))
                    by_x[n, c, above, before] += g * (1.0 - p) * (1.0 - q)
                    by_x[n, c, above, after] += g * (1.0 - p) * q
                    by_x[n, c, below, before] += g * p * (1.0 - q)
                    by_x[n, c, below, after] += g * p * q
                    u0, u1 = x[n, c, above, before], x[n, c, above, after]
                    v0, v1 = x[n, c, below, before], x[n, c, below, after]
                    by_y = g * ((v0 - u0) * (1.0 - q) + (v1 - u1) * q) * options.scale
                    by_z = g * ((u1 - u0) * (1.0 - p) + (v1 - v0) * p) * options.scale
                    part_down = _part(bins[0, 1], points[0], gradient.shape[2], i, a, options.least)
                    part_across = _part(
                        bins[1, 1], points[1], gradient.shape[3], j, b, options.least
                    )
                    _add_by_borders(by_rois, r, 2, T.Select(place[0] > 0.0, by_y, 0.0), part_down)
                    _add_by_borders(by_rois, r, 1, T.Select(place[1] > 0.0, by_z, 0.0), part_across)


def _part(
    extent: Number, points: Number, bins: Number, bin_: Number, point: Number, least: float | None
) -> Number:
    """The position of a point of a bin, as a part of the extent of a region that may change."""
    dtype = extent.dtype
    inner = (_like(point, dtype) + 0.5) / _like(points, dtype)
    part = (_like(bin_, dtype) + inner) / _like(bins, dtype)
    return part if least is None else Select(extent > least, part, ops.const(0.0, dtype))


@kernel_text
def _add_by_borders(by_rois: Any, r: Number, border: int, moved: Number, part: Number) -> None:
    """Add the gradients by a border and by the one opposite, of a point at a part of the extent."""
    by_rois[r, border] += moved * (1.0 - part)
    by_rois[r, border + 2] += moved * part


@kernel_text
def _clear(buffer: Any) -> None:
    """All elements are 0."""
    for (*at,) in T.grid(*buffer.shape):
        buffer[*at] = 0


@kernel_text
def find_bin(
    found: Any, first: Number, last: Number, bin_: Number, count: Number, size: Number, more: int
) -> None:
    """The first pixel of a bin along an axis, and the one after its last pixel.

    Images have `size` pixels, regions `count` bins; `more` is 1 where the last border belongs to a
    region.
    """
    start = _rounded(first)
    extent = larger(_rounded(last) - start + more, T.int64(1))
    step = _like(extent, first.dtype) / _like(count, first.dtype)
    begin = _int(T.floor(_like(bin_, first.dtype) * step)) + start
    end = _int(T.ceil(_like(bin_ + 1, first.dtype) * step)) + start
    found[0] = smaller(larger(begin, T.int64(0)), size - (1 - more))
    found[1] = smaller(larger(end, T.int64(0)), size - (1 - more))


def maxima(
    x: Tensor, rois: Tensor, scale: float, rows: Number, columns: Number, *, places: bool = True
) -> list[Tensor]:
    """The maximum of each bin, 0 if it is empty, and with `places` its position, then -1."""
    shape = [rois.shape[0], rows, columns, x.shape[1]]
    outputs: dict[str, Any] = {"out": (shape, str(x.dtype))}
    if places:
        outputs["places"] = shape, "int32"
    inputs = {"x": transpose(x, [0, 2, 3, 1]), "rois": rois}
    found = written("roi_pool", outputs, inputs, _maximum, scale=scale)
    return [transpose(out, [0, 3, 1, 2]) for out in found]


@kernel_text
def _maximum(x: Any, rois: Any, out: Any, scale: float, places: Any = None) -> None:
    regions, rows, columns, channels = T.meta_var(out.shape)
    for r, i, j in T.grid(regions, rows, columns):
        left, top, right, bottom = T.meta_var([rois[r, k] * scale for k in range(1, 5)])
        down, across = [T.decl_buffer((2,), "int64") for _ in range(2)]
        find_bin(down, top, bottom, i, rows, x.shape[1], 1)
        find_bin(across, left, right, j, columns, x.shape[2], 1)
        n = _int(rois[r, 0])
        for c in T.serial(channels):
            out[r, i, j, c] = 0.0
        if places is not None:
            for c in T.serial(channels):
                places[r, i, j, c] = -1
        # A pixel is of the same bin in each channel.
        for y in T.serial(down[0], down[1]):
            for z in T.serial(across[0], across[1]):
                values = T.decl_buffer((channels,), x.dtype)
                for c in T.serial(channels):
                    values[c] = x[n, y, z, c]
                for c in T.serial(channels):
                    is_more = T.meta_var(
                        ((y == down[0]) & (z == across[0])) | (values[c] > out[r, i, j, c])
                    )
                    if places is not None:
                        place = T.Cast("int32", y * x.shape[2] + z)
                        places[r, i, j, c] = T.Select(is_more, place, places[r, i, j, c])
                    out[r, i, j, c] = T.Select(is_more, values[c], out[r, i, j, c])


def maxima_gradient(gradient: Tensor, places: Tensor, x: Tensor, rois: Tensor) -> Tensor:
    """The gradient of `maxima` with respect to the image: it goes to the maximal elements."""
    inputs = {"gradient": gradient, "places": places, "x": x, "rois": rois}
    outputs = {"by_x": (x.shape, str(x.dtype))}
    return written("roi_pool_backward", outputs, inputs, _maximum_gradient)[0]


@kernel_text
def _maximum_gradient(gradient: Any, places: Any, x: Any, rois: Any, by_x: Any) -> None:
    _clear(by_x)
    width = T.meta_var(x.shape[3])
    for r, c, i, j in T.grid(*gradient.shape):
        n, place = _int(rois[r, 0]), _int(places[r, c, i, j])
        if place >= 0:
            by_x[n, c, place // width, place % width] += gradient[r, c, i, j]


def suppressed(
    data: Tensor, count: Tensor, indices: Tensor, **attrs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The boxes, best first, the entries of `indices` for the selected ones, and their number.

    All are -1 where no box remains. Boxes follow each other if scores decay, or with
    `invalid_to_bottom`, and indices with `return_indices`.
    """
    dtype, (batch, size, _) = str(data.dtype), data.shape

    def score(b: Number, j: Number) -> Number:
        lowest = ops.const(-math.inf, dtype)
        return Select(j < count[b], data(b, j, attrs["score_index"]), lowest)

    ranked = te.compute((batch, size), score, name="ranked")
    order = argsort(ranked, axis=1, is_ascend=False, dtype="int32")
    decays = attrs["soft_nms_sigma"] > 0
    outputs = {
        "out": (data.shape, dtype),
        "places": ((batch, size), "int32"),
        "kept": ((batch, 1), "int32"),
    }
    inputs = {"data": data, "order": order, "count": count, "indices": indices}
    least = attrs["score_threshold"] if decays else 0.0
    options = SimpleNamespace(**attrs, decays=decays, least=ops.const(least, dtype))
    found, places, kept = written(
        "non_max_suppression", outputs, inputs, _suppress, options=options
    )
    return found, places, kept


@kernel_text
def _suppress(
    data: Any, order: Any, count: Any, indices: Any, out: Any, places: Any, kept: Any, options: Any
) -> None:
    batch, size, fields = T.meta_var(data.shape)
    score = T.meta_var(options.score_index)
    decays, least, most = T.meta_var((options.decays, options.least, options.max_output_size))
    for b in T.serial(batch):
        limit = size if options.top_k <= 0 else T.min(size, T.int64(options.top_k))
        end = T.max(T.min(T.Cast("int64", count[b]), limit), T.int64(0))
        for j in T.serial(size):
            if j < end:
                places[b, j] = order[b, j]
                for f in T.serial(fields):
                    out[b, j, f] = data[b, order[b, j], f]
            else:
                _remove(out, places, b, j)
        total, chosen = [T.decl_buffer((1,), "int64") for _ in range(2)]
        total[0] = 0
        for i in T.serial(end):
            if decays:
                _find_best(chosen, out, places, b, total[0], end, score, least)
            accepted = chosen[0] >= 0 if decays else out[b, i, score] > least
            if accepted & (total[0] < most if most > 0 else True):
                place = total[0] if decays else i
                if decays:
                    _swap(out, places, b, place, chosen[0])
                for j in T.serial(place + 1, end):
                    if (places[b, j] >= 0) & (out[b, j, score] > least):
                        _lower(out, places, b, place, j, options)
                total[0] += 1
            elif not decays:
                _remove(out, places, b, i)
        if decays:
            for j in T.serial(total[0], size):
                _remove(out, places, b, j)
        if options.return_indices or (options.invalid_to_bottom and not decays):
            _move_to_front(out, places, indices if options.return_indices else None, b)
        kept[b, 0] = total[0]


@kernel_text
def _remove(out: Any, places: Any, b: Number, j: Number) -> None:
    for f in T.serial(out.shape[2]):
        out[b, j, f] = -1.0
    places[b, j] = -1


def _ratio(out: Any, b: Number, i: Number, j: Number, start: int) -> Number:
    """The intersection of two boxes over their union."""
    zero = ops.const(0.0, out.dtype)
    spans, areas = [], [ops.const(1.0, out.dtype)] * 2
    for axis in (start, start + 1):
        ends = [(out[b, n, axis], out[b, n, axis + 2]) for n in (i, j)]
        low, high = ([f(*pair) for pair in ends] for f in (ops.minimum, ops.maximum))
        spans.append(ops.maximum(zero, ops.minimum(*high) - ops.maximum(*low)))
        areas = [a * (y - x) for a, x, y in zip(areas, low, high, strict=True)]
    shared = spans[0] * spans[1]
    union = areas[0] + areas[1] - shared
    positive = union > zero
    return Select(positive, shared / Select(positive, union, union + 1.0), zero)


@kernel_text
def _lower(
    out: Any, places: Any, b: Number, i: Number, j: Number, options: SimpleNamespace
) -> None:
    """Suppress box j, or lower its score, because of box i."""
    score, own = T.meta_var((options.score_index, options.id_index))
    if options.force_suppress or own < 0 or out[b, i, own] == out[b, j, own]:
        ratio = _ratio(out, b, i, j, options.coord_start)
        if ratio >= options.iou_threshold:
            places[b, j] = -1
            if not options.decays:
                out[b, j, score] = -1.0
        elif options.decays:
            out[b, j, score] *= T.exp(ratio * ratio * (-0.5 / options.soft_nms_sigma))
            if out[b, j, score] <= options.least:
                places[b, j] = -1


@kernel_text
def _find_best(
    chosen: Any, out: Any, places: Any, b: Any, first: Any, end: Any, score: int, least: Any
) -> None:
    """The best of the boxes from `first` on that are not suppressed, or -1."""
    best = T.decl_buffer((1,), out.dtype)
    chosen[0] = -1
    best[0] = least
    for j in T.serial(first, end):
        if (places[b, j] >= 0) & (out[b, j, score] > best[0]):
            chosen[0] = j
            best[0] = out[b, j, score]


@kernel_text
def _swap(out: Any, places: Any, b: Number, i: Number, j: Number) -> None:
    place = places[b, i]
    places[b, i] = places[b, j]
    places[b, j] = place
    for f in T.serial(out.shape[2]):
        number = out[b, i, f]
        out[b, i, f] = out[b, j, f]
        out[b, j, f] = number


@kernel_text
def _move_to_front(out: Any, places: Any, indices: Any, b: Number) -> None:
    """Move the selected rows, or their `indices` instead, to the front."""
    size = T.meta_var(out.shape[1])
    total = T.decl_buffer((1,), "int64")
    total[0] = 0
    for j in T.serial(size):
        if places[b, j] >= 0:
            if indices is not None:
                places[b, total[0]] = indices[b, places[b, j]]
            else:
                for f in T.serial(out.shape[2]):
                    out[b, total[0], f] = out[b, j, f]
            total[0] += 1
    for j in T.serial(total[0], size):
        if indices is not None:
            places[b, j] = -1
        else:
            _remove(out, places, b, j)


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
