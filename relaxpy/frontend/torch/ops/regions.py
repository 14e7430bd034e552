"""torchvision's operators of regions of images: what is read between pixels, and which boxes stay.

A region is a row of five numbers: the image, and the left, upper, right and lower border.
"""

from __future__ import annotations

from typing import Any

from relaxpy.frontend.shared.tensors import Size, dtype_of, reshaped, shape_of
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.loops import Loops, Number, kernel, whole
from relaxpy.frontend.torch.registry import converter
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import ceil, floor

#: The upper, left, lower and right border of a region.
Borders = tuple[Number, Number, Number, Number]


def _wide(dtype: str) -> str:
    return dtype if dtype == "float64" else "float32"


def _max(a: Number, b: Number) -> Number:
    return Select(a > b, a, b)


def _min(a: Number, b: Number) -> Number:
    return Select(a < b, a, b)


def _int(x: Number) -> Number:
    return ops.cast_to(x, DataType("int64"))


def _rounded(x: Number) -> Number:
    """The nearest integer; of two, the one that is farther from 0."""
    return _int(Select(x < 0.0, ceil(x - 0.5), floor(x + 0.5)))


def _like(x: Number, dtype: Any) -> Number:
    return ops.cast_to(whole(x), DataType(str(dtype)))


def _clamped(k: Loops, x: Any, at: tuple[Number, ...], y: Number, z: Number) -> Number:
    """The element of `x[at]` at (y, z) between its four neighbours; borders go on by one pixel."""
    height, width = x.shape[-2:]
    dtype = x.dtype
    found = k.local(ops.const(0.0, dtype))
    near = (y >= -1.0) & (y <= _like(height, dtype)) & (z >= -1.0) & (z <= _like(width, dtype))
    with k.when(near):
        sides: list[tuple[Any, Any, Any]] = []
        for place, extent in ((y, height), (z, width)):
            inside = k.local(_max(place, ops.const(0.0, dtype)))
            low = k.local(_int(inside[0]))
            with k.when(low[0] >= extent - 1):
                k.store(low, 0, whole(extent) - 1)
                k.store(inside, 0, _like(low[0], dtype))
            high = k.local(_min(low[0] + 1, whole(extent) - 1))
            sides.append((low[0], high[0], k.local(inside[0] - _like(low[0], dtype))[0]))
        (top, bottom, p), (left, right, q) = sides
        above = x[(*at, top, left)] * (1.0 - q) + x[(*at, top, right)] * q
        below = x[(*at, bottom, left)] * (1.0 - q) + x[(*at, bottom, right)] * q
        k.store(found, 0, above * (1.0 - p) + below * p)
    return found[0]


def _borders(k: Loops, rois: Any, r: Number, scale: float, shift: float = 0.0) -> Borders:
    """The upper, left, lower and right border of a region, in pixels of the image."""
    left, top, right, bottom = (k.local(rois[r, c] * scale - shift)[0] for c in (1, 2, 3, 4))
    return top, left, bottom, right


def _averaged(
    cx: Context,
    x: Expr,
    rois: Expr,
    scale: float,
    pooled: tuple[Size, Size],
    ratio: int,
    *,
    shift: float,
    least: float | None,
    by_place: bool,
) -> Expr:
    """The mean over a grid of points in each bin; `by_place`, each bin has a channel of its own."""
    dtype = _wide(dtype_of(x))
    image, regions = (cx.emit(cx.tensor(item, dtype)) for item in (x, rois))
    rows, columns = pooled
    channels = cx.result_shape(0 if by_place else None)[1]
    shape = [shape_of(rois)[0], channels, rows, columns]

    def write(k: Loops, x: Any, rois: Any, out: Any) -> None:
        with k.loop(out.shape[0]) as r:
            top, left, bottom, right = _borders(k, rois, r, scale, shift)
            n = k.local(_int(rois[r, 0]))[0]
            steps: list[tuple[Number, Number, Number]] = []
            for first, last, count in ((top, bottom, rows), (left, right, columns)):
                extent = last - first
                if least is not None:
                    extent = _max(extent, ops.const(least, dtype))
                step = k.local(extent / _like(count, dtype))[0]
                points = whole(ratio) if ratio > 0 else _int(ceil(step))
                steps.append((first, step, k.local(points, "int64")[0]))
            (y0, high, down), (z0, wide, across) = steps
            count = down * across
            if not by_place:
                count = _max(count, ops.const(1, "int64"))
            divisor = k.local(_like(count, dtype))[0]
            with k.every(out.shape[1:]) as (c, i, j):
                total = k.local(ops.const(0.0, dtype))
                channel = (c * rows + i) * columns + j if by_place else c
                with k.every((down, across)) as (a, b):
                    y, z = (
                        k.local(
                            start
                            + _like(bin_, dtype) * step
                            + (_like(point, dtype) + 0.5) * step / _like(points, dtype)
                        )[0]
                        for start, step, points, bin_, point in (
                            (y0, high, down, i, a),
                            (z0, wide, across, j, b),
                        )
                    )
                    k.store(total, 0, total[0] + _clamped(k, x, (n, channel), y, z))
                k.store(out, (r, c, i, j), total[0] / divisor)

    (found,) = kernel(cx, "roi_align", [(shape, dtype)], [image, regions], write)
    return found


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
    return _averaged(
        cx, x, rois, scale, (rows, columns), ratio, shift=shift, least=least, by_place=False
    )


