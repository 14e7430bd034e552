"""Operators that store elements at indices: indices outside."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from tests.ir.relax.texts import module

Stores = module("""
def put(x: f32[n], i: i64[k], v: f32[k]):
    return R.index_put(x, (i,), v, accumulate=True)
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_an_index_outside_is_an_error_and_nothing_is_changed(target: str) -> None:
    put = relaxpy.compile(Stores, target)["put"]
    x, v = np.zeros(4, "float32"), np.ones(3, "float32")
    np.testing.assert_array_equal(put(x, np.array([0, -1, 0]), v), [2, 0, 0, 1])
    for outside in (4, -5):
        with pytest.raises((RuntimeCheckError, IndexError), match="index"):
            put(x, np.array([0, outside, 1]), v)
        assert not x.any()
