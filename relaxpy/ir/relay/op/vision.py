"""Operators of object detection that are expressions of Relax operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relax.op.vision import valid_counts
from relaxpy.ir.relay.op.define import Args, define, dims, dtype_of, known_shape, listed, number
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.signal import column, grid_of, inside, sampled


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


def _multibox_prior(args: Args, attrs: Any) -> rx.Expr:
    """Boxes of several sizes and shapes around the centre of each cell; the data do not matter."""
    *_, height, width = known_shape(args[0])
    sizes, ratios = (listed(attrs[name]) for name in ("sizes", "ratios"))
    steps, offsets = listed(attrs["steps"]), listed(attrs["offsets"])
    step_y, step_x = (
        1 / size if given < 0 else given for size, given in zip((height, width), steps, strict=True)
    )
    shapes = [(size, 1.0) for size in sizes] + [(sizes[0], ratio) for ratio in ratios[1:]]
    half_width = np.array([size * height / width * ratio**0.5 / 2 for size, ratio in shapes])
    half_height = np.array([size / ratio**0.5 / 2 for size, ratio in shapes])
    y = ((np.arange(height) + offsets[0]) * step_y)[:, None, None]
    x = ((np.arange(width) + offsets[1]) * step_x)[None, :, None]
    sides = x - half_width, y - half_height, x + half_width, y + half_height
    boxes = np.stack(np.broadcast_arrays(*sides), -1).reshape(1, -1, 4)
    if attrs["clip"]:
        boxes = boxes.clip(0, 1)
    return rx.Constant(boxes.astype(dtype_of(args[0])))


define(
    "vision.multibox_prior",
    "data",
    _multibox_prior,
    {
        "sizes": (1.0,),
        "ratios": (1.0,),
        "steps": (-1.0, -1.0),
        "offsets": (0.5, 0.5),
        "clip": False,
    },
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


def sampled_regions(data: rx.Expr, rois: rx.Expr, attrs: Any) -> rx.Expr:
    """Return the mean, or the greatest, of so many samples within the bins of regions."""
    samples = int(attrs["sample_ratio"])
    dtype, scale = dtype_of(data), float(attrs["spatial_scale"])
    pooled = listed(attrs["pooled_size"])
    positions, masks = [], []
    for axis, bins in zip((1, 0), pooled, strict=True):  # rows, then columns
        size = known_shape(data)[3 - axis]
        first = R.multiply(column(rois, 2 if axis else 1), number(scale, dtype))
        last = R.multiply(column(rois, 4 if axis else 3), number(scale, dtype))
        extent = R.maximum(R.subtract(last, first), number(1, dtype))
        steps = (np.arange(bins * samples) + 0.5) / (bins * samples)
        position = R.add(first, R.multiply(extent, rx.Constant(steps.astype(dtype)[None])))
        positions.append(position)
        masks.append(inside(position, -1, size))
    batch = R.reshape(R.astype(column(rois, 0), "int32"), (-1,))
    images = R.take(data, batch, 0, mode="clip")
    values = sampled(images, *grid_of(*positions))
    mask = R.expand_dims(R.logical_and(*grid_of(*masks)), 1)
    values = R.where(mask, values, number(0, dtype))
    count, channels = known_shape(rois)[0], known_shape(data)[1]
    shape = (count, channels, pooled[0], samples, pooled[1], samples)
    reduce = R.mean if attrs["mode"] == "avg" else R.max
    return reduce(R.reshape(values, shape), [3, 5])


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


def _yolo_reorg(args: Args, attrs: Any) -> rx.Expr:
    """Elements of a grid in blocks as channels, in the order of Darknet.

    Groups of channels are taken for rows and columns of greater images first.
    """
    stride = attrs["stride"]
    if len(dims(args[0])) != 4 or type(stride) is not int or stride < 1:
        raise RelationError(f"data has 4 dimensions, and stride is positive, found {stride!r:.60}")
    batch, channels, height, width = known_shape(args[0])
    if channels % stride**2 or height % stride or width % stride:
        raise RelationError(
            f"the channels are a multiple of {stride**2}, the height and the width of {stride}, "
            f"found {args[0].struct_info}"
        )
    groups = channels // stride**2
    blocks = R.reshape(args[0], (batch, groups, height, stride, width, stride))
    turned = R.permute_dims(blocks, [0, 3, 5, 1, 2, 4])
    return R.reshape(turned, (batch, channels * stride**2, height // stride, width // stride))


define("vision.yolo_reorg", "data", _yolo_reorg, {"stride": 1})
