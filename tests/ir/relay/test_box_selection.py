"""Non-maximum suppression and proposals beside plain loops over the boxes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RelaxpyError
from tests.ir.relay.operator_checks import check
from tests.ir.relay.test_operators import program

RNG = np.random.default_rng(11)
BATCH, COUNT = 2, 24
CORNERS = RNG.random((BATCH, COUNT, 2)) * 3
BOXES = np.concatenate([CORNERS, CORNERS + RNG.random((BATCH, COUNT, 2)) * 2], 2).astype("float32")
SCORES = (RNG.random((BATCH, COUNT, 1)) - 0.15).astype("float32")
CLASSES = RNG.integers(-1, 2, (BATCH, COUNT, 1)).astype("float32")
DATA = np.concatenate([CLASSES, SCORES, BOXES], 2)
# Some boxes have their corners the other way round.
DATA[:, ::5, 2:] = DATA[:, ::5, [4, 5, 2, 3]]
VALID = np.array([20, 9], "int32")
INDICES = np.stack([RNG.permutation(50)[:COUNT] for _ in range(BATCH)]).astype("int32")
LABELLED = RNG.random((BATCH, COUNT, 4)).astype("float32")


def overlap(one: np.ndarray, other: np.ndarray, border: int = 0) -> float:
    """The intersection of two boxes over their union."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]) + border
    shared = float(np.prod(np.maximum(sides, 0)))
    areas = [float(np.prod(box[2:] - box[:2] + border)) for box in (one, other)]
    union = areas[0] + areas[1] - shared
    return shared / union if union > 0 and min(areas) > 0 else 0.0


def suppressed(
    boxes: np.ndarray,
    valid: int,
    limit: int,
    iou: float,
    *,
    force_suppress: bool = False,
    top_k: int = -1,
    id_index: int = 0,
) -> list[tuple[int, bool]]:
    """The boxes in the order of their scores, each with whether it is kept."""
    if iou <= 0:
        return [(k, k < valid) for k in range(len(boxes))]
    order = sorted(range(valid), key=lambda k: -boxes[k, 1])
    kept: list[int] = []
    marks = []
    for rank, k in enumerate(order):
        fits = (top_k <= 0 or rank < top_k) and len(kept) != limit
        if fits and boxes[k, 1] > 0:
            for other in kept:
                if id_index >= 0 and boxes[other, id_index] < 0:
                    continue
                same = force_suppress or id_index < 0
                if same or boxes[other, id_index] == boxes[k, id_index]:
                    a, b = (
                        np.concatenate([np.minimum(x[:2], x[2:]), np.maximum(x[:2], x[2:])])
                        for x in (boxes[k, 2:], boxes[other, 2:])
                    )
                    fits = fits and overlap(a, b) < iou
            kept += [k] * fits
        marks.append((k, fits))
    return marks + [(k, False) for k in range(valid, len(boxes))]


def nms(limit: int, iou: float, **options: Any) -> Any:
    """Indices of the boxes that are kept, and their number."""
    indices = np.full((BATCH, COUNT), -1, "int32")
    counts = np.zeros((BATCH, 1), "int32")
    for i in range(BATCH):
        kept = [k for k, fits in suppressed(DATA[i], VALID[i], limit, iou, **options) if fits]
        indices[i, : len(kept)], counts[i] = INDICES[i, kept], len(kept)
    return indices, counts


@pytest.mark.rule("RLY-28")
@pytest.mark.parametrize(
    ("limit", "iou", "options"),
    [
        (-1, 0.3, {}),
        (4, 0.3, {}),
        (0, 0.3, {}),
        (-1, 0.0, {}),
        (-1, 0.1, {"force_suppress": True}),
        (-1, 0.2, {"top_k": 6}),
        (-1, 0.2, {"id_index": -1}),
    ],
)
def test_suppression_is_a_loop_over_the_boxes(
    limit: int, iou: float, options: dict[str, Any]
) -> None:
    text = "".join(f", {name}={value}" for name, value in options.items())
    call = f"vision.non_max_suppression(%0, %1, %2, {limit}, {iou}f{text})"
    check(call, (DATA, VALID, INDICES), nms(limit, iou, **options))


