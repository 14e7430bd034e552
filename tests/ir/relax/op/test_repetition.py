"""Operators that repeat, move or mask elements: attributes, sizes and diagonals of the program."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx, op
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import module


def test_attributes_of_other_types_are_refused() -> None:
    x = rx.Var("x", tensor(2, 3))
    with pytest.raises(MisuseError, match="indexing is 'ij' or 'xy', found 'yx'"):
        op.meshgrid((x,), "yx")
    with pytest.raises(MisuseError, match=r"repeats is int.*, found '2'"):
        op.tile(x, "2")


Symbolic = module("""
def identity(x: f32[n, 3]):
    n = x.shape[0]
    return R.matmul(R.eye(n, n), x)

def banded(x: f32[n, n], k: R.Prim("int64")):
    return R.tril(R.triu(x, -1), k)
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_sizes_and_diagonals_of_the_program(target: str) -> None:
    executable = relaxpy.compile(Symbolic, target)
    x = np.arange(12, dtype="float32").reshape(4, 3)
    np.testing.assert_array_equal(executable["identity"](x), x)
    square = np.arange(1, 17, dtype="float32").reshape(4, 4)
    np.testing.assert_array_equal(executable["banded"](square, 1), np.tril(np.triu(square, -1), 1))
