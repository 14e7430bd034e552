"""Which loop fills vectors, and how reductions of columns are joined with what they reduce."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.script import from_source
from tests.exec.native.test_contract import graph, numbers, run


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 33])
def test_extremes_of_few_columns(columns: int) -> None:
    for rows in (1, 15, 100):
        x = numbers((rows, columns))
        x[rows // 2, columns // 2] = np.nan
        params = f'x: R.Tensor({x.shape}, "float32")'
        for name in ("max", "min", "argmax", "argmin"):
            expected = getattr(np, name)(x, axis=1)
            np.testing.assert_array_equal(run(graph(params, f"R.{name}(x, 1)"), x), expected)


@pytest.mark.parametrize("shape", [(50, 1), (1000, 3), (300, 100), (70, 600)])
def test_variances_of_columns(shape: tuple[int, int]) -> None:
    x = numbers(shape)
    text = graph(f'x: R.Tensor({shape}, "float32")', "R.variance(x, [0])")
    np.testing.assert_allclose(run(text, x), x.astype("float64").var(0), rtol=1e-5)
    ex = relaxpy.compile(from_source(text), target="native")
    [name] = {row.kernel for row in ex.report()}
    first, _ = ex.kernel_source(name, "tree").split("\n", 1)
    assert set(first.removeprefix("in registers: ").split(", ")) == {"T_subtract", "T_multiply"}


def test_functions_of_three_columns() -> None:
    text = """
@T.prim_func
def main(P: T.Buffer((40, 3), "float32"), A: T.Buffer((40, 3), "float32")):
    for i, d in T.grid(40, 3):
        A[i, d] = T.float32(0)
        for j in range(40):
            A[i, d] = A[i, d] + (P[j, d] - P[i, d]) * T.exp(P[j, 0] * P[i, 1])
"""
    p, a = numbers((40, 3)), np.empty((40, 3), "float32")
    relaxpy.compile(from_source(text), target="native")["main"](p, a)
    wide = p.astype("float64")
    factor = np.exp(wide[None, :, 0] * wide[:, 1, None])
    expected = ((wide[None] - wide[:, None]) * factor[..., None]).sum(1)
    np.testing.assert_allclose(a, expected, rtol=1e-4, atol=1e-4)


def test_functions_of_many_instructions_have_loops_of_their_own() -> None:
    """What a processor looks ahead then is of several vectors, not of one."""
    text = graph('x: R.Tensor((20, 50), "float32")', "R.sigmoid(R.add(R.tanh(R.exp(x)), x))")
    ex = relaxpy.compile(from_source(text), target="native")
    [name] = {row.kernel for row in ex.report()}
    loops = ex.kernel_source(name, "tree").split("each i0")[1:]
    assert [[f for f in ("exp", "tanh", "+", "sigmoid") if f in x] for x in loops] == [
        ["exp"], ["tanh", "+"], ["sigmoid"],
    ]  # fmt: skip
    x = numbers((20, 50))
    wide = np.tanh(np.exp(x.astype("float64"))) + x
    np.testing.assert_allclose(ex["main"](x), 1 / (1 + np.exp(-wide)), rtol=1e-5)


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_clamped_indices_are_gathered(kind: str) -> None:
    text = f"""
@T.prim_func
def main(a: T.Buffer((7,), "float32"), p: T.handle, y: T.handle):
    n = T.int64()
    P = T.match_buffer(p, (n,), "{kind}")
    Y = T.match_buffer(y, (n,), "float32")
    for i in range(n):
        Y[i] = a[INDEX]
"""
    clamped = f"T.max(T.min(P[i], T.{kind}(6)), T.{kind}(0))"
    places = np.arange(-50, 51, dtype=kind)
    a, y = np.arange(7, dtype="float32"), np.zeros(101, "float32")
    ex = relaxpy.compile(from_source(text.replace("INDEX", clamped)), target="native")
    assert ex.kernel_source("main", "tree").startswith("each i < n:")
    for n in (0, 1, 15, 101):
        ex["main"](a, places[:n], y[:n])
        np.testing.assert_array_equal(y[:n], places[:n].clip(0, 6))
    for index in (f"T.min(P[i], T.{kind}(6))", f"T.max(T.min(P[i], T.{kind}(7)), T.{kind}(0))"):
        main = relaxpy.compile(from_source(text.replace("INDEX", index)), target="native")["main"]
        with pytest.raises(RelaxpyError, match="index"):
            main(a, places, y)
