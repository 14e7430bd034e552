"""Proposals of regions of an image that are likely objects."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relay.op.define import Args, define_emit, dtype_of, known_shape, listed, number
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.selection import (
    Element,
    areas,
    best_first,
    computed,
    corners,
    emit_tensors,
    number_tensor,
    survivors,
)
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import PrimExpr


def _anchors(attrs: Any) -> np.ndarray[Any, Any]:
    """Return the boxes (anchors, 4) of all ratios and scales around the first cell."""
    base = float(attrs["feature_stride"])
    centre = (base - 1) / 2
    boxes = []
    for ratio in listed(attrs["ratios"]):
        for scale in listed(attrs["scales"]):
            width = math.floor(math.sqrt(math.floor(base * base / ratio)) + 0.5) * scale
            height = math.floor(width / scale * ratio + 0.5) * scale
            x, y = (width - 1) / 2, (height - 1) / 2
            boxes.append((centre - x, centre - y, centre + x, centre + y))
    return np.array(boxes)


def _predicted(args: Args, attrs: Any) -> tuple[rx.Expr, rx.Expr]:
    """Return the boxes (batch, cells, 4) that the deltas make of the anchors, and their scores.

    The cells are those of the rows, each with all anchors. Boxes end at the border of the image;
    those that are too small are enlarged, and have the score -1, as cells beyond the image do.
    """
    scores, deltas, info = args
    kind, (batch, _, height, width) = dtype_of(scores), known_shape(scores)
    anchors, stride = _anchors(attrs), int(attrs["feature_stride"])
    count = len(anchors)

    def constant(array: np.ndarray[Any, Any]) -> rx.Expr:
        return rx.Constant(array.astype(kind))

    def part(data: rx.Expr, axis: int, begin: int, end: int) -> rx.Expr:
        return R.strided_slice(data, [axis], [begin], [end], [1])

    def of_image(column: int, rank: int) -> rx.Expr:
        return R.reshape(part(info, 1, column, column + 1), (batch, *[1] * (rank - 1)))

    y, x = (stride * np.arange(size) for size in (height, width))
    corner = np.stack(np.meshgrid(x, y), -1)[:, :, None]
    boxes = anchors + np.concatenate([corner, corner], -1)  # (height, width, anchors, 4)
    moves = R.reshape(deltas, (batch, count, 4, height, width))
    moves = R.permute_dims(moves, [0, 3, 4, 1, 2])
    one, half = number(1, kind), number(0.5, kind)
    if attrs["iou_loss"]:
        moved = R.add(constant(boxes), moves)
    else:
        size = boxes[..., 2:] - boxes[..., :2] + 1
        middle = boxes[..., :2] + (size - 1) / 2
        centre = R.add(R.multiply(part(moves, 4, 0, 2), constant(size)), constant(middle))
        extent = R.multiply(R.exp(part(moves, 4, 2, 4)), constant(size))
        reach = R.multiply(R.subtract(extent, one), half)
        moved = R.concat([R.subtract(centre, reach), R.add(centre, reach)], 4)
    sides = R.take(info, rx.Constant(np.array([1, 0, 1, 0])), 1)
    border = R.subtract(R.reshape(sides, (batch, 1, 1, 1, 4)), one)
    moved = R.maximum(R.minimum(moved, border), number(0, kind))
    least = R.multiply(of_image(2, 5), number(attrs["rpn_min_size"], kind))
    extents = R.add(R.subtract(part(moved, 4, 2, 4), part(moved, 4, 0, 2)), one)
    is_small = R.max(R.astype(R.less(extents, least), "int32"), [4], True)
    is_small = R.astype(is_small, "bool")
    signs = constant(np.array([-0.5, -0.5, 0.5, 0.5]))
    moved = R.where(is_small, R.add(moved, R.multiply(least, signs)), moved)
    hidden = R.squeeze(is_small, [4])
    for column, sizes in ((0, (1, height, 1, 1)), (1, (1, 1, width, 1))):
        cells = R.floor(R.divide(of_image(column, 4), number(stride, kind)))
        positions = constant(np.arange(max(sizes)).reshape(sizes))
        hidden = R.logical_or(hidden, R.greater_equal(positions, cells))
    ranks = R.permute_dims(part(scores, 1, count, 2 * count), [0, 2, 3, 1])
    ranks = R.where(hidden, number(-1, kind), ranks)
    cells_count = height * width * count
    return R.reshape(moved, (batch, cells_count, 4)), R.reshape(ranks, (batch, cells_count))


def _chosen_regions(attrs: Any, boxes: Tensor, order: Tensor) -> list[Tensor]:
    """Return which boxes do not overlap a better one too much, their number, and the boxes."""
    batch, count, _ = boxes.shape
    before = int(attrs["rpn_pre_nms_top_n"])
    if before > 0:
        count = ops.minimum(count, ops.const(before, "int64"))
    best = computed(
        (batch, count, ops.const(4, "int64")), lambda i, j, k: boxes(i, order(i, j), k), "best"
    )

    def overlap(field: Element, j: PrimExpr, k: PrimExpr, least: PrimExpr) -> PrimExpr:
        shared, a, b = areas(corners(field, j), corners(field, k), border=1)
        return ops.compare(tir.GT, ops.div(shared, ops.sub(ops.add(a, b), shared)), least)

    candidates = computed((batch, count), lambda i, j: ops.const(1, "int32"), "candidates")
    threshold = number_tensor(attrs["threshold"], str(boxes.dtype))
    return [*survivors(candidates, best, number_tensor(-1, "int32"), threshold, overlap), best]


def _regions(attrs: Any, total: Tensor, best: Tensor, front: Tensor) -> Tensor:
    """Return so many of the chosen boxes, each after the number of its image.

    If there are fewer, they follow each other again.
    """
    kind, rows = str(best.dtype), ops.const(int(attrs["rpn_post_nms_top_n"]), "int64")

    def region(row: PrimExpr, k: PrimExpr) -> PrimExpr:
        image, place = ops.floordiv(row, rows), ops.floormod(row, rows)
        again = ops.floormod(ops.cast_to(place, "int32"), total(image))
        field = ops.maximum(ops.sub(k, 1), ops.const(0, "int64"))
        coordinate = best(image, front(image, again), field)
        is_first = ops.compare(tir.EQ, k, ops.const(0, "int64"))
        return intrin.if_then_else(is_first, ops.cast_to(image, kind), coordinate)

    shape = ops.mul(best.shape[0], rows), ops.const(5, "int64")
    return computed(shape, region, "regions")


def _proposal(builder: BlockBuilder, args: Args, attrs: Any) -> rx.Expr:
    scores, deltas, info = args
    count = len(_anchors(attrs))
    batch, _, height, width = (*known_shape(scores), 0, 0, 0, 0)[:4]
    shapes = (
        ("cls_prob", scores, [batch, 2 * count, height, width]),
        ("bbox_pred", deltas, [batch, 4 * count, height, width]),
        ("im_info", info, [batch, 3]),
    )
    for name, data, expected in shapes:
        if known_shape(data) != expected:
            raise RelationError(
                f"{name} of {count} anchors has the shape {tuple(expected)}, "
                f"found {tuple(known_shape(data))}"
            )
    if int(attrs["rpn_post_nms_top_n"]) <= 0:
        raise RelationError(f"rpn_post_nms_top_n is positive, found {attrs['rpn_post_nms_top_n']}")
    boxes, ranks = (builder.emit(expr) for expr in _predicted(args, attrs))
    chosen = emit_tensors(
        builder,
        "chosen_regions",
        lambda *tensors: _chosen_regions(attrs, *tensors),
        boxes,
        best_first(builder, ranks),
    )
    flags, total, best = (builder.emit(rx.TupleGetItem(chosen, k)) for k in range(3))
    front = best_first(builder, flags)
    return builder.call_te(lambda *tensors: _regions(attrs, *tensors), total, best, front)


define_emit(
    "vision.proposal",
    "cls_prob bbox_pred im_info",
    _proposal,
    {
        "scales": (4.0, 8.0, 16.0, 32.0),
        "ratios": (0.5, 1.0, 2.0),
        "feature_stride": 16,
        "threshold": 0.7,
        "rpn_pre_nms_top_n": 6000,
        "rpn_post_nms_top_n": 300,
        "rpn_min_size": 16,
        "iou_loss": False,
    },
)
