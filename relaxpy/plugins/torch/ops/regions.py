"""torchvision's operators of regions of images, and which boxes stay."""

from __future__ import annotations

from typing import Any

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.regions import bins, larger, smaller
from relaxpy.ir.tir import ops
from relaxpy.plugins.importing.tensors import Loops, Size, kernel, reshaped, shape_of, wide_dtype
from relaxpy.plugins.importing.windows import Windows, averaged, deformed, maxima
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import converter


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
) -> tuple[Expr, Expr]:
    return maxima(cx, x, rois, scale, rows, columns)


@converter("ps_roi_pool", namespace="torchvision")
def ps_roi_pool(
    cx: Context, x: Expr, rois: Expr, scale: float, rows: Size, columns: Size
) -> tuple[Expr, Expr]:
    dtype = wide_dtype(x)
    image, boxes = (cx.emit(cx.tensor(item, dtype)) for item in (x, rois))

    def write(k: Loops, x: Any, rois: Any, out: Any) -> None:
        with k.every(out.shape) as (r, c, i, j):
            (y0, high), (z0, wide), n = bins(k, x, rois, r, (i, j), out, scale, 0)
            total = k.local(ops.const(0.0, dtype))
            channel = (c * rows + i) * columns + j
            with k.loop(high, start=y0) as y, k.loop(wide, start=z0) as z:
                k.store(total, 0, total[0] + x[n, channel, y, z])
            area = larger(high * wide, ops.const(1, "int64"))
            k.store(out, (r, c, i, j), total[0] / ops.cast_to(area, dtype))

    (found,) = kernel(cx, "ps_roi_pool", [(cx.result_shape(0), dtype)], [image, boxes], write)
    return found, _channels(cx)


@converter("nms", namespace="torchvision")
def nms(cx: Context, boxes: Expr, scores: Expr, threshold: float) -> Expr:
    """The boxes that overlap no better one by more than the threshold, the best one first."""
    dtype = wide_dtype(boxes)
    corners = cx.emit(cx.tensor(boxes, dtype))
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
                    smaller(boxes[box, c + 2], boxes[other, c + 2])
                    - larger(boxes[box, c], boxes[other, c])
                    for c in (0, 1)
                ]
                joint = k.local(larger(sides[0], zero) * larger(sides[1], zero))[0]
                one, two = (
                    (boxes[b, 2] - boxes[b, 0]) * (boxes[b, 3] - boxes[b, 1]) for b in (box, other)
                )
                with k.when(joint / (one + two - joint) > ops.const(threshold, dtype)):
                    k.store(stays, 0, 0)
            with k.when(stays[0]):
                k.store(kept, found[0], box)
                k.store(found, 0, found[0] + 1)

    outputs: list[tuple[list[Size], str]] = [([count], "int64"), ([1], "int64")]
    kept, found = kernel(cx, "nms", outputs, [corners, order], write)
    return R.strided_slice(kept, [0], [0], [cx.number_of(found, "kept")])


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
    return R.add(y, reshaped(added, [1, -1, 1, 1]))
