"""Struct info of operators that repeat, move, mask or contract elements, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.tir import expr as tir
from relaxpy.script import ir as I, relax as R
from tests.ir.relax.op.test_rules import OPEN, UNKNOWN, Infos, M, Made, N, check, refused
from tests.ir.relax.sinfos import prim, rank, shape, tensor, tuple_of

K = tir.Var("k", "int64")
PAIR = tuple_of(tensor(N), tensor(M))
INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (lambda x: op.repeat(x, 3, 1), (tensor(2, N),), tensor(2, N * 3)),
    (lambda x: op.repeat(x, 3), (tensor(2, N),), tensor(N * 6)),
    (lambda x: op.repeat(x, 3), (rank(2),), rank(1)),
    (lambda x: op.repeat(x, 3, -1), (rank(2),), rank(2)),
    (lambda x: op.repeat(x, 3, 5), (OPEN,), OPEN),
    (lambda x: op.repeat(x, 1, 0), (tensor(2, N),), tensor(2, N)),
    (lambda x: op.tile(x, (2, 1)), (tensor(2, N),), tensor(4, N)),
    (lambda x: op.tile(x, (2, 3, 1)), (tensor(2, N),), tensor(2, 6, N)),
    (lambda x: op.tile(x, 4), (tensor(2, N),), tensor(2, N * 4)),
    (lambda x: op.tile(x, (2, 3, 1)), (rank(2),), rank(3)),
    (lambda x: op.tile(x, (2, 3, 1)), (UNKNOWN,), UNKNOWN),
    (lambda x: op.flip(x, -1), (tensor(2, N),), tensor(2, N)),
    (lambda x: op.flip(x, 7), (OPEN,), OPEN),
    (lambda x: op.roll(x, 1), (tensor(2, N),), tensor(2, N)),
    (lambda x: op.roll(x, (1, 2), (0, 1)), (rank(2),), rank(2)),
    (op.reverse_sequence, (tensor(N, 3), tensor(M, dtype="int64")), tensor(N, 3)),
    (
        lambda x, n: op.reverse_sequence(x, n, -2, -1),
        (tensor(N, 3), tensor(3, dtype="int32")),
        tensor(N, 3),
    ),
    (op.reverse_sequence, (rank(3), UNKNOWN), rank(3)),
    (lambda x, n: op.reverse_sequence(x, n, 9, 9), (OPEN, rank(1, "int32")), OPEN),
    (op.meshgrid, (PAIR,), tuple_of(tensor(N, M), tensor(N, M))),
    (lambda x: op.meshgrid(x, "xy"), (PAIR,), tuple_of(tensor(M, N), tensor(M, N))),
    (op.meshgrid, (tuple_of(tensor(2), rank(1)),), tuple_of(rank(2), rank(2))),
    (op.meshgrid, (tuple_of(OPEN),), tuple_of(rank(1))),
    (
        lambda x: op.one_hot(x, 1, 0, 4),
        (tensor(2, N, dtype="int32"),),
        tensor(2, N, 4, dtype="int64"),
    ),
    (lambda x: op.one_hot(x, 1, 0, 4, 0), (tensor(N, dtype=""),), tensor(4, N, dtype="int64")),
    (lambda x: op.one_hot(x, 1, 0, 4), (rank(1, "int8"),), rank(2, "int64")),
    (lambda x: op.one_hot(x, 1, 0, 4), (UNKNOWN,), rx.TensorStructInfo(None, "int64")),
    (op.tril, (tensor(2, N),), tensor(2, N)),
    (lambda x: op.triu(x, K), (rank(3),), rank(3)),
    (lambda x, k: op.triu(x, k), (OPEN, prim(dtype="int32")), OPEN),
    (lambda: op.eye(N, 3), (), tensor(N, 3)),
    (lambda: op.eye(N, dtype="int8"), (), tensor(N, N, dtype="int8")),
    (lambda n: op.eye(n, 2), (prim(dtype="int64"),), rank(2)),
    (op.eye_like, (tensor(N, 3),), tensor(N, 3)),
    (lambda x: op.eye_like(x, 1, "bool"), (OPEN,), rx.TensorStructInfo(None, "bool")),
    (lambda: op.hamming_window(N, True, 0.5, 0.5, "float16"), (), tensor(N, dtype="float16")),
    (op.hamming_window, (prim(dtype="int64"),), rank(1)),
    (op.outer, (tensor(N), tensor(3)), tensor(N, 3)),
    (op.outer, (tensor(N), OPEN), rank(2)),
    (lambda *x: op.einsum(x, "ij,jk"), (tensor(2, N), tensor(N, 4)), tensor(2, 4)),
    (lambda *x: op.einsum(x, "ij,jk->ik"), (tensor(2, N), tensor(M, 4)), rank(2)),
    (lambda *x: op.einsum(x, "ij,jk->k"), (tensor(2, 1), tensor(N, 4)), tensor(4)),
    (lambda *x: op.einsum(x, "...i->..."), (tensor(2, N, 3),), tensor(2, N)),
    (lambda *x: op.einsum(x, "...i->..."), (rank(4),), rank(3)),
    (lambda *x: op.einsum(x, "ij,jk"), (tensor(2, 3), OPEN), OPEN),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


REFUSED: list[tuple[Made, Infos, str]] = [
    (lambda x: op.repeat(x, -1), (tensor(2),), "repeats is 0 at least, found -1"),
    (lambda x: op.repeat(x, 2, 1), (tensor(2),), "axis 1 is out of range for rank 1"),
    (lambda x: op.tile(x, (2, -3)), (tensor(2),), "repeats is 0 at least, found -3"),
    (lambda x: op.flip(x, 2), (rank(2),), "axis 2 is out of range for rank 2"),
    (lambda x: op.roll(x, (1, 2)), (tensor(2),), "without an axis there is one shift"),
    (
        lambda x: op.roll(x, 1, (0, 1)),
        (rank(2),),
        "each axis has a shift, found [1] for axes [0, 1]",
    ),
    (lambda x: op.roll(x, 1, 3), (rank(2),), "axis 3 is out of range for rank 2"),
    (
        op.reverse_sequence,
        (tensor(2, 3), tensor(4, dtype="int32")),
        "seq_lengths has a length for each of 2 along axis 0 of data (2, 3), found 4",
    ),
    (op.reverse_sequence, (tensor(2, 3), tensor(2)), "seq_lengths holds int32 or int64"),
    (op.reverse_sequence, (tensor(2, 3), rank(2, "int32")), "seq_lengths is a vector"),
    (op.reverse_sequence, (tensor(3), rank(1, "int32")), "seq_axis 1 is out of range for rank 1"),
    (
        lambda x, n: op.reverse_sequence(x, n, 1, -1),
        (tensor(2, 3), rank(1, "int32")),
        "seq_axis and batch_axis are two axes, found 1 and -1",
    ),
    (op.meshgrid, (tuple_of(),), "tensors holds one vector at least, found none"),
    (op.meshgrid, (tuple_of(tensor(2, 3)),), "tensors holds vectors, found R.Tensor((2, 3)"),
    (op.meshgrid, (tuple_of(shape(2)),), "tensors holds tensors, found R.Shape([2]) as number 1"),
    (op.meshgrid, (tuple_of(tensor(2), tensor(2, dtype="int8")),), "tensors have one datatype"),
    (lambda x: op.one_hot(x, 1, 0, 4), (tensor(2),), "indices holds integers"),
    (lambda x: op.one_hot(x, 1, 0, 0), (tensor(2, dtype="int8"),), "depth is positive, found 0"),
    (
        lambda x: op.one_hot(x, 1, 0.5, 3),
        (tensor(2, dtype="int8"),),
        "on_value and off_value have one datatype, found int64 and float64",
    ),
    (
        lambda x: op.one_hot(x, 1, 0, 4, 2),
        (tensor(2, dtype="int8"),),
        "axis 2 is out of range for rank 2",
    ),
    (op.tril, (tensor(3),), "x has rank 2 at least, found R.Tensor((3,)"),
    (lambda x: op.triu(x, 0.5), (tensor(3, 3),), "k is an integer, found R.Prim"),
    (lambda n: op.eye(n), (prim(dtype="float32"),), "n is an integer"),
    (lambda: op.eye(2, dtype=""), (), "a tensor is created in a datatype"),
    (op.eye_like, (tensor(3),), "x has rank 2, found R.Tensor((3,)"),
    (
        lambda: op.hamming_window(0, True, 0.5, 0.5, "float32"),
        (),
        "window_size is positive, found 0",
    ),
    (
        lambda: op.hamming_window(4, True, 0.5, 0.5, "int8"),
        (),
        "dtype is one of floats, found int8",
    ),
    (op.outer, (tensor(2, 3), tensor(2)), "x1 is a vector, found R.Tensor((2, 3)"),
    (op.outer, (tensor(2), tensor(2, dtype="int8")), "x1 and x2 have one datatype"),
    (
        lambda *x: op.einsum(x, "ij,jk"),
        (tensor(2, 3), tensor(4, 5)),
        "label 'j' of 'ij,jk' has sizes 3 and 4: the operands are R.Tensor((2, 3)",
    ),
    (lambda *x: op.einsum(x, "ij"), (tensor(2, 3), tensor(4, 5)), "subscripts 'ij' have 1 operand"),
    (
        lambda *x: op.einsum(x, "ijk"),
        (tensor(2, 3),),
        "operand 0 has rank 2, but 'ijk' of 'ijk' labels 3 axes",
    ),
    (lambda *x: op.einsum(x, "ij->ii"), (tensor(2, 3),), "label 'i' occurs twice in the result"),
    (
        lambda *x: op.einsum(x, "ij->k"),
        (tensor(2, 3),),
        "label 'k' of the result of 'ij->k' is on no operand",
    ),
    (
        lambda *x: op.einsum(x, "i*"),
        (tensor(2, 3),),
        "subscripts are letters, commas, '...' and '->'",
    ),
    (lambda: op.einsum((), "i"), (), "operands holds one tensor at least, found none"),
    (lambda *x: op.einsum(x, "i"), (shape(2),), "operands holds tensors, found R.Shape([2])"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, sinfos: Infos, message: str) -> None:
    refused(make, sinfos, message)


def test_attributes_of_other_types_are_refused() -> None:
    x = rx.Var("x", tensor(2, 3))
    with pytest.raises(MisuseError, match="indexing is 'ij' or 'xy', found 'yx'"):
        op.meshgrid((x,), "yx")
    with pytest.raises(MisuseError, match=r"repeats is int.*, found '2'"):
        op.tile(x, "2")


@I.ir_module
class Symbolic:
    @R.function
    def identity(x: R.Tensor(("n", 3), "float32")):
        n = x.shape[0]
        return R.matmul(R.eye(n, n), x)

    @R.function
    def banded(x: R.Tensor(("n", "n"), "float32"), k: R.Prim("int64")):
        return R.tril(R.triu(x, -1), k)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_sizes_and_diagonals_of_the_program(target: str) -> None:
    executable = relaxpy.compile(Symbolic, target)
    x = np.arange(12, dtype="float32").reshape(4, 3)
    np.testing.assert_array_equal(executable["identity"](x), x)
    square = np.arange(1, 17, dtype="float32").reshape(4, 4)
    np.testing.assert_array_equal(executable["banded"](square, 1), np.tril(np.triu(square, -1), 1))
