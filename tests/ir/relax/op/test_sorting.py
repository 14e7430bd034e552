"""Struct info of operators that order elements or add them up, and what they refuse."""

from __future__ import annotations

import pytest

from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.tir import ops
from tests.ir.relax.infos import rank, tensor, tuple_of
from tests.ir.relax.op.test_rules import OPEN, UNKNOWN, Infos, M, Made, N, check, refused

X = tensor(2, N)
VECTOR = rank(1, "int64")
LEAST = ops.minimum(N, ops.const(3, "int64"))
INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (op.sort, (X,), X),
    (op.sort, (UNKNOWN,), UNKNOWN),
    (op.argsort, (X,), tensor(2, N, dtype="int32")),
    (lambda x: op.argsort(x, 0, True, "int64"), (rank(2),), rank(2, "int64")),
    (lambda x: op.argsort(x, dtype=""), (X,), X),
    (lambda x: op.topk(x, 3, 0), (X,), tuple_of(X, tensor(2, N, dtype="int32"))),
    (lambda x: op.topk(x, 1, 0, "values"), (X,), tensor(1, N)),
    (lambda x: op.topk(x, 3, 1, "values"), (X,), tensor(2, LEAST)),
    (lambda x: op.topk(x, 0, 1, "indices", dtype="int64"), (X,), tensor(2, N, dtype="int64")),
    (lambda x: op.topk(x, 3, 1, "values"), (rank(2),), rank(2)),
    (op.bucketize, (X, tensor(M)), tensor(2, N, dtype="int64")),
    (lambda x, b: op.bucketize(x, b, True), (UNKNOWN, OPEN), rx.TensorStructInfo(None, "int32")),
    (op.unique, (X,), rank(1)),
    (op.unique, (tensor(),), tensor(1)),
    (lambda x: op.unique(x, axis=0), (X,), rank(2)),
    (lambda x: op.unique(x, True, True, False, True), (X,), tuple_of(rank(1), VECTOR, VECTOR)),
    (op.nonzero, (X,), rank(2, "int64")),
    (
        op.multinomial_from_uniform,
        (tensor(2, 3), tensor(N, 1), tensor(N, 1, dtype="int64")),
        tensor(N, 1, dtype="int64"),
    ),
    (op.multinomial_from_uniform, (OPEN, OPEN, UNKNOWN), rank(2, "int64")),
    (lambda x: op.cumsum(x, 1), (X,), X),
    (op.cumsum, (X,), tensor(2 * N)),
    (lambda x: op.cumprod(x, dtype="float64"), (rank(3),), rank(1, "float64")),
    (lambda x: op.cumprod(x, 5), (OPEN,), OPEN),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "infos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, infos: Infos, expected: rx.StructInfo) -> None:
    check(make, infos, expected)


ROWS, BITS = tensor(N, 1), tensor(2, dtype="bool")
REFUSED: list[tuple[Made, Infos, str]] = [
    (lambda x: op.sort(x, 2), (X,), "axis 2 is out of range for rank 2"),
    (op.sort, (tensor(),), "axis -1 is out of range for rank 0"),
    (lambda x: op.argsort(x, -3), (rank(2),), "axis -3 is out of range for rank 2"),
    (lambda x: op.topk(x, 1, 2), (X,), "axis 2 is out of range for rank 2"),
    (op.bucketize, (X, X), "boundaries is a vector, found R.Tensor((2, n)"),
    (lambda x: op.unique(x, axis=2), (X,), "axis 2 is out of range for rank 2"),
    (op.multinomial_from_uniform, (ROWS, ROWS, ROWS), "sample_indices holds integers"),
    (op.multinomial_from_uniform, (tensor(3), ROWS, UNKNOWN), "prob has rank 2"),
    (op.multinomial_from_uniform, (X, tensor(N, 2), UNKNOWN), "uniform_sample has one column"),
    (
        op.multinomial_from_uniform,
        (X, tensor(2, 1), tensor(3, 1, dtype="int64")),
        "have as many rows",
    ),
    (op.cumsum, (BITS,), 'data holds numbers, found R.Tensor((2,), dtype="bool")'),
    (lambda x: op.cumprod(x, 2), (X,), "axis 2 is out of range for rank 2"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "infos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, infos: Infos, message: str) -> None:
    refused(make, infos, message)
