"""Programs as people write them, from their text to their results, on both targets."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import FunctionSignatureError, MatchCastError
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.exec.runtime.values import Closure, ShapeTuple
from relaxpy.script import ir as I, relax as R, tir as T

TARGETS = pytest.mark.parametrize("target", ["native", "numpy", "reference"])


@I.ir_module
class Model:
    @T.prim_func(private=True)
    def add(a: T.handle, b: T.handle, c: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (n, m), "float32")
        C = T.match_buffer(c, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.block("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + B[vi, vj]

    @T.prim_func
    def fill(out: T.Buffer((4,), "int64"), value: T.int64):
        for i in range(4):
            out[i] = value + T.int64(i)

    @R.function
    def main(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(("n", "k"), "float32")) -> R.Tensor(
        ("n", 2), "float32"
    ):
        n = T.int64()
        with R.dataflow():
            z = R.match_cast(y, R.Tensor((n, 2), "float32"))
            s = R.call_tir(Model.add, (x, z), out_sinfo=R.Tensor((n, 2), "float32"))
            t = R.call_tir(Model.add, (s, s), out_sinfo=R.Tensor((n, 2), "float32"))
            R.output(t)
        return t

    @R.function
    def counted(x: R.Tensor(("n",), "float32")) -> R.Tensor((4,), "int64"):
        n = T.int64()
        return R.call_tir(Model.fill, (), out_sinfo=R.Tensor((4,), "int64"), tir_vars=[n])

    @R.function
    def choose(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tuple(
        R.Tensor((2,), "float32"), R.Shape([2])
    ):
        if c:
            r = (x, R.shape([2]))
        else:
            one = R.const([1.0, 1.0], "float32")
            r = (one, R.shape_of(x))
        return r

    @R.function
    def curried(x: R.Tensor(("n",), "float32")) -> R.Object:
        n = T.int64()

        @R.function
        def pair(y: R.Tensor((n,), "float32")) -> R.Tuple(R.Object, R.Object):
            return (x, y)

        return pair

    @R.function(pure=False)
    def noisy(x: R.Object) -> R.Object:
        _ = R.print(x, format="got {}")
        return R.call_packed("test.scripts.twice", x, sinfo_args=R.Tensor((2,), "float32"))


X = np.array([[1, 2], [3, 4], [5, 6]], "float32")


@TARGETS
def test_kernels_and_casts(target: str) -> None:
    ex = relaxpy.compile(Model, target)
    np.testing.assert_array_equal(ex["main"](X, X), 4 * X)
    with pytest.raises(MatchCastError, match="dimension 1 is 1, not 2") as caught:
        ex["main"](X, X[:, :1])
    assert "test_scripts.py" in str(caught.value)
    assert "R.match_cast(y" in str(caught.value)
    with pytest.raises(FunctionSignatureError, match=r"parameter y of main.*n = 3") as refused:
        ex["main"](X, X[:2])
    assert "test_scripts.py" in str(refused.value)


@TARGETS
def test_sizes_reach_kernels_as_scalars(target: str) -> None:
    ex = relaxpy.compile(Model, target)
    assert ex["counted"](X[:, 0].copy()).tolist() == [3, 4, 5, 6]
    out = np.zeros(4, "int64")
    ex["fill"](out, 7)
    assert out.tolist() == [7, 8, 9, 10]


@TARGETS
def test_branches(target: str) -> None:
    ex = relaxpy.compile(Model, target)
    x = X[0]
    tensor, shape = ex["choose"](True, x)
    assert tensor is x
    assert shape == ShapeTuple((2,))
    assert ex["choose"](np.array(False), x)[0].tolist() == [1, 1]


@TARGETS
def test_closures(target: str) -> None:
    closure = relaxpy.VirtualMachine(relaxpy.compile(Model, target))["curried"](X[0])
    assert isinstance(closure, Closure)
    first, second = closure(X[1])
    assert first.tolist() == [1, 2]
    assert second.tolist() == [3, 4]
    with pytest.raises(FunctionSignatureError, match="dimension 0 is 3, but n = 2"):
        closure(np.zeros(3, "float32"))


@TARGETS
def test_effects(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    register_func("test.scripts.twice", lambda x: 2 * x)
    try:
        assert relaxpy.compile(Model, target)["noisy"](X[0]).tolist() == [2, 4]
    finally:
        remove_global_func("test.scripts.twice")
    assert capsys.readouterr().out == "got [1. 2.]\n"


def test_a_decorated_function_runs_when_called() -> None:
    @R.function
    def shapes(x: R.Tensor(("n", "m"), "float32")) -> R.Shape(["m", "n"]):
        n, m = T.int64(), T.int64()
        return R.shape([m, n])

    @T.prim_func
    def double(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
        for i in range(2):
            b[i] = a[i] * 2.0

    assert shapes(X) == (2, 3)
    out = np.zeros(2, "float32")
    double(X[0], out)
    assert out.tolist() == [2, 4]
