"""Values of programs against what was expected of them."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relaxpy.testing import assert_allclose

NAN = float("nan")


@pytest.mark.parametrize(
    ("actual", "desired"),
    [
        (np.array([1.0, NAN]), [1.0 + 5e-8, NAN]),
        (1, 1.0),
        ((np.ones(2), (3,)), ([1, 1], (3,))),
        (np.array([0.5, NAN], ml_dtypes.bfloat16), np.array([0.5, NAN], "float32")),
        (np.array([2], ml_dtypes.float8_e5m2), [2]),
        (np.array([True, False]), [True, False]),
        ((), ()),
        (np.array([254], "uint8"), np.array([254], "int64")),
        ((None, "text", len), (None, "text", len)),
    ],
)
def test_values_that_are_close(actual: Any, desired: Any) -> None:
    assert_allclose(actual, desired)


@pytest.mark.parametrize(
    ("actual", "desired", "message"),
    [
        (np.zeros((2, 1)), np.zeros(2), r"the value has shape \(2, 1\), \(2,\) was expected"),
        (np.zeros(()), np.zeros(1), "has shape"),
        ([1.0, 2.0], [1.0, 2.1], "the value"),
        ([NAN], [0.0], "nan"),
        ((1, 2), (1,), "the value has 2 fields, 1 were expected"),
        ((0, (1, 2)), (0, (1, 3)), "field 1 of field 1 of the value"),
        (np.array([1.5], ml_dtypes.bfloat16), [1.25], "the value"),
        ([True], [False], "the value"),
        (np.array([255], "uint8"), np.array([-1], "int8"), "the value"),
        ("text", "test", "the value is 'text', 'test' was expected"),
        ((1, None), (1, np.zeros(2)), "field 1 of the value is None"),
    ],
)
def test_values_that_are_not(actual: Any, desired: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_allclose(actual, desired)


def test_tolerances_are_those_given() -> None:
    assert_allclose([1.0, 100.0], [1.01, 101.0], rtol=0.02)
    with pytest.raises(AssertionError):
        assert_allclose([1.0], [1.01], rtol=1e-3, atol=1e-3)