@pytest.mark.parametrize("to_bottom", [False, True])
def test_suppression_returns_boxes(to_bottom: bool) -> None:
    expected = np.full_like(DATA, -1)
    for i in range(BATCH):
        marks = suppressed(DATA[i], VALID[i], -1, 0.3)
        if to_bottom:
            marks = [(k, fits) for k, fits in marks if fits and DATA[i, k, 0] >= 0]
        for rank, (k, fits) in enumerate(marks):
            if fits:
                expected[i, rank] = DATA[i, k]
    options = f"return_indices=False, invalid_to_bottom={to_bottom}"
    call = f"vision.non_max_suppression(%0, %1, %2, -1, 0.3f, {options})"
    check(call, (DATA, VALID, INDICES), expected)


def test_the_number_of_boxes_may_be_unknown() -> None:
    text = """def @main(%d: Tensor[(1, ?, 6), float32], %v: Tensor[(1,), int32],
                        %i: Tensor[(1, ?), int32]) {
      vision.non_max_suppression(%d, %v, %i, -1, 0.3f) }"""
    module = relay.parse(text)
    assert str(module["main"].ret_type) == "(Tensor[(1, ?), int32], Tensor[(1, 1), int32])"
    kept = [k for k, fits in suppressed(DATA[0], 20, -1, 0.3) if fits]
    for kind in ("debug", "vm"):
        function = relay.create_executor(kind, mod=module).evaluate()
        indices, count = function(DATA[:1], VALID[:1], INDICES[:1])
        assert indices[0, : count.item()].tolist() == INDICES[0, kept].tolist()


def regular(per_class: int, most: int, classes: int, iou: float, least: float) -> Any:
    results = [np.zeros((BATCH, most, 4)), np.zeros((BATCH, most)), np.zeros((BATCH, most))]
    counts = np.zeros(BATCH, "int32")
    for i in range(BATCH):
        found = []
        for kind in range(classes):
            scores = LABELLED[i, :, kind + 4 - classes]
            chosen: list[int] = []
            for k in sorted(np.flatnonzero(scores >= least), key=lambda k: -scores[k]):
                near = any(overlap(BOXES[i, k], BOXES[i, other]) > iou for other in chosen)
                if not near and len(chosen) < per_class:
                    chosen.append(k)
            found += [(scores[k], kind, k) for k in chosen]
        found = sorted(found, key=lambda entry: -entry[0])[:most]
        counts[i] = len(found)
        for row, (score, kind, k) in enumerate(found):
            results[0][i, row], results[1][i, row], results[2][i, row] = BOXES[i, k], kind, score
    return (*results, counts)


@pytest.mark.parametrize(("classes", "most"), [(3, 7), (4, 60)])
def test_regular_suppression_is_that_of_each_class(classes: int, most: int) -> None:
    call = (
        f"vision.regular_non_max_suppression(%0, %1, max_detections_per_class=3, "
        f"max_detections={most}, num_classes={classes}, iou_threshold=0.2f, score_threshold=0.5f)"
    )
    check(call, (BOXES, LABELLED), regular(3, most, classes, 0.2, 0.5))


HEIGHT, WIDTH, STRIDE = 4, 5, 16
PROBABILITIES = RNG.random((2, 12, HEIGHT, WIDTH)).astype("float32")
DELTAS = (RNG.standard_normal((2, 24, HEIGHT, WIDTH)) * 0.3).astype("float32")
INFO = np.array([[60, 75, 1], [50, 80, 1.5]], "float32")


