"""Suppression of many boxes, beside the definition one pair after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax

Array = np.ndarray[Any, np.dtype[Any]]


def overlap(a: Array, b: Array) -> float:
    """The intersection of two boxes over their union."""
    spans = [min(a[k + 2], b[k + 2]) - max(a[k], b[k]) for k in (0, 1)]
    shared = max(spans[0], 0.0) * max(spans[1], 0.0)
    union = sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)) - shared
    return shared / union if union > 0 else 0.0


def selected(boxes: Array, scores: Array, count: int, iou: float, least: float) -> list[int]:
    """The boxes that remain, best first; of equal scores the first one is the best."""
    found: list[int] = []
    for k in sorted(range(len(scores)), key=lambda k: -scores[k]):
        is_free = all(overlap(boxes[k], boxes[other]) <= iou for other in found)
        if scores[k] > least and len(found) < count and is_free:
            found.append(k)
    return found


@pytest.mark.each_choice
@pytest.mark.parametrize("spread", [5.0, 60.0, 400.0])
@pytest.mark.parametrize(("count", "iou", "digits"), [(20, 0.5, 6), (1000, 0.4, 1), (70, 0.0, 2)])
def test_boxes_remain_as_the_definition_says(
    spread: float, count: int, iou: float, digits: int
) -> None:
    rng = np.random.default_rng(int(spread) + count)
    low = rng.uniform(0, spread, (2, 300, 2))
    boxes = np.concatenate((low, low + rng.uniform(0, 20, (2, 300, 2))), -1).astype("float32")
    scores = np.round(rng.uniform(0, 1, (2, 2, 300)), digits).astype("float32")
    mirrored = boxes[..., [2, 1, 0, 3]]  # any two opposite corners
    b, s = (
        relax.Var(name, relax.TensorStructInfo(x.shape, "float32"))
        for name, x in (("b", boxes), ("s", scores))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [b, s]):
        limits = relax.const(count), relax.const(iou), relax.const(0.3)
        call = relax.op.vision.all_class_non_max_suppression(b, s, *limits)
        builder.emit_func_output(builder.emit(call))
    main = relaxpy.compile(builder.get(), "numpy")["main"]
    rows, total = main(mirrored, scores)
    expected = [
        (n, kind, k)
        for n in range(2)
        for kind in range(2)
        for k in selected(boxes[n], scores[n, kind], count, np.float32(iou), 0.3)
    ]
    assert rows[: int(total[0])].tolist() == list(map(list, expected))
    assert (rows[int(total[0]) :] == -1).all()
