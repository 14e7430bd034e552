"""New tensors by the names that programs of TVM call: runtime.tensor and runtime.empty."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.runtime import cpu, cuda, device, empty, tensor


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *[(np.arange(6, dtype="int8").reshape(2, 3), "int8"), ([[1.5, 2.0]], "float64")],
        *[(3, "int64"), (True, "bool"), (np.float32(2), "float32"), ((1, 2), "int64")],
        (np.ones(2, ml_dtypes.bfloat16), "bfloat16"),
    ],
)
@pytest.mark.parametrize("where", [None, cpu(), "cpu:0"])
def test_a_tensor_has_the_elements_and_memory_of_its_own(
    value: Any, dtype: str, where: Any
) -> None:
    result = tensor(value, where)
    np.testing.assert_array_equal(result, np.array(value))
    assert (type(result), result.dtype.name) == (np.ndarray, dtype)
    assert not np.shares_memory(result, value)


def test_an_empty_tensor_has_the_shape_and_datatype() -> None:
    assert (empty((2, 3)).shape, empty((2, 3)).dtype.name) == ((2, 3), "float32")
    result = empty([4], dtype="bfloat16", device=cpu(dev_id=0))
    assert (result.shape, result.dtype) == ((4,), ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tensor([1], cuda(dev_id=1)), r"NumPy arrays on cpu:0, found device cuda:1"),
        (lambda: empty((1,), "float32", device(device_type="cuda")), "found device cuda:0"),
        (lambda: tensor([1], "gpu?"), r"gpu\?"),
        (lambda: tensor([[1], [2, 3]]), "expected an array, a list or a scalar"),
        (lambda: tensor("text"), "expected an array, a list or a scalar, found 'text'"),
        (lambda: tensor(object()), "expected an array, a list or a scalar"),
        (lambda: empty(3), "a shape is a list of integers, found 3"),
        (lambda: empty((2.5,)), "a shape holds integers, found 2.5"),
        (lambda: empty((2,), "flaot32"), "float32"),
        (lambda: empty((-1,)), "no negative dimensions, found"),
    ],
)
def test_misuse_is_named(make: Any, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        make()
