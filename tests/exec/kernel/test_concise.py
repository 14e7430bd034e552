"""Whole arrays stand for their only element along leading axes, and outputs have no name."""

import ast

import numpy as np
import pytest

import relaxpy
from relaxpy import te, tir
from relaxpy.exec.kernel.emit.named_views import with_named_views
from tests.exec.kernel.support import check, source_of

rng = np.random.default_rng(3)
X = te.placeholder((1, 1, 4), "float32", "x")
ROW = te.placeholder((1, 4), "float32", "row")
WIDE = te.placeholder((1, 1, 1, 1, 4), "float32", "wide")
HEADS = te.placeholder((1, 3, 4), "float32", "heads")
AXIS = te.reduce_axis((0, 4), "r")


def sigmoid(x: te.Tensor) -> te.Tensor:
    return te.compute((1, 1, 4), lambda i, j, k: tir.sigmoid(x[i, j, k]), "out")


def add_row(x: te.Tensor, row: te.Tensor) -> te.Tensor:
    return te.compute((1, 1, 4), lambda i, j, k: x[i, j, k] + row[i, k], "out")


def add_wide(row: te.Tensor, wide: te.Tensor) -> te.Tensor:
    return te.compute((1, 4), lambda i, k: row[i, k] + wide[i, i, i, i, k], "out")


def spread(x: te.Tensor, heads: te.Tensor) -> te.Tensor:
    return te.compute((1, 3, 4), lambda i, j, k: tir.max(x[i, i, k], heads[i, j, k]), "out")


def total(x: te.Tensor) -> te.Tensor:
    return te.compute((1, 3), lambda i, j: te.sum(x[i, j, AXIS], AXIS), "out")


def squares(x: te.Tensor) -> te.Tensor:
    return te.compute((1, 1), lambda i, j: te.sum(x[i, j, AXIS] * x[i, j, AXIS], AXIS), "out")


@pytest.mark.parametrize(
    ("inputs", "out", "line"),
    [
        ([X], sigmoid(X), "rt.sigmoid(x, out=out)"),
        ([X, ROW], add_row(X, ROW), "np.add(x[0, 0], row[0], out[0, 0])"),
        ([ROW, WIDE], add_wide(ROW, WIDE), "np.add(row[0], wide[0, 0, 0, 0], out[0])"),
        ([X, HEADS], spread(X, HEADS), "np.maximum(x, heads, out=out)"),
        ([HEADS], total(HEADS), "np.add.reduce(heads, axis=-1, initial=0.0, out=out)"),
        ([X], squares(X), "np.vecdot(x, x, out=out)"),
    ],
)
def test_small_calls(inputs: list[te.Tensor], out: te.Tensor, line: str) -> None:
    func = te.create_prim_func([*inputs, out])
    shapes = [tuple(map(int, t.shape)) for t in (*inputs, out)]
    check(func, *(rng.standard_normal(shape, dtype=np.float32) for shape in shapes))
    assert source_of(func).rstrip().endswith(line)


def dense(x: te.Tensor, row: te.Tensor) -> te.Tensor:
    product = te.compute(
        (1, 4), lambda i, j: te.sum(x[i, 0, AXIS] * WEIGHT[j, AXIS], AXIS), "product"
    )
    return te.compute((1, 4), lambda i, j: tir.tanh(product[i, j] + row[j]), "out")


WEIGHT = te.placeholder((4, 4), "float32", "weight")
BIAS = te.placeholder((4,), "float32", "bias")


def test_products_are_stored_where_memory_is_not_contiguous() -> None:
    func = te.create_prim_func([X, WEIGHT, BIAS, dense(X, BIAS)])
    x, weight, bias = (rng.standard_normal(s, dtype=np.float32) for s in [(1, 1, 4), (4, 4), 4])
    out = np.zeros((1, 8), np.float32)
    relaxpy.compile(func, "numpy")["main"](x, weight, bias, out[:, ::2])
    np.testing.assert_allclose(out[:, ::2], np.tanh(x[0] @ weight.T + bias), rtol=1e-5)
    assert not out[:, 1::2].any()


def test_a_view_is_not_used_after_its_array_is_another() -> None:
    text = """
f(x[0], x[0], x[0], x[1:])
for i in range(2):
    x = g(i)
    f(x[0])
x = f(x[0])
f(x[0], y[0], y[0], y[i], y[0])
"""
    lines = with_named_views(ast.parse(text).body, {"x": MATRIX, "y": MATRIX}, "{}_1".format)
    module = ast.fix_missing_locations(ast.Module(lines, []))
    assert ast.unparse(module) == (
        "x_1 = x[0]\nf(x_1, x_1, x_1, x[1:])\nfor i in range(2):\n    x = g(i)\n    f(x[0])\n"
        "x_1 = x[0]\nx = f(x_1)\nx_1 = x[0]\ny_1 = y[0]\nf(x_1, y_1, y_1, y[i], y_1)"
    )


MATRIX = tir.decl_buffer((4, 4), "float32", "matrix")
