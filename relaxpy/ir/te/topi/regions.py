"""Reads of regions of images.

A region is a row of five numbers: the image, and the left, upper, right and lower border.
"""

from __future__ import annotations

import operator
from functools import reduce as folded
from typing import Any, Literal

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te.loops import Loops, Number, whole, written
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import ceil, floor
from relaxpy.support.dataclass import dataclass

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


def _is_near(x: Any, y: Number, z: Number) -> Number:
    """The condition that (y, z) is at most a pixel outside."""
    height, width = (_like(size, x.dtype) for size in x.shape[-2:])
    return (y >= -1.0) & (y <= height) & (z >= -1.0) & (z <= width)


def _corners(k: Loops, x: Any, y: Number, z: Number) -> list[tuple[Number, Number, Number]]:
    """For both axes the pixels before and after a point, and its distance from the former."""
    dtype = x.dtype
    sides: list[tuple[Number, Number, Number]] = []
    for place, extent in zip((y, z), x.shape[-2:], strict=True):
        inside = k.local(larger(place, ops.const(0.0, dtype)))
        low = k.local(_int(inside[0]))
        with k.when(low[0] >= extent - 1):
            k.store(low, 0, whole(extent) - 1)
            k.store(inside, 0, _like(low[0], dtype))
        high = k.local(smaller(low[0] + 1, whole(extent) - 1))
        sides.append((low[0], high[0], k.local(inside[0] - _like(low[0], dtype))[0]))
    return sides


def _clamped(
    k: Loops, x: Any, at: tuple[Number, ...], y: Number, z: Number, *, greatest: bool
) -> Number:
    """The bilinear interpolation of `x[at]` at (y, z); borders are extended by one pixel.

    It is a sum of four terms, or with `greatest` their maximum.
    """
    found = k.local(ops.const(0.0, x.dtype))
    with k.when(_is_near(x, y, z)):
        (top, bottom, p), (left, right, q) = _corners(k, x, y, z)
        terms = [
            x[(*at, i, j)] * weight * factor
            for i, weight in ((top, 1.0 - p), (bottom, p))
            for j, factor in ((left, 1.0 - q), (right, q))
        ]
        k.store(found, 0, folded(larger if greatest else operator.add, terms))
    return found[0]


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
    shape = [rois.shape[0], x.shape[1] if channels is None else channels, rows, columns]

    def write(k: Loops, x: Any, rois: Any, out: Any) -> None:
        with k.loop(out.shape[0]) as r:
            borders = _borders(k, rois, r, scale, shift)
            n = k.local(_int(rois[r, 0]))[0]
            down, across = _axes(k, borders, pooled, ratio, least)
            count = down.points * across.points
            if channels is None:
                count = larger(count, ops.const(1, "int64"))
            divisor = k.local(_like(count, dtype))[0]
            with k.every(out.shape[1:]) as (c, i, j):
                total = k.local(ops.const(0.0, dtype))
                channel = c if channels is None else (c * rows + i) * columns + j
                with k.every((down.points, across.points)) as (a, b):
                    y, z = k.local(down.at(i, a))[0], k.local(across.at(j, b))[0]
                    value = _clamped(k, x, (n, channel), y, z, greatest=greatest == "terms")
                    if greatest:
                        is_first = (a == 0) & (b == 0)
                        k.store(total, 0, Select(is_first | (value > total[0]), value, total[0]))
                    else:
                        k.store(total, 0, total[0] + value)
                k.store(out, (r, c, i, j), total[0] if greatest else total[0] / divisor)

    [found] = written("roi_align", [(shape, dtype)], [x, rois], write)
    return found


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
                        value = _clamped(k, x, (n, c), y, z, greatest=False)
                        with k.when((chosen[0] < 0) | (value > most[0])):
                            k.store(chosen, 0, a * across.points + b)
                            k.store(most, 0, value)
                with k.every((down.points, across.points)) as (a, b):
                    y, z = k.local(down.at(i, a))[0], k.local(across.at(j, b))[0]
                    near = _is_near(x, y, z)
                    if greatest:
                        near = near & (chosen[0] == a * across.points + b)
                    with k.when(near):
                        g = gradient[r, c, i, j]
                        g = k.local(g if greatest else g / count)[0]
                        (top, bottom, p), (left, right, q) = _corners(k, x, y, z)
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
    x: Any,
    rois: Any,
    r: Number,
    at: tuple[Number, Number],
    out: Any,
    scale: float,
    more: int,
) -> tuple[tuple[Number, Number], tuple[Number, Number], Number]:
    """The first pixel of a bin and the number of pixels along both axes, and the image.

    `more` is 1 where the last border belongs to a region.
    """
    dtype, zero = rois.dtype, ops.const(0, "int64")
    top, left, bottom, right = (
        k.local(_rounded(border))[0] for border in _borders(k, rois, r, scale)
    )
    spans: list[tuple[Number, Number]] = []
    pairs = ((top, bottom, at[0], 2), (left, right, at[1], 3))
    for first, last, bin_, axis in pairs:
        extent = larger(last - first + more, ops.const(1, "int64"))
        step = k.local(_like(extent, dtype) / _like(out.shape[axis], dtype))[0]
        begin = _int(floor(_like(bin_, dtype) * step)) + first
        end = _int(ceil(_like(bin_ + 1, dtype) * step)) + first
        limit = whole(x.shape[axis]) - (1 - more)
        begin, end = (k.local(smaller(larger(bound, zero), limit))[0] for bound in (begin, end))
        spans.append((begin, k.local(larger(end - begin, zero))[0]))
    down, across = spans
    return down, across, k.local(_int(rois[r, 0]))[0]


def maxima(
    x: Tensor, rois: Tensor, scale: float, rows: Number, columns: Number
) -> tuple[Tensor, Tensor]:
    """The maximum of each bin, and its position; 0 and -1 if the bin is empty."""
    shape = [rois.shape[0], x.shape[1], rows, columns]

    def write(k: Loops, x: Any, rois: Any, out: Any, places: Any) -> None:
        width = whole(x.shape[-1])
        with k.every(out.shape) as (r, c, i, j):
            (y0, high), (z0, wide), n = bins(k, x, rois, r, (i, j), out, scale, 1)
            k.store(out, (r, c, i, j), 0.0)
            k.store(places, (r, c, i, j), -1)
            with k.loop(high, start=y0) as y, k.loop(wide, start=z0) as z:
                is_first = (y == y0) & (z == z0)
                with k.when(is_first | (x[n, c, y, z] > out[r, c, i, j])):
                    k.store(out, (r, c, i, j), x[n, c, y, z])
                    k.store(places, (r, c, i, j), y * width + z)

    outputs = [(shape, str(x.dtype)), (shape, "int32")]
    found, places = written("roi_pool", outputs, [x, rois], write)
    return found, places


def maxima_gradient(gradient: Tensor, places: Tensor, x: Tensor, rois: Tensor) -> Tensor:
    """The gradient of `maxima` by the image: it goes to the maximal elements."""

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
