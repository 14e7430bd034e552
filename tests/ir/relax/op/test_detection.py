"""Operators on boxes whose limits are tensors."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from tests.ir.relax.texts import module

Limited = module("""
def main(boxes: f32[b, n, 4], scores: f32[b, c, n], most: R.Tensor("int64")):
    return R.vision.all_class_non_max_suppression(
        boxes, scores, most, R.const(0.5, "float32"), R.const(0.0, "float32")
    )
""")


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
