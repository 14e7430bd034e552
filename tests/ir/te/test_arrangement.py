"""Simplified sums, products and comparisons keep the order in which they were written."""

import sys

import pytest

from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import create_prim_func, ordered_as
from relaxpy.ir.tir import expr as tir

A, B, N = (tir.Var(name, "int64") for name in ("a", "b", "n"))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (B + A, "b + a"),
        (A + B, "a + b"),
        (B * A + N, "b * a + n"),
        (N * 2 + A - N, "n + a"),
        (1 + B - A + 2, "b - a + T.int64(3)"),
        (A - B - 1, "a - b - T.int64(1)"),
        (N - A + B, "n - a + b"),
        (0 - B + A, "a - b"),
        (2 * B * A, "b * a * T.int64(2)"),
        ((B + A) // N + A, "(b + a) // n + a"),
        (tir.EQ(A, B - 1), "a == b - T.int64(1)"),
        (tir.NE(B + 1, A), "b + T.int64(1) != a"),
        (tir.EQ(A + 1, B + 2), "a == b + T.int64(1)"),
        (tir.GE(A, tir.IntImm("int64", 4)), "T.int64(4) <= a"),
        (tir.LE(B - 1, A), "b <= a + T.int64(1)"),
        (tir.LE(A, B - 9), "a + T.int64(9) <= b"),
        (tir.LT(A, B + 2), "a < b + T.int64(2)"),
        (tir.GT(A, B), "b < a"),
        (tir.GE(A - B - N, tir.IntImm("int64", 0)), "T.int64(0) <= a - b - n"),
        (tir.GE(A - 5, tir.IntImm("int64", 0)), "T.int64(5) <= a"),
        (tir.LT(A + 1, tir.IntImm("int64", 3)), "a < T.int64(2)"),
        (tir.LE(A + B, B + N), "a <= n"),
    ],
)
def test_what_was_written_first_comes_first(written: tir.PrimExpr, shown: str) -> None:
    found = ordered_as(simplify(written), written)
    assert simplify(found).same_as(simplify(written))
    assert str(found) == shown


def test_floats_and_what_is_written_so_already_stay() -> None:
    x, y = tir.Var("x", "float32"), tir.Var("y", "float32")
    assert ordered_as(y + x, x + y) is y + x
    assert ordered_as(B + A, B + A) is B + A


def test_sums_of_any_length_are_ordered() -> None:
    terms = [A // k for k in range(2, sys.getrecursionlimit() + 200)]
    written = N + B
    for term in terms:
        written = written + term
    swapped = B + N
    for term in terms:
        swapped = swapped + term
    assert ordered_as(swapped, written) is written


def test_kernels_index_as_their_tensor_expressions_do() -> None:
    x = te.placeholder((A, B), name="x")
    y = te.compute((B,), lambda i: x[i * A + N, i + A], name="y")
    text = create_prim_func([x, y, N]).script()
    assert "y[v_i] = x[v_i * a + n, v_i + a]" in text
