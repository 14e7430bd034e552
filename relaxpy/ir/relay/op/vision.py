"""Operators of object detection that do not choose boxes one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import define, dtype_of, listed
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.signal import column, grid_of, inside, known_shape, number, sampled

Args = tuple[rx.Expr, ...]


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
    """The number of boxes above a score, these first, and their places; -1 fills the rest."""
    data, threshold = args
    batch, count, width = known_shape(data)
    dtype, id_index = dtype_of(data), int(attrs["id_index"])

    def feature(index: int) -> rx.Expr:
        part = R.strided_slice(data, [2], [index], [index + 1], [1])
        return R.squeeze(part, [2])

    valid = R.greater(feature(int(attrs["score_index"])), R.astype(threshold, dtype))
    if id_index >= 0:
        valid = R.logical_and(valid, R.greater_equal(feature(id_index), number(0, dtype)))
    invalid = R.astype(R.logical_not(valid), "int32")
    order = R.argsort(invalid, 1, False, "int32")  # stable
    counts = R.sum(R.astype(valid, "int32"), [1])
    kept = R.less(rx.Constant(np.arange(count, dtype="int32")), R.expand_dims(counts, 1))
    places = R.broadcast_to(R.expand_dims(order, 2), (batch, count, width))
    moved = R.gather_elements(data, places, 1)
    return rx.Tuple((
        counts,
        R.where(R.expand_dims(kept, 2), moved, number(-1, dtype)),
        R.where(kept, order, number(-1, "int32")),
    ))  # fmt: skip


define(
    "vision.get_valid_counts",
    "data score_threshold",
    _get_valid_counts,
    {"id_index": 0, "score_index": 1},
)


def _roi_align(args: Args, attrs: Any) -> rx.Expr:
    data, rois = args
    samples = int(attrs["sample_ratio"])
    if samples <= 0 or attrs["layout"] != "NCHW" or attrs["mode"] not in ("avg", "max"):
        raise RelationError(
            "the layout is NCHW, the mode avg or max, and sample_ratio, the number of samples, "
            f"positive, found {attrs['layout']!r}, {attrs['mode']!r} and {samples}"
        )
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


define(
    "vision.roi_align",
    "data rois",
    _roi_align,
    {
        "pooled_size": REQUIRED,
        "spatial_scale": REQUIRED,
        "sample_ratio": -1,
        "layout": "NCHW",
        "mode": "avg",
    },
)