def _channels(cx: Context) -> Expr:
    """Which channel of the image each element of a result is made of."""
    shape = cx.result_shape(1)
    bins = R.arange(0, cx.simplify(shape[1] * shape[2] * shape[3]), 1, "int32")
    return R.broadcast_to(reshaped(bins, [1, *shape[1:]]), tuple(shape))


@converter("ps_roi_align", namespace="torchvision")
def ps_roi_align(
    cx: Context, x: Expr, rois: Expr, scale: float, rows: Size, columns: Size, ratio: int
) -> tuple[Expr, Expr]:
    found = _averaged(
        cx, x, rois, scale, (rows, columns), ratio, shift=0.5, least=None, by_place=True
    )
    return found, _channels(cx)


def _bins(
    k: Loops, rois: Any, r: Number, at: tuple[Number, Number], out: Any, scale: float, more: int
) -> tuple[list[tuple[Number, Number]], Any]:
    """The first pixel and the one after the last, of both axes, before they are cut to the image.

    `more` is 1 where the last border belongs to a region.
    """
    dtype = rois.dtype
    top, left, bottom, right = (
        k.local(_rounded(border))[0] for border in _borders(k, rois, r, scale)
    )
    spans: list[tuple[Number, Number]] = []
    pairs = ((top, bottom, at[0], out.shape[2]), (left, right, at[1], out.shape[3]))
    for first, last, bin_, count in pairs:
        extent = _max(last - first + more, ops.const(1, "int64"))
        step = k.local(_like(extent, dtype) / _like(count, dtype))[0]
        begin = _int(floor(_like(bin_, dtype) * step)) + first
        end = _int(ceil(_like(bin_ + 1, dtype) * step)) + first
        spans.append((k.local(begin)[0], k.local(end)[0]))
    return spans, k.local(_int(rois[r, 0]))[0]


def _cut(k: Loops, pair: tuple[Number, Number], limit: Number) -> tuple[Number, Number]:
    zero = ops.const(0, "int64")
    first, last = (k.local(_min(_max(x, zero), limit))[0] for x in pair)
    return first, k.local(_max(last - first, zero))[0]


@converter("roi_pool", namespace="torchvision")
def roi_pool(
    cx: Context, x: Expr, rois: Expr, scale: float, rows: Size, columns: Size
) -> tuple[Expr, Expr]:
    dtype = _wide(dtype_of(x))
    image, regions = (cx.emit(cx.tensor(item, dtype)) for item in (x, rois))
    shape = [shape_of(rois)[0], shape_of(x)[1], rows, columns]

    def write(k: Loops, x: Any, rois: Any, out: Any, places: Any) -> None:
        height, width = (whole(size) for size in x.shape[-2:])
        with k.every(out.shape) as (r, c, i, j):
            (down, across), n = _bins(k, rois, r, (i, j), out, scale, 1)
            (y0, high), (z0, wide) = _cut(k, down, height), _cut(k, across, width)
            k.store(out, (r, c, i, j), 0.0)
            k.store(places, (r, c, i, j), -1)
            with k.loop(high, start=y0) as y, k.loop(wide, start=z0) as z:
                is_first = (y == y0) & (z == z0)
                with k.when(is_first | (x[n, c, y, z] > out[r, c, i, j])):
                    k.store(out, (r, c, i, j), x[n, c, y, z])
                    k.store(places, (r, c, i, j), y * width + z)

    outputs = [(shape, dtype), (shape, "int32")]
    found, places = kernel(cx, "roi_pool", outputs, [image, regions], write)
    return found, places


@converter("ps_roi_pool", namespace="torchvision")
def ps_roi_pool(
    cx: Context, x: Expr, rois: Expr, scale: float, rows: Size, columns: Size
) -> tuple[Expr, Expr]:
    dtype = _wide(dtype_of(x))
    image, regions = (cx.emit(cx.tensor(item, dtype)) for item in (x, rois))

    def write(k: Loops, x: Any, rois: Any, out: Any) -> None:
        height, width = (whole(size) - 1 for size in x.shape[-2:])
        with k.every(out.shape) as (r, c, i, j):
            (down, across), n = _bins(k, rois, r, (i, j), out, scale, 0)
            (y0, high), (z0, wide) = _cut(k, down, height), _cut(k, across, width)
            total = k.local(ops.const(0.0, dtype))
            channel = (c * rows + i) * columns + j
            with k.loop(high, start=y0) as y, k.loop(wide, start=z0) as z:
                k.store(total, 0, total[0] + x[n, channel, y, z])
            area = _max(high * wide, ops.const(1, "int64"))
            k.store(out, (r, c, i, j), total[0] / _like(area, dtype))

    (found,) = kernel(cx, "ps_roi_pool", [(cx.result_shape(0), dtype)], [image, regions], write)
    return found, _channels(cx)


