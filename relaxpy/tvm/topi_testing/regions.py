"""Regions and boxes of images, element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from relaxpy.ir.core.dtype import Array
from relaxpy.tvm.topi_testing.windows import Sizes, each_of

Mode: TypeAlias = Literal["avg", "max", b"avg", b"max", 0, 1]


def _between(image: Array, y: float, x: float) -> float:
    """The bilinear value at a point of an image whose borders are extended by one pixel."""
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    p, q = y - top, x - left
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper, lower = ((1 - q) * image[k, left] + q * image[k, right] for k in (top, bottom))
    return float((1 - p) * upper + p * lower)


def roi_align_nchw_python(
    a_np: Array,
    rois_np: Array,
    pooled_size: Sizes,
    spatial_scale: float,
    sample_ratio: int,
    mode: Mode = b"avg",
    aligned: bool = False,
) -> Array:
    """ROI align: the mean or maximum of interpolated values in each bin of regions."""
    bins = each_of(pooled_size, 2)
    found = np.zeros((len(rois_np), a_np.shape[1], *bins), a_np.dtype)
    for r, c, i, j in np.ndindex(*found.shape):
        left, top, right, bottom = (rois_np[r, 1:].astype("float64") * spatial_scale).tolist()
        sides = [bottom - top, right - left]
        steps = [(s if aligned else max(s, 1)) / n for s, n in zip(sides, bins, strict=True)]
        points = [sample_ratio if sample_ratio > 0 else math.ceil(s) for s in steps]
        values = [
            _between(
                a_np[int(rois_np[r, 0]), c],
                top + (i + (a + 0.5) / points[0]) * steps[0],
                left + (j + (b + 0.5) / points[1]) * steps[1],
            )
            for a, b in np.ndindex(*points)
        ]
        total = max if mode in (b"max", "max", 1) else sum
        found[r, c, i, j] = total(values) / (1 if total is max else len(values))
    return found


def roi_align_nhwc_python(a_np: Array, *args: Any, **kwargs: Any) -> Array:
    """`roi_align_nchw_python` of images whose channels are last."""
    return np.moveaxis(roi_align_nchw_python(np.moveaxis(a_np, -1, 1), *args, **kwargs), 1, -1)


def roi_pool_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Sizes, spatial_scale: float
) -> Array:
    """ROI pooling: the maximum of each bin of regions with rounded borders, or 0 if it is empty."""
    bins = each_of(pooled_size, 2)
    found = np.zeros((len(rois_np), a_np.shape[1], *bins), a_np.dtype)
    for r, c, i, j in np.ndindex(*found.shape):
        left, top, right, bottom = np.floor(rois_np[r, 1:] * spatial_scale + 0.5).astype(int)
        spans = []
        for first, last, n, k, size in (
            (top, bottom, bins[0], i, a_np.shape[2]),
            (left, right, bins[1], j, a_np.shape[3]),
        ):
            step = max(last - first + 1, 1) / n
            ends = first + math.floor(k * step), first + math.ceil((k + 1) * step)
            spans.append(slice(*(min(max(end, 0), size) for end in ends)))
        part = a_np[int(rois_np[r, 0]), c, spans[0], spans[1]]
        found[r, c, i, j] = part.max() if part.size else 0.0
    return found


def get_valid_counts_python(
    data: Array, score_threshold: float = 0, id_index: int = 0, score_index: int = 1
) -> tuple[Array, Array, Array]:
    """The number of boxes with a class and a score above a threshold, the boxes, their indices."""
    totals = np.zeros(len(data), "int32")
    boxes, indices = np.full_like(data, -1), np.full(data.shape[:2], -1, "int32")
    for b, k in np.ndindex(*data.shape[:2]):
        if data[b, k, score_index] > score_threshold and (
            id_index < 0 or data[b, k, id_index] >= 0
        ):
            boxes[b, totals[b]], indices[b, totals[b]] = data[b, k], k
            totals[b] += 1
    return totals, boxes, indices


def _area(top: float, left: float, bottom: float, right: float) -> float:
    return max(bottom - top, 0.0) * max(right - left, 0.0)


def overlap(first: Sequence[float], second: Sequence[float]) -> float:
    """The intersection over union (IoU) of two boxes, by their corners."""
    a, b = (
        (min(y1, y2), min(x1, x2), max(y1, y2), max(x1, x2)) for y1, x1, y2, x2 in (first, second)
    )
    shared = _area(*map(max, a[:2], b[:2]), *map(min, a[2:], b[2:]))
    union = _area(*a) + _area(*b) - shared
    return shared / union if union > 0 else 0.0


def non_max_suppression_python(
    data: Array,
    valid_count: Array,
    indices: Array,
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
) -> Array | tuple[Array, ...]:
    """Non-maximum suppression of the boxes of each image."""
    decays, corners = soft_nms_sigma > 0, slice(coord_start, coord_start + 4)
    least = score_threshold if decays else 0.0

    def weakened(row: Array, other: Array) -> Array | None:
        """Another box beside one that was chosen; None if it is suppressed."""
        if force_suppress or id_index < 0 or row[id_index] == other[id_index]:
            ratio = overlap(row[corners].tolist(), other[corners].tolist())
            if ratio >= iou_threshold:
                return None
            if decays:
                other[score_index] *= math.exp(-(ratio**2) / (2 * soft_nms_sigma))
        return other if other[score_index] > least else None

    boxes, places = np.full_like(data, -1), np.full(data.shape[:2], -1, "int32")
    totals = np.zeros((len(data), 1), "int32")
    for b, count in enumerate(np.clip(valid_count, 0, data.shape[1]).tolist()):
        ranked = sorted(range(count), key=lambda k: -data[b, k, score_index])
        ranked = ranked[:top_k] if top_k > 0 else ranked
        left = {k: data[b, k].astype("float64") for k in ranked if data[b, k, score_index] > least}
        chosen: list[tuple[int, Array]] = []
        while left and not 0 < max_output_size <= len(chosen):
            best = max(left, key=lambda k: left[k][score_index])  # the first one of equal ones
            row = left.pop(best)
            chosen.append((best, row))
            after = {k: weakened(row, other) for k, other in left.items()}
            left = {k: other for k, other in after.items() if other is not None}
        totals[b] = len(chosen)
        for n, (k, row) in enumerate(chosen):
            at = n if decays or invalid_to_bottom or return_indices else ranked.index(k)
            boxes[b, at], places[b, n] = row, indices[b, k]
    if return_indices:
        return (boxes, places, totals) if decays else (places, totals)
    return boxes
