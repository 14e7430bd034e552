"""Boxes of objects that were detected."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxpy.ir.relax import op
from tests.ir.relax.op.cases.case import Array, Case, case


def _area(top: float, left: float, bottom: float, right: float) -> float:
    return max(bottom - top, 0.0) * max(right - left, 0.0)


def _overlap(first: Array, second: Array) -> float:
    a, b = (
        (min(y1, y2), min(x1, x2), max(y1, y2), max(x1, x2))
        for y1, x1, y2, x2 in (first.tolist(), second.tolist())
    )
    shared = _area(*map(max, a[:2], b[:2]), *map(min, a[2:], b[2:]))
    union = _area(*a) + _area(*b) - shared
    return shared / union if union > 0 else 0.0


def _selected(boxes: Array, scores: Array, most: int, iou: float, least: float) -> list[int]:
    """ONNX, NonMaxSuppression, of one class."""
    kept: list[int] = []
    for box in sorted(range(len(scores)), key=lambda k: -scores[k]):
        fits = all(_overlap(boxes[box], boxes[other]) <= iou for other in kept)
        if len(kept) < most and scores[box] > least and fits:
            kept.append(box)
    return kept


def suppressed(
    boxes: Array, scores: Array, most: int, iou: float, least: float, form: str = "onnx"
) -> Any:
    batches, classes, count = scores.shape
    rows = [
        (b, c, k)
        for b in range(batches)
        for c in range(classes)
        for k in _selected(boxes[b], scores[b, c], most, iou, least)
    ]
    if form == "onnx":
        whole = np.full((batches * classes * count, 3), -1)
        for place, row in enumerate(rows):
            whole[place] = row
        return whole, np.array([len(rows)])
    indices = np.full((batches, classes * count, 2), -1)
    values = np.zeros((batches, classes * count))
    totals = np.zeros(batches, "int64")
    for b, c, k in rows:
        indices[b, totals[b]] = c, k
        values[b, totals[b]] = scores[b, c, k]
        totals[b] += 1
    return indices, values, totals


def cases() -> Iterator[Case]:
    random = np.random.default_rng(3)
    boxes = random.random((2, 6, 4)).astype("float32")
    boxes[:, 3] = boxes[:, 0]
    boxes[:, 4, 2:] = boxes[:, 4, :2]
    scores = random.random((2, 3, 6)).astype("float32")
    for label, limits in {
        "few": (2, 0.3, 0.2),
        "all": (6, 1.0, -1.0),
        "apart": (6, 0.0, 0.0),
        "none": (0, 0.5, 0.0),
        "no good ones": (6, 0.5, 2.0),
    }.items():
        for form in ("onnx", "tensorflow"):
            yield Case(
                "relax.vision.all_class_non_max_suppression",
                f"{label} {form}",
                (boxes, scores),
                lambda b, s, v=limits, f=form: op.vision.all_class_non_max_suppression(
                    b, s, *v, output_format=f
                ),
                lambda b, s, v=limits, f=form: suppressed(b, s, *v, f),
                smooth=form == "onnx",  # selected scores are not
            )
    yield Case(
        "relax.vision.all_class_non_max_suppression",
        "nothing",
        (boxes[:, :0], scores[..., :0]),
        lambda b, s: op.vision.all_class_non_max_suppression(b, s, 3, 0.5, 0.0),
        lambda b, s: suppressed(b, s, 3, 0.5, 0.0),
    )
    yield from _counted()
    yield from _moved()
    yield from _regions()
    yield from _remaining()


def counted(data: Array, threshold: float, kind: int, score: int) -> Any:
    """One box after the other."""
    totals = np.zeros(len(data), "int32")
    boxes, indices = np.full(data.shape, -1.0), np.full(data.shape[:2], -1)
    for b, k in np.ndindex(*data.shape[:2]):
        if data[b, k, score] > threshold and (kind < 0 or data[b, k, kind] >= 0):
            boxes[b, totals[b]], indices[b, totals[b]] = data[b, k], k
            totals[b] += 1
    return totals, boxes, indices


def _counted() -> Iterator[Case]:
    data = np.random.default_rng(5).random((2, 4, 3)).astype("float32")
    data[:, [0, 2], 0] = -1
    for label, attrs in {
        "some": (0.5, 0, 1),
        "of all classes": (0.25, -1, 2),
        "all": (-2.0, -1, 0),
        "none": (2.0, 0, 1),
    }.items():
        yield Case(
            "relax.vision.get_valid_counts",
            label,
            (data,),
            lambda v, a=attrs: op.vision.get_valid_counts(v, *a),
            lambda v, a=attrs: counted(v, *a),
            literal=((0, 2),),
        )


def moved(
    scores: Array,
    moves: Array,
    anchors: Array,
    clip: bool = False,
    threshold: float = 0.0,
    variances: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0),
    keep_background: bool = True,
    apply_softmax: bool = True,
) -> Any:
    """One anchor after the other."""
    batch, _, count = scores.shape
    boxes = np.zeros((batch, count, 4), np.result_type(moves, anchors))
    for b, k in np.ndindex(batch, count):
        x, y, w, h = moves[b, 4 * k : 4 * k + 4] * np.array(variances, moves.dtype)
        left, top, right, bottom = anchors[0, k]
        middle = (top + bottom) / 2 + y * (bottom - top), (left + right) / 2 + x * (right - left)
        half = np.exp(h) * (bottom - top) / 2, np.exp(w) * (right - left) / 2
        boxes[b, k] = np.concatenate([np.subtract(middle, half), np.add(middle, half)])
    if clip:
        boxes = np.clip(boxes, 0, 1)
    if apply_softmax:
        powers = np.exp(scores - scores.max(1, keepdims=True))
        scores = powers / powers.sum(1, keepdims=True)
    with np.errstate(invalid="ignore"):  # infinity times 0
        scores = scores * (scores >= threshold).astype(scores.dtype)
    if not keep_background:
        scores[:, 0] = 0
    return boxes, scores


def _moved() -> Iterator[Case]:
    rng = np.random.default_rng(6)
    scores, moves = rng.standard_normal((2, 2, 3)), rng.standard_normal((2, 12)) / 2
    anchors = rng.random((1, 3, 4))
    inputs = tuple(array.astype("float32") for array in (scores, moves, anchors))
    for label, attrs in {
        "default": {},
        "clipped": {"clip": True, "variances": (0.5, 0.25, 1.5, 0.75)},
        "without background": {"threshold": 0.3, "keep_background": False},
        "of scores": {"threshold": 0.1, "apply_softmax": False},
    }.items():
        yield Case(
            "relax.vision.multibox_transform_loc",
            label,
            inputs,
            lambda *v, a=attrs: op.vision.multibox_transform_loc(*v, **a),
            lambda *v, a=attrs: moved(*v, **a),
            roundings=40,
            literal=((1, 1), (2, 0), (2, 2)),
            needs=("numbers",),
        )


def _between(image: Array, y: float, x: float) -> float:
    """The value at a point of an image whose borders go on by one pixel."""
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    p, q = y - top, x - left
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper, lower = ((1 - q) * image[k, left] + q * image[k, right] for k in (top, bottom))
    return float((1 - p) * upper + p * lower)


def aligned(
    data: Array,
    rois: Array,
    bins: tuple[int, int],
    scale: float,
    ratio: int = -1,
    is_aligned: bool = False,
    layout: str = "NCHW",
    mode: str = "avg",
) -> Array:
    images = data if layout == "NCHW" else data.transpose(0, 3, 1, 2)
    found = np.zeros((len(rois), images.shape[1], *bins))
    for r, c, i, j in np.ndindex(*found.shape):
        left, top, right, bottom = (rois[r, 1:].astype("float64") * scale).tolist()
        sides = [bottom - top, right - left]
        steps = [(s if is_aligned else max(s, 1)) / n for s, n in zip(sides, bins, strict=True)]
        points = [ratio if ratio > 0 else math.ceil(s) for s in steps]
        values = [
            _between(
                images[int(rois[r, 0]), c],
                top + (i + (a + 0.5) / points[0]) * steps[0],
                left + (j + (b + 0.5) / points[1]) * steps[1],
            )
            for a, b in np.ndindex(*points)
        ]
        found[r, c, i, j] = max(values) if mode == "max" else sum(values) / len(values)
    return found if layout == "NCHW" else found.transpose(0, 2, 3, 1)


def pooled(data: Array, rois: Array, bins: tuple[int, int], scale: float) -> Array:
    found = np.zeros((len(rois), data.shape[1], *bins))
    for r, c, i, j in np.ndindex(*found.shape):
        left, top, right, bottom = np.floor(rois[r, 1:] * scale + 0.5).astype(int).tolist()
        spans = []
        for first, last, n, k, size in (
            (top, bottom, bins[0], i, data.shape[2]),
            (left, right, bins[1], j, data.shape[3]),
        ):
            step = max(last - first + 1, 1) / n
            ends = first + math.floor(k * step), first + math.ceil((k + 1) * step)
            spans.append(slice(*(min(max(end, 0), size) for end in ends)))
        part = data[int(rois[r, 0]), c, spans[0], spans[1]]
        found[r, c, i, j] = part.max() if part.size else 0.0
    return found


def _regions() -> Iterator[Case]:
    random = np.random.default_rng(7)
    data = random.standard_normal((2, 2, 5, 6)).astype("float32")
    rois = np.array(
        [[0, 1, 0.5, 4.2, 3.1], [1, -0.7, 1.2, 2.1, 6.3], [1, 2, 2, 2.1, 2.2]], "float32"
    )
    options = {"literal": ((1, 1),), "only": ("values",), "roundings": 40}
    for label, attrs in {
        "some points": ((2, 2), 1.0, 2),
        "as many points as pixels": ((2, 3), 0.5, 0),
        "small regions": ((1, 2), 0.75, -1, True),
        "greatest": ((2, 1), 1.0, 2, True, "NCHW", "max"),
    }.items():
        yield case("vision.roi_align", label, (data, rois), aligned_by(*attrs), *attrs, **options)
    last = (2, 2), 1.0, 2, False, "NHWC"
    turned = data.transpose(0, 2, 3, 1).copy()
    yield case(
        "vision.roi_align", "channels last", (turned, rois), aligned_by(*last), *last, **options
    )
    for bins, scale in (((2, 2), 1.0), ((3, 1), 0.5)):
        yield case(
            "vision.roi_pool",
            f"{bins}",
            (data, rois),
            lambda d, r, b=bins, s=scale: pooled(d, r, b, s),
            bins,
            scale,
            **options,
        )


def aligned_by(*attrs: Any) -> Any:
    return lambda data, rois: aligned(data, rois, *attrs)


def remaining(
    data: Array,
    count: Array,
    indices: Array,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> Any:
    """The definition, one box after the other, for a class, a score and four coordinates."""
    decays = soft_nms_sigma > 0
    boxes, places = np.full(data.shape, -1.0), np.full(data.shape[:2], -1)
    totals = np.zeros((len(data), 1), int)
    for b in range(len(data)):
        ranked = sorted(
            range(min(max(int(count[b]), 0), len(data[b]))), key=lambda k: -data[b, k, 1]
        )
        ranked = ranked[:top_k] if top_k > 0 else ranked
        left = [(k, data[b, k].astype("float64")) for k in ranked]
        least = score_threshold if decays else 0.0
        left = [(k, row) for k, row in left if row[1] > least]
        chosen: list[tuple[int, Array]] = []
        while left and not 0 < max_output_size <= len(chosen):
            best = max(range(len(left)), key=lambda n: (left[n][1][1], -n))
            chosen.append(left.pop(best))
            row, rest = chosen[-1][1], []
            for k, other in left:
                ratio = _overlap(row[2:], other[2:])
                if force_suppress or id_index < 0 or row[id_index] == other[id_index]:
                    if ratio >= iou_threshold:
                        continue
                    if decays:
                        other[1] *= math.exp(-(ratio**2) / (2 * soft_nms_sigma))
                if other[1] > least:
                    rest.append((k, other))
            left = rest
        totals[b] = len(chosen)
        for n, (k, row) in enumerate(chosen):
            at = n if decays or invalid_to_bottom or return_indices else ranked.index(k)
            boxes[b, at], places[b, n] = row, indices[b, k]
    if return_indices:
        return (boxes, places, totals) if decays else (places, totals)
    return boxes


def _remaining() -> Iterator[Case]:
    random = np.random.default_rng(8)
    data = random.random((2, 7, 6)).astype("float32")
    data[..., 0] = random.integers(0, 2, (2, 7))
    data[:, 5] = data[:, 2] * np.array([1, 0.5, 1, 1, 1, 1], "float32")
    count, outside = np.array([7, 4], "int32"), np.array([9, -1], "int32")
    indices = np.tile(np.arange(7, 0, -1, "int32"), (2, 1))
    for label, attrs in {
        "of classes": {"iou_threshold": 0.3},
        "of all": {"force_suppress": True, "iou_threshold": 0.2, "top_k": 4},
        "few": {"id_index": -1, "max_output_size": 2},
        "counts outside": {"id_index": -1},
        "boxes": {"return_indices": False, "iou_threshold": 0.1},
        "boxes first": {"return_indices": False, "invalid_to_bottom": True, "iou_threshold": 0.1},
        "decaying": {"soft_nms_sigma": 0.3, "id_index": -1, "score_threshold": 0.2},
        "decaying boxes": {"soft_nms_sigma": 0.1, "return_indices": False, "force_suppress": True},
    }.items():
        yield Case(
            "relax.vision.non_max_suppression",
            label,
            (data, outside if label == "counts outside" else count, indices),
            lambda *v, a=attrs: op.vision.non_max_suppression(*v, **a),
            lambda *v, a=attrs: remaining(*v, **a),
            roundings=40,
            only=("values",),
            literal=((0, 2),),
        )
