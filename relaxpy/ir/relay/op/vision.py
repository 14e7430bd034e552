"""Operators of object detection that are expressions of Relax operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relax.op.vision import valid_counts
from relaxpy.ir.relay.op.define import Args, define, dims, dtype_of, known_shape, listed, number
from relaxpy.ir.relay.op.relations import RelationError


def _all_class_non_max_suppression(args: Args, attrs: Any) -> rx.Expr:
    boxes, scores, count, overlap, score = args
    return R.vision.all_class_non_max_suppression(
        boxes, scores, count, overlap, score, attrs["output_format"]
    )


define(
    "vision.all_class_non_max_suppression",
    "boxes scores max_output_boxes_per_class iou_threshold score_threshold",
    _all_class_non_max_suppression,
    {"output_format": "onnx"},
    results=lambda _, attrs: 2 if attrs["output_format"] == "onnx" else 3,
)


def _get_valid_counts(args: Args, attrs: Any) -> rx.Expr:
    data, threshold = args
    return valid_counts(
        data,
        R.astype(threshold, dtype_of(data)),
        int(attrs["id_index"]),
        int(attrs["score_index"]),
    )


define(
    "vision.get_valid_counts",
    "data score_threshold",
    _get_valid_counts,
    {"id_index": 0, "score_index": 1},
    results=3,
)


def _multibox_transform_loc(args: Args, attrs: Any) -> rx.Expr:
    """The boxes of the most likely classes, without background, these first; -1 fills the rest."""
    scores, moves, anchors = args
    if [len(dims(arg)) for arg in args] != [3, 2, 3]:
        raise RelationError("cls_prob has 3 dimensions, loc_pred 2 and anchor 3")
    kind, (batch, classes, count) = dtype_of(scores), known_shape(scores)
    if known_shape(anchors)[1:] != [count, 4] or known_shape(moves) != [batch, 4 * count]:
        raise RelationError(
            f"anchor has the shape (1, {count}, 4) and loc_pred ({batch}, {4 * count}), "
            f"found {anchors.struct_info} and {moves.struct_info}"
        )
    if classes < 2 or count < 1:
        raise RelationError(
            f"a class besides the background and a box are needed, found {scores.struct_info}"
        )
    objects = R.strided_slice(scores, [1], [1], [classes], [1])
    best = R.max(objects, [1])
    label = R.astype(R.argmax(objects, 1), kind)
    is_object = R.greater_equal(best, number(float(attrs["threshold"]), kind))
    corner, end = (R.strided_slice(anchors, [2], [k], [k + 2], [1]) for k in (0, 2))
    half, two = number(0.5, kind), number(2, kind)
    size, centre = R.subtract(end, corner), R.divide(R.add(corner, end), two)
    variances = rx.Constant(np.array(listed(attrs["variances"]), kind))
    scaled = R.multiply(R.reshape(moves, (batch, count, 4)), variances)
    shift, growth = (R.strided_slice(scaled, [2], [k], [k + 2], [1]) for k in (0, 2))
    middle = R.add(R.multiply(shift, size), centre)
    reach = R.multiply(R.multiply(R.exp(growth), size), half)
    boxes = R.concat([R.subtract(middle, reach), R.add(middle, reach)], 2)
    if attrs["clip"]:
        boxes = R.maximum(R.minimum(boxes, number(1, kind)), number(0, kind))
    rows = R.concat([R.expand_dims(label, 2), R.expand_dims(best, 2), boxes], 2)
    order = R.argsort(R.astype(R.logical_not(is_object), "int32"), 1, False, "int32")  # stable
    places = R.broadcast_to(R.expand_dims(order, 2), (batch, count, 6))
    moved = R.gather_elements(rows, places, 1)
    counts = R.sum(R.astype(is_object, "int32"), [1])
    kept = R.less(rx.Constant(np.arange(count, dtype="int32")), R.expand_dims(counts, 1))
    return rx.Tuple((R.where(R.expand_dims(kept, 2), moved, number(-1, kind)), counts))


define(
    "vision.multibox_transform_loc",
    "cls_prob loc_pred anchor",
    _multibox_transform_loc,
    {"clip": True, "threshold": 0.01, "variances": (0.1, 0.1, 0.2, 0.2)},
    results=2,
)
