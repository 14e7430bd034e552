"""Suppression of many boxes, beside the definition one pair after the other."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, tir

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
    above = (k for k, score in enumerate(scores) if score > least)
    for k in sorted(above, key=lambda k: -scores[k]):
        is_free = all(overlap(boxes[k], boxes[other]) <= iou for other in found)
        if len(found) < count and is_free:
            found.append(k)
    return found


def suppression(
    boxes: Array, scores: Array, *, target: str, sizes: Any = None, **attrs: Any
) -> Any:
    """The operator on operands of these datatypes and `sizes`, or those of the arrays."""
    batch, classes, n = sizes or scores.shape
    shapes = (batch, n, 4), (batch, classes, n)
    b, s, most, iou, least = (
        relax.Var(name, relax.TensorStructInfo(shape, str(x)))
        for name, shape, x in (
            ("b", shapes[0], boxes.dtype),
            ("s", shapes[1], scores.dtype),
            ("most", (), "int64"),
            ("iou", (1,), "float64"),
            ("least", (), "float64"),
        )
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [b, s, most, iou, least]):
        call = relax.op.vision.all_class_non_max_suppression(b, s, most, iou, least, **attrs)
        builder.emit_func_output(builder.emit(call))
    main = relaxpy.compile(builder.get(), target)["main"]
    return lambda b, s, most, iou, least: main(
        b, s, np.array(most), np.array([iou]), np.array(float(least))
    )


def every_kept(
    boxes: Array, scores: Array, count: int, iou: float, least: float
) -> list[list[list[int]]]:
    """The classes and the boxes that remain of each image; overlaps are float32, or float64."""
    wide = boxes.astype(np.result_type(boxes.dtype, "float32"))
    limits = count, wide.dtype.type(iou), least
    return [
        [[kind, k] for kind, row in enumerate(rows) for k in selected(corners, row, *limits)]
        for corners, rows in zip(wide, scores.astype("float64"), strict=True)
    ]


@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.each_choice
@pytest.mark.parametrize("spread", [5.0, 60.0, 400.0])
@pytest.mark.parametrize(
    ("count", "iou", "digits"), [(20, 0.5, 6), (64, 0.5, 1), (1000, 0.4, 1), (70, 0.0, 2)]
)
def test_boxes_remain_as_the_definition_says(spread, count, iou, digits, target) -> None:
    rng = np.random.default_rng(int(spread) + count)
    low = rng.uniform(0, spread, (2, 300, 2))
    boxes = np.concatenate((low, low + rng.uniform(0, 20, (2, 300, 2))), -1).astype("float32")
    scores = np.round(rng.uniform(0, 1, (2, 2, 300)), digits).astype("float32")
    mirrored = boxes[..., [2, 1, 0, 3]]  # any two opposite corners
    call = suppression(boxes, scores, target=target)
    rows, total = call(mirrored, scores, count, iou, 0.3)
    kept = every_kept(boxes, scores, count, iou, 0.3)
    expected = [[n, *pair] for n, image in enumerate(kept) for pair in image]
    assert rows[: int(total[0])].tolist() == expected
    assert (rows[int(total[0]) :] == -1).all()


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_one_program_selects_of_all_sizes(target: str, dtype: str) -> None:
    sizes = [tir.Var(name, "int64") for name in ("batch", "classes", "n")]
    like = np.zeros(0, dtype)
    by_format = {
        kind: suppression(like, like, target=target, output_format=kind, sizes=sizes)
        for kind in ("onnx", "tensorflow")
    }
    rng = np.random.default_rng(7)
    for shape in [(1, 1, 1), (2, 3, 33), (1, 1, 700), (3, 1, 0), (0, 2, 5), (2, 0, 5), (1, 2, 130)]:
        batch, classes, n = shape
        low = rng.integers(0, 60, (batch, n, 2))
        boxes = np.concatenate((low, low + rng.integers(0, 12, (batch, n, 2))), -1).astype(dtype)
        scores = rng.choice([0.125, 0.25, 0.5, 0.75, np.inf, -np.inf, np.nan], shape).astype(dtype)
        for limits in [
            (n + 5, 0.3, -np.inf),
            (7, 0.5, 0.25),
            (0, 0.5, 0),
            (-3, 0.5, 0),
            (2, -1.0, 0),
        ]:
            kept = every_kept(boxes, scores, *limits)
            rows, total = by_format["onnx"](boxes, scores, *limits)
            expected = [[image, *pair] for image, pairs in enumerate(kept) for pair in pairs]
            assert rows[: int(total[0])].tolist() == expected
            assert (rows[int(total[0]) :] == -1).all()
            rows, values, totals = by_format["tensorflow"](boxes, scores, *limits)
            assert totals.tolist() == list(map(len, kept))
            for image, pairs in enumerate(kept):
                assert rows[image, : len(pairs)].tolist() == pairs
                assert (rows[image, len(pairs) :] == -1).all()
                of_pairs = [float(scores[image, kind, k]) for kind, k in pairs]
                assert values[image].tolist() == of_pairs + [0.0] * (classes * n - len(pairs))


INF, NAN = np.inf, np.nan
LAYERS = [[0, 0, 1, 10], [0, 0, 1, 7], [0, 0, 1, 8]]
#: The boxes, best first, the limit of overlaps, and the boxes that remain.
EDGES: dict[str, tuple[list[list[float]], float, list[int]]] = {
    # As in ONNX Runtime: 7 / 10 is 0.7 in float32, whose 0.7 is less than 7 / 10 in float64.
    "overlaps at the limit are not above it": (LAYERS, 0.7, [0, 1]),
    "the limit is that of float32": (LAYERS, float(np.float32(0.7)), [0, 1]),
    "no overlap is above a limit that is no number": (
        *([[0, 0, 2, 2.1], [0, 0, 2, 2], [0, 0, 2, 2]], NAN, [0, 1, 2]),
    ),
    **{
        f"an area of {size} that overflows is infinite": (
            *([[0, -size, 2, size], [0, 0, 1, 1], [0, 0, size, size]], 0.5, [0, 1, 2]),
        )
        for size in (1e30, INF)
    },
    "boxes without an area or end suppress no other": (
        [[0, 0, INF, 4], [NAN, 0, 4, 4], [1, 1, 1, 3], [0, 0, 4, 4], [-INF, -INF, INF, INF]],
        *(0.0, [0, 1, 2, 3, 4]),
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize("fact", EDGES)
def test_boxes_that_remain(fact: str, target: str) -> None:
    corners, iou, remain = EDGES[fact]
    boxes = np.array([corners], "float32")
    scores = np.arange(len(corners), 0, -1, dtype="float32")[None, None]
    rows, total = suppression(boxes, scores, target=target)(boxes, scores, 9, iou, 0)
    assert rows[: int(total[0]), 2].tolist() == remain


@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("rows_per_class", [0, 3, 40, 2000])
def test_results_have_rows_for_as_many_boxes_as_remain(rows_per_class, dtype, target) -> None:
    rng = np.random.default_rng(rows_per_class)
    low = rng.integers(0, 40, (2, 1100, 2))
    boxes = np.concatenate((low, low + 3), -1).astype("float32")
    scores = rng.choice([-3.0, -1e-30, -0.0, 0.0, 1e-30, 2.0, 2.5], (2, 3, 1100)).astype(dtype)
    sizes = [tir.Var(name, "int64") for name in ("batch", "classes", "n")]
    options: Any = {"target": target, "sizes": sizes, "rows_per_class": rows_per_class}
    size = min(1100, rows_per_class)
    kept = every_kept(boxes, scores, min(20, rows_per_class), 0.5, -2.0)
    rows, total = suppression(boxes, scores, **options)(boxes, scores, 20, 0.5, -2.0)
    expected = [[image, *pair] for image, pairs in enumerate(kept) for pair in pairs]
    assert rows.tolist() == expected + [[-1] * 3] * (2 * 3 * size - len(expected))
    assert total == len(expected)
    call = suppression(boxes, scores, output_format="tensorflow", **options)
    rows, values, totals = call(boxes, scores, 20, 0.5, -2.0)
    assert totals.tolist() == list(map(len, kept))
    for image, pairs in enumerate(kept):
        assert rows[image].tolist() == pairs + [[-1] * 2] * (3 * size - len(pairs))
        of_pairs = [float(scores[image, kind, k]) for kind, k in pairs]
        assert values[image].tolist() == of_pairs + [0.0] * (3 * size - len(pairs))


def test_a_negative_number_of_rows_is_an_error() -> None:
    boxes = np.zeros((1, 2, 4), "float32")
    with pytest.raises(relaxpy.errors.StructInfoError, match="rows_per_class is 0 or more"):
        suppression(boxes, boxes[..., :2], target="numpy", rows_per_class=-1)
