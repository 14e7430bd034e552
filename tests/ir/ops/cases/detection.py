"""Boxes of objects that were detected."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from relaxpy.topi import testing
from relaxpy.tvm.topi_testing.regions import overlap
from tests.ir.ops.cases.case import Array, Case, case


def _selected(boxes: Array, scores: Array, most: int, iou: float, least: float) -> list[int]:
    """ONNX, NonMaxSuppression, of one class."""
    kept: list[int] = []
    for box in sorted(range(len(scores)), key=lambda k: -scores[k]):
        fits = all(overlap(boxes[box].tolist(), boxes[k].tolist()) <= iou for k in kept)
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
            lambda v, a=attrs: testing.get_valid_counts_python(v, *a),
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


def _regions() -> Iterator[Case]:
    random = np.random.default_rng(7)
    data = random.standard_normal((2, 2, 3, 4)).astype("float32")
    rois = np.array(  # the image is an integer also if it has a fraction, as in differences
        [[0, 1.1, 0.6, 2.7, 2.1], [1.25, -0.6, 1.2, 2.1, 6.3], [1.25, 2, 2, 2.1, 2.2]], "float32"
    )
    options = {"literal": ((1, 1),), "only": ("values",), "roundings": 40}
    for label, attrs in {
        "some points": ((2, 2), 1.0, 2, False, "NCHW", "avg"),
        "as many points as pixels": ((2, 3), 0.5, 0, False, "NCHW", "avg"),
        "small regions": ((1, 2), 0.75, -1, True, "NCHW", "avg"),
        "greatest": ((2, 1), 1.0, 2, True, "NCHW", "max"),
        "channels last": ((2, 2), 1.0, 2, False, "NHWC", "avg"),
    }.items():
        *sizes, is_aligned, layout, mode = attrs
        last = layout == "NHWC"
        align = testing.roi_align_nhwc_python if last else testing.roi_align_nchw_python
        yield case(
            "vision.roi_align",
            label,
            (data.transpose(0, 2, 3, 1).copy() if last else data, rois),
            lambda d, r, f=align, a=(*sizes, mode, is_aligned): f(d, r, *a),
            *attrs,
            **options,
        )
    images, few = np.tile(data, (1, 1, 5, 4)), ((2, 2), 1.0, 2)
    for mode in ("avg", "max"):
        yield case(
            "vision.roi_align",
            f"few points of large images, {mode}",
            (images, rois),
            lambda d, r, m=mode: testing.roi_align_nchw_python(d, r, *few, m, False),
            *few,
            False,
            "NCHW",
            mode,
            **options,
        )
    for bins, scale in (((2, 2), 1.0), ((3, 1), 0.5)):
        yield case(
            "vision.roi_pool",
            f"{bins}",
            (data, rois),
            lambda d, r, b=bins, s=scale: testing.roi_pool_nchw_python(d, r, b, s),
            bins,
            scale,
            **options,
        )


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
            lambda *v, a=attrs: testing.non_max_suppression_python(*v, **a),
            roundings=40,
            only=("values",),
            literal=((0, 2),),
        )
