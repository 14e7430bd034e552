"""Kernels of more loops than Python nests blocks in a function."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError
from relaxpy.exec.kernel.runtime import grid
from relaxpy.ir.module import IRModule
from relaxpy.script import from_source

TARGETS = ["numpy", "reference"]
RANKS = [6, 20, 31, 62]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("target", TARGETS)
def test_tensors_may_have_as_many_axes_as_numpy_gives_them(target: str, rank: int) -> None:
    ones = "1, " * (rank - 2)
    func = from_source(f"""
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    n, m = T.int64(), T.int64()
    y = R.reshape(x, (n, m, {ones}))
    z = R.permute_dims(y)
    w = R.add(y, z)
    return (R.sum(w, axis=0), R.squeeze(R.exp(y)))
""")
    x = np.arange(6, dtype="float32").reshape(2, 3)
    total, powers = relaxpy.compile(IRModule({"main": func}), target=target)["main"](x)
    y = x.reshape(2, 3, *[1] * (rank - 2))
    np.testing.assert_allclose(total, (y + y.T).sum(axis=0))
    np.testing.assert_allclose(powers, np.exp(x), rtol=1e-6)


def nest(lines: int, inner: str, *, between: str = "") -> str:
    text = '@T.prim_func\ndef main(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):\n'
    for k in range(lines):
        pad = "    " * (k + 1)
        stop = "2" if k < 5 else "i0 + 2 - i0" if k == 6 else "1"
        text += f"{pad}for i{k} in range({stop}):\n"
        text += f"{pad}    {between}\n" if between else ""
    return f"{text}{'    ' * (lines + 1)}{inner}\n"


@pytest.mark.parametrize("target", TARGETS)
def test_loops_run_one_after_the_other_in_their_order(target: str) -> None:
    """Each round reads what those before it wrote, so that no other order gives the same."""
    place = "(i0 * 5 + i1 * 3 + i2 + i3 * 7 + i4 * 11 + i6 * 13 + i29) % 64"
    func = from_source(nest(30, f"A[{place}] = (A[({place} + 9) % 64] * 3 + B[i0 + i6]) % 1000"))
    a, b = np.arange(64, dtype="int32"), np.arange(64, dtype="int32")[::-1].copy()
    expected = a.copy()
    for i0, i1, i2, i3, i4, i6 in np.ndindex(2, 2, 2, 2, 2, 2):
        k = (i0 * 5 + i1 * 3 + i2 + i3 * 7 + i4 * 11 + i6 * 13) % 64
        expected[k] = (expected[(k + 9) % 64] * 3 + b[i0 + i6]) % 1000
    relaxpy.compile(IRModule({"main": func}), target=target)["main"](a, b)
    np.testing.assert_array_equal(a, expected)


def test_what_python_cannot_nest_is_refused() -> None:
    func = from_source(nest(25, "A[i0] = B[i1 + 1]", between="A[0] = A[1] + B[0]"))
    with pytest.raises(CompileError, match="nest deeper than Python"):
        relaxpy.compile(IRModule({"main": func}))


def test_a_grid_has_every_combination_in_the_order_of_loops() -> None:
    assert list(grid(range(2), range(1, 3))) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert list(grid(range(2), range(0))) == []
