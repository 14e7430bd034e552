"""Tensors over the memory of other libraries."""

import numpy as np
import pytest

from relaxpy import runtime
from relaxpy.errors import MisuseError


def test_memory_is_shared() -> None:
    array = np.zeros((2, 3), "float32")
    tensor = runtime.from_dlpack(array)
    assert isinstance(tensor, runtime.Tensor)
    array[1, 2] = 5
    assert tensor.numpy()[1, 2] == 5
    of_capsule = runtime.from_dlpack(array.__dlpack__())
    array[0, 0] = 7
    assert of_capsule[0, 0] == 7
    assert tensor.same_as(tensor)
    assert not tensor.same_as(of_capsule)


def test_what_has_no_memory_is_refused() -> None:
    with pytest.raises(MisuseError, match=r"an array that supports DLPack, found \[1\.0\]"):
        runtime.from_dlpack([1.0])