@converter("nms", namespace="torchvision")
def nms(cx: Context, boxes: Expr, scores: Expr, threshold: float) -> Expr:
    """The boxes that overlap no better one by more than the threshold, the best one first."""
    dtype = _wide(dtype_of(boxes))
    wide = cx.emit(cx.tensor(boxes, dtype))
    order = cx.emit(R.argsort(scores, 0, descending=True, dtype="int64"))
    count = shape_of(boxes)[0]

    def write(k: Loops, boxes: Any, order: Any, kept: Any, found: Any) -> None:
        zero = ops.const(0.0, dtype)
        k.store(found, 0, 0)
        with k.loop(boxes.shape[0]) as i:
            box = k.local(order[i])[0]
            stays = k.local(ops.const(1, "bool"))
            with k.loop(found[0]) as j:
                other = k.local(kept[j])[0]
                sides = [
                    _min(boxes[box, c + 2], boxes[other, c + 2])
                    - _max(boxes[box, c], boxes[other, c])
                    for c in (0, 1)
                ]
                joint = k.local(_max(sides[0], zero) * _max(sides[1], zero))[0]
                one, two = (
                    (boxes[b, 2] - boxes[b, 0]) * (boxes[b, 3] - boxes[b, 1]) for b in (box, other)
                )
                with k.when(joint / (one + two - joint) > ops.const(threshold, dtype)):
                    k.store(stays, 0, 0)
            with k.when(stays[0]):
                k.store(kept, found[0], box)
                k.store(found, 0, found[0] + 1)

    outputs: list[tuple[list[Size], str]] = [([count], "int64"), ([1], "int64")]
    kept, found = kernel(cx, "nms", outputs, [wide, order], write)
    return R.strided_slice(kept, [0], [0], [cx.number_of(found, "kept")])


def _fading(k: Loops, x: Any, at: tuple[Number, ...], y: Number, z: Number) -> Number:
    """The element of `x[at]` at (y, z) between its four neighbours, which are 0 outside of it."""
    height, width = (whole(size) for size in x.shape[-2:])
    dtype = x.dtype
    total = k.local(ops.const(0.0, dtype))
    top, left = k.local(_int(floor(y)))[0], k.local(_int(floor(z)))[0]
    p, q = k.local(y - _like(top, dtype))[0], k.local(z - _like(left, dtype))[0]
    for i, weight in ((top, 1.0 - p), (top + 1, p)):
        for j, factor in ((left, 1.0 - q), (left + 1, q)):
            with k.when((i >= 0) & (i < height) & (j >= 0) & (j < width)):
                k.store(total, 0, total[0] + weight * factor * x[(*at, i, j)])
    return total[0]


@converter("deform_conv2d", namespace="torchvision")
def deform_conv2d(
    cx: Context,
    x: Expr,
    weight: Expr,
    offset: Expr,
    mask: Expr,
    bias: Expr,
    *numbers: Any,
) -> Expr:
    """A convolution whose kernel's elements are moved, as a product with the pixels they meet."""
    stride, pad, dilation = (numbers[k : k + 2] for k in (0, 2, 4))
    groups, moved, is_masked = numbers[6:9]
    dtype = _wide(dtype_of(x))
    operands = [cx.emit(cx.tensor(item, dtype)) for item in (x, offset, mask)]
    batch, channels = shape_of(x)[:2]
    filters, inner, high, wide = shape_of(weight)
    rows, columns = cx.result_shape()[2:]
    taps = cx.simplify(high * wide)
    each = cx.simplify(channels // moved)

    def write(k: Loops, x: Any, offset: Any, mask: Any, out: Any) -> None:
        with k.every(out.shape) as (n, c, a, b, i, j):
            tap = k.local((c // each) * taps + a * wide + b)[0]
            y, z = (
                k.local(_like(i_ * s + d * a_ - p, dtype) + offset[n, tap * 2 + axis, i, j])[0]
                for axis, (i_, a_, s, p, d) in enumerate(
                    zip((i, j), (a, b), stride, pad, dilation, strict=True)
                )
            )
            value = _fading(k, x, (n, c), y, z)
            k.store(out, (n, c, a, b, i, j), value * mask[n, tap, i, j] if is_masked else value)

    shape = [batch, channels, high, wide, rows, columns]
    (met,) = kernel(cx, "deformed", [(shape, dtype)], operands, write)
    length = cx.simplify(inner * taps)
    area = cx.simplify(rows * columns)
    pixels = cx.emit(reshaped(met, [batch, groups, length, area]))
    matrices = reshaped(cx.tensor(weight, dtype), [1, groups, filters // groups, length])
    found = reshaped(R.matmul(cx.emit(matrices), pixels), [batch, filters, rows, columns])
    return R.add(found, reshaped(cx.tensor(bias, dtype), [1, filters, 1, 1]))