def candidates(image: int, *, iou_loss: bool) -> list[tuple[float, np.ndarray]]:
    """The scores and boxes of all cells and anchors: two scales of three ratios."""
    found = []
    tall, wide, scale = INFO[image]
    for y, x, k in product(range(HEIGHT), range(WIDTH), range(6)):
        ratio, size = (0.5, 1, 2)[k // 2], (1, 2)[k % 2]
        width = np.floor(np.sqrt(np.floor(256 / ratio)) + 0.5)
        height = np.floor(width * ratio + 0.5) * size
        width *= size
        cx, cy = 7.5 + x * STRIDE, 7.5 + y * STRIDE
        d = DELTAS[image, 4 * k : 4 * k + 4, y, x].astype("float64")
        if iou_loss:
            half = np.array([(width - 1) / 2, (height - 1) / 2])
            middle = np.array([cx, cy])
            box = np.concatenate([middle - half, middle + half]) + d
        else:
            centre = np.array([cx + d[0] * width, cy + d[1] * height])
            half = (np.exp(d[2:]) * (width, height) - 1) / 2
            box = np.concatenate([centre - half, centre + half])
        box = np.clip(box, 0, [wide - 1, tall - 1] * 2)
        score = float(PROBABILITIES[image, 6 + k, y, x])
        least = scale * 14
        if y >= tall // STRIDE or x >= wide // STRIDE:
            score = -1.0
        if min(box[2:] - box[:2] + 1) < least:
            box, score = box + np.array([-1, -1, 1, 1]) * least / 2, -1.0
        found.append((score, box))
    return found


@pytest.mark.parametrize(("iou_loss", "before", "after"), [(False, 6000, 60), (True, 40, 9)])
def test_proposals_are_the_best_regions(iou_loss: bool, before: int, after: int) -> None:
    expected = np.zeros((2 * after, 5))
    for image in range(2):
        regions: list[np.ndarray] = []
        ordered = sorted(candidates(image, iou_loss=iou_loss), key=lambda pair: -pair[0])
        for _, box in ordered[:before]:
            if all(overlap(box, other, border=1) <= 0.7 for other in regions):
                regions.append(box)
        for row in range(after):
            expected[image * after + row] = image, *regions[row % len(regions)]
    call = (
        "vision.proposal(%0, %1, %2, scales=[1f, 2f], rpn_min_size=14, "
        f"rpn_pre_nms_top_n={before}, rpn_post_nms_top_n={after}, iou_loss={iou_loss})"
    )
    check(call, (PROBABILITIES, DELTAS, INFO), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("call", "inputs", "message"),
    [
        ("vision.non_max_suppression(%0, %1, %2, -1, 0.5f)", (DATA[0], VALID, INDICES), "3 dim"),
        (
            "vision.non_max_suppression(%0, %1, %2, -1, 0.5f)",
            (DATA, VALID[:1], INDICES),
            "dimension 0 of valid_count is 2, found 1",
        ),
        (
            "vision.non_max_suppression(%0, %1, %2, -1, 0.5f, coord_start=3)",
            (DATA, VALID, INDICES),
            "4 coordinates in 6 fields",
        ),
        (
            "vision.non_max_suppression(%0, %1, %2, %1, 0.5f)",
            (DATA, VALID, INDICES),
            "max_output_size is one number",
        ),
        (
            "vision.regular_non_max_suppression(%0, %1, max_detections_per_class=3, "
            "max_detections=4, num_classes=5, iou_threshold=0.2f, score_threshold=0.5f)",
            (BOXES, LABELLED),
            "num_classes is at most the number of classes, 4, found 5",
        ),
        ("vision.regular_non_max_suppression", (BOXES, LABELLED), "needs the attribute"),
        ("vision.proposal", (PROBABILITIES, DELTAS, INFO), "cls_prob of 12 anchors"),
        (
            "vision.proposal(%0, %1, %2, scales=[1f, 2f])",
            (PROBABILITIES, DELTAS, INFO[:, :2]),
            "im_info of 6 anchors has the shape",
        ),
    ],
)
def test_what_selection_does_not_take_is_refused(
    call: str, inputs: tuple[np.ndarray, ...], message: str
) -> None:
    with pytest.raises(RelaxpyError, match=message):
        relay.parse(program(call, inputs))
