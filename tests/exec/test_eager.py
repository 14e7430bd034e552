"""Functions called on arrays, without compiling them first by hand."""

import gc
import weakref

import numpy as np
import pytest

from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.exec.api import eager
from relaxpy.ir.core.target import Target
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from tests.exec.kernels import elementwise, function, matmul, size_var, tensor

N = size_var("n")
X = np.ones((2, 3), "float32")


def test_a_function_runs_on_arrays() -> None:
    x = rx.Var("x", tensor((N, 3)))
    func = function([x], [], rx.Tuple((x, rx.ShapeExpr((N,)))))
    result, shape = func(X)
    assert result is X
    assert shape == (2,)
    assert func(x=X)[0] is X
    with pytest.raises(RuntimeCheckError, match="dimension 1 is 2, not 3"):
        func(X.T)


def test_a_kernel_runs_on_arrays() -> None:
    out = np.zeros((2, 2), "float32")
    matmul(size_var("n"), 3, 2)(X, X.T, out)
    np.testing.assert_array_equal(out, X @ X.T)
    with pytest.raises(RuntimeCheckError):
        matmul(size_var("n"), 3, 2)(X, X, out)


def test_a_function_is_compiled_once_and_forgotten_with_it() -> None:
    func = elementwise((2,), lambda v: v + 1.0)
    out = np.zeros(2, "float32")
    func(out, out)
    entry = eager._compiled[func]
    func(out, out)
    assert eager._compiled[func] is entry
    alive = weakref.ref(entry)
    del func, entry
    gc.collect()
    assert alive() is None


def test_a_relax_function_is_forgotten_too() -> None:
    x = rx.Var("x", tensor((N,)))
    func = function([x], [], x)
    func(np.zeros(2, "float32"))
    alive = weakref.ref(func)
    del func
    gc.collect()
    assert alive() is None


def test_a_function_is_compiled_for_the_current_target_and_options(monkeypatch) -> None:
    x = rx.Var("x", tensor((N,)))
    func = function([x], [], x)

    def target() -> str:
        func(np.zeros(2, "float32"))
        return eager._compiled[func]._program.target

    found = target()
    with Target("reference"):
        assert target() == "reference"
    assert target() == found
    monkeypatch.setenv("RELAXPY_TARGET", "numpy")
    assert target() == "numpy"
    entry = eager._compiled[func]
    with PassContext(disabled_pass=["FuseOps"]):
        assert target() == "numpy"
        assert eager._compiled[func] is not entry


def test_a_function_of_a_module_does_not_run_alone() -> None:
    func = function([], [], rx.Call(rx.GlobalVar("other"), ()))
    with pytest.raises(CompileError, match="main calls other of its module") as caught:
        func()
    assert caught.value.diagnostic.hint == 'compile the module: relaxpy.compile(mod)["main"](...)'
