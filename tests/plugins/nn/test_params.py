"""Parameters that importers attach to functions."""

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.frontend import detach_params
from tests.ir.relax.texts import module

Model = module("""
def main(x: f32[2], w: f32[2]):
    return R.add(x, w)

def other(x: f32[2]):
    return x
""")


def test_params_are_detached_from_functions() -> None:
    weight = np.ones(2, "float32")
    mod = Model.clone()
    mod["main"] = mod["main"].with_attr("params", [weight])
    detached, params = detach_params(mod)
    assert_structural_equal(detached, Model)
    assert list(params) == ["main"]
    np.testing.assert_array_equal(params["main"], [weight])
    assert "params" in mod["main"].attrs


def test_params_are_arrays() -> None:
    mod = Model.clone()
    mod["main"] = mod["main"].with_attr("params", 3)
    with pytest.raises(MisuseError, match="the attribute params of main is a list of arrays"):
        detach_params(mod)
