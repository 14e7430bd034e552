"""Generated programs: the numpy target beside the reference evaluator, with and without passes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.exec.compile import compile
from relaxpy.exec.runtime.values import Value
from tests.fuzz.squares import least_size, write


def same(a: Value, b: Value) -> None:
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, tuple):
        assert len(a) == len(b)
        for p, q in zip(a, b, strict=True):
            same(p, q)
    else:
        assert a == b


@given(st.data(), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
@pytest.mark.rule("EV-18", "EV-20", "EV-12")
def test_both_targets_give_the_same(data: st.DataObject, size: int) -> None:
    """Small whole numbers in float32: every order of summation is exact."""
    mod = write(data)
    size = max(size, least_size(mod))
    rng = np.random.default_rng(size)
    args = [rng.integers(-1, 2, (size, size)).astype("float32") for _ in range(2)]
    expected = compile(mod, "reference", relax_pipeline=None)["main"](*args)
    same(compile(mod, "numpy", relax_pipeline=None)["main"](*args), expected)
    same(compile(mod, "numpy")["main"](*args), expected)
