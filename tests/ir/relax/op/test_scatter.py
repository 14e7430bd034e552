"""Struct info of operators that gather or store elements at indices, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.script import ir as I, relax as R
from tests.ir.relax.op.test_rules import OPEN, UNKNOWN, Infos, M, Made, N, check, refused
from tests.ir.relax.sinfos import prim, rank, shape, tensor, tuple_of


def ints(*dims: object, dtype: str = "int64") -> rx.TensorStructInfo:
    return tensor(*dims, dtype=dtype)


X = tensor(2, N)
INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (op.gather_elements, (X, ints(3, M)), tensor(3, M)),
    (op.gather_elements, (X, rank(2, "int64")), rank(2)),
    (op.gather_elements, (rank(2), ints(3, M)), tensor(3, M)),
    (op.gather_elements, (OPEN, ints(3, M)), OPEN),
    (op.gather_elements, (OPEN, UNKNOWN), OPEN),
    (op.gather_nd, (X, ints(5, 1)), tensor(5, N)),
    (op.gather_nd, (X, ints(5, M, 2)), tensor(5, M)),
    (op.gather_nd, (X, ints(2)), tensor()),
    (op.gather_nd, (X, ints(5, N)), OPEN),
    (op.gather_nd, (rank(3), ints(5, 1)), rank(3)),
    (lambda x, i: op.gather_nd(x, i, 1), (tensor(N, 3, 4), ints(N, 5, 1)), tensor(N, 5, 4)),
    (op.gather_nd, (OPEN, UNKNOWN), OPEN),
    (op.index_tensor, (X, tuple_of(ints(5, 1), ints(M))), tensor(5, M)),
    (op.index_tensor, (X, tuple_of(ints(M))), tensor(M, N)),
    (op.index_tensor, (X, tuple_of(ints(N), ints(M))), rank(1)),
    (op.index_tensor, (X, tuple_of(rank(3, "int8"))), rank(4)),
    (op.index_tensor, (OPEN, tuple_of(ints(3))), OPEN),
    (lambda x, i, v: op.index_put(x, (i, i), v), (X, ints(M), tensor(M)), X),
    (op.index_put, (tensor(M), ints(5), tensor(5)), tensor(M)),
    (lambda x, i, v: op.scatter_elements(x, i, v, 0, "updates"), (X, ints(1, 1), tensor(1, 1)), X),
    (lambda x, i, v: op.index_put(x, (i,), v), (OPEN, UNKNOWN, OPEN), OPEN),
    (op.scatter_elements, (X, ints(2, 1), tensor(2, 1)), X),
    (op.scatter_elements, (X, ints(2, N), tensor(2, M)), X),
    (op.scatter_elements, (OPEN, UNKNOWN, OPEN), OPEN),
    (op.scatter_nd, (X, ints(5, 1), tensor(5, N)), X),
    (op.scatter_nd, (X, ints(5, M), tensor(5)), X),
    (op.scatter_nd, (rank(2), ints(5, 2), tensor(5)), rank(2)),
    (lambda x, s: op.slice_scatter(x, s, 0, 1), (X, tensor(1, N)), X),
    (lambda x, s: op.slice_scatter(x, s, 0, N, 2, axis=1), (X, rank(2)), X),
    (lambda x, s, n: op.slice_scatter(x, s, n, 2), (X, X, prim(dtype="int64")), X),
    (lambda g, x, i: op.grad.take_backward(g, x, i, axis=1), (OPEN, X, ints(3)), X),
    (lambda x, m: op.masked_fill(x, m, 0), (X, tensor(N, dtype="bool")), X),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


TRUTHS = tensor(2, 2, dtype="bool")
REFUSED: list[tuple[Made, Infos, str]] = [
    (
        lambda x, i, u: op.scatter_elements(x, i, u, reduction="mean"),
        (TRUTHS, ints(2, 2), TRUTHS),
        "Booleans have no mean",
    ),
    (
        lambda x, i, u: op.scatter_nd(x, i, u, "mean"),
        (TRUTHS, ints(2, 2), tensor(2, dtype="bool")),
        "Booleans have no mean",
    ),
    (op.gather_elements, (X, tensor(2, 2)), "indices holds integers, found R.Tensor((2, 2)"),
    (op.gather_elements, (X, ints(2)), "data and indices have one rank"),
    (
        lambda x, i: op.gather_elements(x, i, 2),
        (X, ints(2, 2)),
        "axis 2 is out of range for rank 2",
    ),
    (op.gather_nd, (X, tensor(2, 1)), "indices holds integers"),
    (op.gather_nd, (X, ints()), "indices has rank 1 at least, found R.Tensor(()"),
    (op.gather_nd, (X, ints(4, 3)), "hold 3 positions, but data R.Tensor((2, n)"),
    (lambda x, i: op.gather_nd(x, i, 3), (X, ints(4, 1)), "batch_dims is from 0 to 2 for data"),
    (lambda x, i: op.gather_nd(x, i, -1), (X, ints(4, 1)), "batch_dims is from 0"),
    (op.index_tensor, (X, tuple_of()), "indices holds one tensor at least, found none"),
    (op.index_tensor, (X, tuple_of(tensor(2))), "number 1 of indices holds integers"),
    (op.index_tensor, (X, tuple_of(shape(2))), "indices holds tensors, found R.Shape([2])"),
    (op.index_tensor, (X, tuple_of(*[ints(2)] * 3)), "has 2 axes, found 3 indices"),
    (
        op.index_tensor,
        (X, tuple_of(ints(2), ints(3))),
        "indices[0] and indices[1] do not broadcast",
    ),
    (
        lambda x, i, v: op.index_put(x, (i, i), v),
        (X, ints(4), tensor(3)),
        "values (3,) do not broadcast to (4,): dimension -1 is 3, not 4",
    ),
    (
        lambda x, i, v: op.index_put(x, (i, i), v),
        (X, ints(4), tensor(4, 4)),
        "have more axes than data[indices]",
    ),
    (
        lambda x, i, v: op.index_put(x, (i,), v),
        (X, ints(4), ints(3)),
        "data and values have one datatype, found float32 and int64",
    ),
    (op.scatter_elements, (X, ints(2, 1), tensor(2, 3)), "dimension 1 differs"),
    (op.scatter_elements, (X, ints(2, 1), ints(2, 1)), "data and updates have one datatype"),
    (op.scatter_elements, (X, ints(2), tensor(2)), "data and indices have one rank"),
    (op.scatter_nd, (X, ints(4, 3), tensor(4)), "hold 3 positions, but data"),
    (op.scatter_nd, (X, ints(4, 1), tensor(4)), "updates has rank 2 for data"),
    (
        op.scatter_nd,
        (X, ints(4, 2), tensor(5)),
        "updates has shape (4,) for data (2, n) and indices (4, 2), found (5,): dimension 0",
    ),
    (lambda x, s: op.slice_scatter(x, s, 0, 1, 0), (X, X), "step is positive, found 0"),
    (lambda x, s: op.slice_scatter(x, s, 2, 1), (X, X), "end is not before start 2, found 1"),
    (lambda x, s: op.slice_scatter(x, s, -1, 1), (X, X), "start is 0 at least, found -1"),
    (lambda x, s: op.slice_scatter(x, s, 0, 3), (X, X), "end is at most 2, the size of axis 0"),
    (lambda x, s: op.slice_scatter(x, s, 0, 1), (X, X), "dimension 0 of src (2, n) is 2, not 1"),
    (lambda x, s: op.slice_scatter(x, s, 0.5, 1), (X, X), "start is an integer, found R.Prim"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, sinfos: Infos, message: str) -> None:
    refused(make, sinfos, message)


@I.ir_module
class Stores:
    @R.function
    def put(
        x: R.Tensor(("n",), "float32"), i: R.Tensor(("k",), "int64"), v: R.Tensor(("k",), "float32")
    ):
        return R.index_put(x, (i,), v, accumulate=True)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_an_index_outside_is_an_error_and_nothing_is_changed(target: str) -> None:
    put = relaxpy.compile(Stores, target)["put"]
    x, v = np.zeros(4, "float32"), np.ones(3, "float32")
    np.testing.assert_array_equal(put(x, np.array([0, -1, 0]), v), [2, 0, 0, 1])
    for outside in (4, -5):
        with pytest.raises((RuntimeCheckError, IndexError), match="index"):
            put(x, np.array([0, outside, 1]), v)
        assert not x.any()
