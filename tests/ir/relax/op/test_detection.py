"""Struct info of operators on boxes, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.script import ir as I, relax as R
from tests.ir.relax.op.test_rules import OPEN, Infos, M, Made, N, check, refused
from tests.ir.relax.sinfos import prim, rank, tensor, tuple_of

BOXES, SCORES = tensor(2, N, 4), tensor(2, 3, N)
MOST, LEVEL = prim(dtype="int64"), prim(dtype="float32")
LIMITS = (MOST, LEVEL, tensor())
nms = op.vision.all_class_non_max_suppression


def tensorflow(*operands: rx.Expr) -> rx.Call:
    call: rx.Call = nms(*operands, output_format="tensorflow")
    return call


def ints(*dims: object) -> rx.TensorStructInfo:
    return tensor(*dims, dtype="int64")


counts, moved = op.vision.get_valid_counts, op.vision.multibox_transform_loc
INT = "int32"
INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (nms, (BOXES, SCORES, *LIMITS), tuple_of(ints(6 * N, 3), ints(1))),
    (nms, (OPEN, tensor(1, 2, 5), *LIMITS), tuple_of(ints(10, 3), ints(1))),
    (nms, (BOXES, OPEN, *LIMITS), tuple_of(rank(2, "int64"), ints(1))),
    (
        tensorflow,
        (BOXES, SCORES, ints(1), *LIMITS[1:]),
        tuple_of(ints(2, 3 * N, 2), tensor(2, 3 * N), ints(2)),
    ),
    (
        tensorflow,
        (BOXES, rank(3), ints(M), *LIMITS[1:]),
        tuple_of(rank(3, "int64"), rank(2), ints(2)),
    ),
    (
        counts,
        (tensor(N, M, 6),),
        tuple_of(tensor(N, dtype=INT), tensor(N, M, 6), tensor(N, M, dtype=INT)),
    ),
    (counts, (OPEN,), tuple_of(rank(1, INT), rank(3), rank(2, INT))),
    (
        moved,
        (tensor(N, 3, M), tensor(N, 4 * M), tensor(1, M, 4)),
        tuple_of(tensor(N, M, 4), tensor(N, 3, M)),
    ),
    (moved, (tensor(N, 3, M), OPEN, rank(3)), tuple_of(tensor(N, M, 4), tensor(N, 3, M))),
    (moved, (rank(3), tensor(2, 8), OPEN), tuple_of(rank(3), rank(3))),
    (tensorflow, (OPEN, OPEN, *LIMITS), tuple_of(rank(3, "int64"), rank(2), rank(1, "int64"))),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


REFUSED: list[tuple[Infos, str]] = [
    ((tensor(2, N), SCORES, *LIMITS), "boxes has rank 3, found R.Tensor((2, n)"),
    ((BOXES, tensor(3, N), *LIMITS), "scores has rank 3, found R.Tensor((3, n)"),
    ((ints(2, N, 4), SCORES, *LIMITS), "boxes holds floats, found R.Tensor((2, n, 4)"),
    (
        (tensor(2, N, 5), SCORES, *LIMITS),
        "dimension 2 of boxes (2, n, 5) is 4, 4 coordinates of a box; found 5",
    ),
    (
        (tensor(1, N, 4), SCORES, *LIMITS),
        "dimension 0 of boxes (1, n, 4) is 2, as scores (2, 3, n) has; found 1",
    ),
    (
        (tensor(2, 7, 4), tensor(2, 3, 8), *LIMITS),
        "dimension 1 of boxes (2, 7, 4) is 8, as scores (2, 3, 8) has; found 7",
    ),
    (
        (BOXES, SCORES, LEVEL, LEVEL, LEVEL),
        "max_output_boxes_per_class holds integers, found R.Prim",
    ),
    ((BOXES, SCORES, MOST, tensor(2), LEVEL), "iou_threshold is one number, found R.Tensor((2,)"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(sinfos: Infos, message: str) -> None:
    refused(nms, sinfos, message)


@I.ir_module
class Limited:
    @R.function
    def main(
        boxes: R.Tensor(("b", "n", 4), "float32"),
        scores: R.Tensor(("b", "c", "n"), "float32"),
        most: R.Tensor("int64"),
    ):
        return R.vision.all_class_non_max_suppression(
            boxes, scores, most, R.const(0.5, "float32"), R.const(0.0, "float32")
        )


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_limits_that_are_tensors(target: str) -> None:
    main = relaxpy.compile(Limited, target)["main"]
    boxes = np.array([[[0, 0, 1, 1], [1, 1, 0, 0.1], [2, 2, 3, 3]]], "float32")
    scores = np.array([[[0.5, np.nan, 0.9]]], "float32")
    for most in (np.array(2), np.array([2])):
        indices, count = main(boxes, scores, most)
        np.testing.assert_array_equal(indices, [[0, 0, 2], [0, 0, 0], [-1, -1, -1]])
        np.testing.assert_array_equal(count, [2])
    with pytest.raises(
        RuntimeCheckError, match="max_output_boxes_per_class is one number, found 2"
    ):
        main(boxes, scores, np.array([2, 2]))


@pytest.mark.rule("DER-36")
def test_boxes_that_cannot_be_counted_are_refused() -> None:
    refused(counts, (tensor(2, 3),), "data has rank 3, found R.Tensor((2, 3)")
    refused(counts, (tensor(2, 3, 6, dtype="int32"),), "data holds floats")
    for attrs, message in (
        ({"score_index": 6}, "score_index is 0 at least and below the number of fields, found 6"),
        ({"score_index": -1}, "score_index is 0 at least"),
        ({"id_index": -2}, "id_index is -1 at least"),
        ({"id_index": 7}, "id_index is -1 at least and below the number of fields, found 7"),
    ):
        refused(lambda x, a=attrs: counts(x, **a), (tensor(2, 3, 6),), message)


@pytest.mark.rule("DER-36")
def test_moves_that_do_not_fit_the_anchors_are_refused() -> None:
    scores, moves, anchors = tensor(2, 3, 5), tensor(2, 20), tensor(1, 5, 4)
    refused(moved, (tensor(2, 3), moves, anchors), "cls_pred has rank 3, found R.Tensor((2, 3)")
    refused(moved, (scores, scores, anchors), "loc_pred has rank 2, found R.Tensor((2, 3, 5)")
    refused(moved, (scores, moves, tensor(5, 4)), "anchor has rank 3, found R.Tensor((5, 4)")
    refused(moved, (scores, moves, ints(1, 5, 4)), "anchor holds floats")
    refused(
        moved,
        (scores, tensor(2, 20, dtype="float64"), anchors),
        "loc_pred has the datatype of cls_pred, float32",
    )
    refused(
        moved,
        (scores, tensor(2, 24), anchors),
        r"loc_pred has the shape (2, 20) for cls_pred (2, 3, 5), found (2, 24)",
    )
    refused(
        moved,
        (scores, moves, tensor(1, 4, 5)),
        "anchor has the shape (1, 5, 4) for cls_pred (2, 3, 5), found (1, 4, 5)",
    )
    refused(
        lambda *v: moved(*v, variances=(1.0, 2.0)),
        (scores, moves, anchors),
        "variances are four numbers, found [1.0, 2.0]",
    )
