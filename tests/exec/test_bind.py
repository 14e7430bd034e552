"""Weights that are bound to executables."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, StructInfoError, UnknownNameError
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.native.values import packing
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Module:
    @T.prim_func
    def increment(x: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("increment"):
                vi = T.axis.spatial(4, i)
                x[vi] = x[vi] + T.float32(1)

    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"),
        w: R.Tensor((8, 6), "float32"),
        b: R.Tensor((6,), "float32"),
    ):
        return R.nn.relu(R.add(R.matmul(x, w), b))

    @R.function
    def twice(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        cls = Module
        y = cls.once(x, w)
        return cls.once(y, w)

    @R.function
    def once(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        return R.matmul(x, w)

    @R.function
    def pair(x: R.Tensor((4,), "float32"), ws: R.Tuple(R.Tensor((4,), "float32"), R.Prim("int64"))):
        return (R.add(x, ws[0]), ws[1])

    @R.function
    def sizes(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor(("m", "k"), "float32")):
        return R.matmul(x, w)

    @R.function(pure=False)
    def written(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        cls = Module
        y = R.call_tir_inplace(cls.increment, (w,), 0, R.Tensor((4,), "float32"))
        return R.add(x, y)


RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 8), dtype="float32")
W, B = RNG.standard_normal((8, 6), dtype="float32"), RNG.standard_normal(6, dtype="float32")
SQUARE, ROW = RNG.standard_normal((8, 8), dtype="float32"), np.arange(4, dtype="float32")


def expected(x: Any, w: Any, b: Any) -> Any:
    return np.maximum(x.astype("float64") @ w + b, 0)


def check(bound: Executable, unbound: Executable) -> None:
    """Check the result of `main` with `w` and `b`, which the function has no more."""
    assert [value.name for value in bound.inputs] == ["x"]
    np.testing.assert_array_equal(bound(X), unbound(X, W, B))
    np.testing.assert_allclose(bound(X), expected(X, W, B), rtol=1e-5, atol=1e-5)


TARGETS = "native", "numpy", "reference"


@pytest.mark.parametrize("target", TARGETS)
def test_bound_weights_are_arguments_no_more(target: str) -> None:
    ex = relaxpy.compile(Module, target)
    check(ex.bind({"w": W}, b=B), ex)
    partly = ex.bind(b=B)
    check(partly.bind(w=W), ex)
    assert [value.name for value in ex.inputs] == ["x", "w", "b"]
    np.testing.assert_array_equal(partly(X, w=W), ex(X, W, B))
    assert partly.target == target
    assert [*partly] == [*ex]
    np.testing.assert_array_equal(partly["once"](X, SQUARE), ex["once"](X, SQUARE))


def legalized(module: Any) -> Any:
    return relaxpy.get_pipeline("legalize")(module)


def test_the_program_is_compiled_as_before() -> None:
    for options in (
        {"relax_pipeline": "legalize"},
        {"relax_pipeline": legalized},
        {"target": relaxpy.target.Native()},
        {"target": "native", "schedules": "as written"},
    ):
        ex = relaxpy.compile(Module, **options)
        bound = ex.bind(w=W, b=B)
        check(bound, ex)
        assert {r.kernel for r in bound.report()} == {r.kernel for r in ex.report()}
        if "schedules" in options:
            assert "as written" in str(bound.report())
    assert relaxpy.compile(legalized(Module), relax_pipeline=None).bind(w=W, b=B)(X).shape == (3, 6)


def test_what_has_an_executable_binds_its_weights(tmp_path: Path) -> None:
    ex = relaxpy.compile(Module)
    machine = relaxpy.VirtualMachine(ex).bind(w=W, b=B)
    np.testing.assert_array_equal(machine["main"](X), ex(X, W, B))
    check(relaxpy.VirtualMachine(ex).module.bind(w=W, b=B), ex)
    ex.save(tmp_path / "model.rxp")
    for native_code in (False, True):
        loaded = relaxpy.load_executable(tmp_path / "model.rxp", native_code=native_code)
        check(loaded.bind(w=W, b=B), ex)
    ex.bind(w=W, b=B).save(tmp_path / "bound.rxp")
    check(relaxpy.load_executable(tmp_path / "bound.rxp"), ex)
    np.testing.assert_array_equal(Module["main"].bind_params({"w": W, "b": B})(X), ex(X, W, B))


@pytest.mark.parametrize("target", TARGETS)
def test_arrays_are_the_callers(target: str) -> None:
    w, b = W.copy(), B.copy()
    ex = relaxpy.compile(Module, target)
    bound = ex.bind(w=w, b=b)
    before = bound(X)
    np.testing.assert_array_equal(w, W)
    w[:], b[0] = 0, np.nan
    np.testing.assert_array_equal(bound(X), before)
    np.testing.assert_array_equal(ex.bind(w=w, b=B)(X), expected(X, w, B).astype("float32"))
    row = ROW.copy()
    written = ex.bind(w=row, function="written")["written"]
    for _ in range(2):  # a call does not change what the next one reads
        np.testing.assert_array_equal(written(ROW), 2 * ROW + 1)
    np.testing.assert_array_equal(row, ROW)


@R.function
def product(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 96), "float32")):
    return R.matmul(x, w)


def test_packed_copies_are_shared_by_what_has_equal_weights(monkeypatch: Any) -> None:
    shared: WeakValueDictionary[Any, Any] = WeakValueDictionary()
    monkeypatch.setattr(packing, "_SHARED", shared)
    x, w = RNG.standard_normal((20, 64), "float32"), RNG.standard_normal((64, 96), "float32")
    ex = relaxpy.compile(product, "native")
    first = ex.bind(w=w)
    assert len(shared) == 1
    negated = product.bind_params({"w": w}).bind_params({"x": x})  # another program
    second, third = ex.bind(w=w.copy()), relaxpy.compile(negated, "native")
    assert len(shared) == 1
    fourth = ex.bind(w=2 * w)
    assert len(shared) == 2
    np.testing.assert_array_equal(third(), ex(x, w))
    for bound, weights in ((first, w), (second, w), (fourth, 2 * w)):
        np.testing.assert_array_equal(bound(x), ex(x, weights))
    del first, second, third, fourth, bound
    gc.collect()
    assert not shared


def test_functions_that_call_a_bound_one_pass_its_parameters_as_before() -> None:
    ex = relaxpy.compile(Module)
    bound = ex.bind(w=SQUARE, function="once")
    np.testing.assert_array_equal(bound["once"](X), ex["once"](X, SQUARE))
    np.testing.assert_array_equal(bound["twice"](X, SQUARE), ex["twice"](X, SQUARE))
    assert {*bound} == {*ex}


def test_weights_are_tuples_and_determine_sizes() -> None:
    ex = relaxpy.compile(Module)
    total, number = ex.bind(ws=(ROW, 7), function="pair")["pair"](ROW)
    np.testing.assert_array_equal(total, 2 * ROW)
    assert number == 7
    sized = ex.bind(w=SQUARE, function="sizes")["sizes"]
    assert str(sized.signature.params[0].struct_info) == 'R.Tensor((n, 8), dtype="float32")'
    np.testing.assert_array_equal(sized(X), ex["sizes"](X, SQUARE))
    with pytest.raises(relaxpy.errors.FunctionSignatureError):
        sized(X[:, :7])


Bind = Callable[[Executable], object]
WRONG: dict[str, tuple[Bind, type[Exception], str]] = {
    "nothing": (lambda ex: ex.bind(), MisuseError, r"found none\n.*\n.*\n.*ex.bind\(w=array\)"),
    "an empty mapping": (lambda ex: ex.bind({}), MisuseError, "found none"),
    "an array": (lambda ex: ex.bind(W), MisuseError, "weights are a mapping of names"),
    "twice": (lambda ex: ex.bind({"w": W}, w=W), MisuseError, "parameter w is bound twice"),
    "unknown": (lambda ex: ex.bind(w2=W), UnknownNameError, "no parameter w2; it has x, w, b"),
    "no name": (lambda ex: ex.bind({1: W}), MisuseError, "dict from Vars or strings"),  # type: ignore[dict-item]
    "a size": (lambda ex: ex.bind(n=3), UnknownNameError, "n is a shape variable"),
    "a shape": (lambda ex: ex.bind(w=W.T), StructInfoError, "dimension 0: 6 is not 8"),
    "a datatype": (lambda ex: ex.bind(w=W.astype("f8")), StructInfoError, "float64 is not float32"),
    "a text": (lambda ex: ex.bind(w="w"), StructInfoError, "an object is not a tensor"),
    "a function": (lambda ex: ex.bind(w=W, function="man"), UnknownNameError, "no function 'man'"),
    "bound before": (lambda ex: ex.bind(w=W).bind(w=W), UnknownNameError, "it has x, b"),
    "two sizes": (
        lambda ex: ex.bind(x=X, w=W[:7], function="sizes"),
        StructInfoError,
        "dimension 0: 7 is not 8",
    ),
    "a kernel": (
        lambda ex: relaxpy.compile(Module["increment"]).bind(x=ROW),
        MisuseError,
        "only parameters of Relax functions are bound: increment is none",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_bound_is_refused(name: str) -> None:
    bind, kind, message = WRONG[name]
    ex = relaxpy.compile(Module, "numpy")
    with pytest.raises(kind, match=message):
        bind(ex)


def test_an_executable_outlives_its_decorated_function() -> None:
    @R.function
    def once(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        return R.matmul(x, w)

    ex = relaxpy.compile(once)
    once(X, SQUARE)  # whose code is shared, and does not keep the function
    del once
    gc.collect()
    assert not ex.check_values(X, SQUARE).problem
    np.testing.assert_array_equal(ex.bind(w=SQUARE)(X), ex(X, SQUARE))


def test_folding_sees_bound_weights() -> None:
    @R.function
    def main(x: R.Tensor((8,), "float32"), w: R.Tensor((8, 8), "float32")):
        return R.matmul(x, R.permute_dims(R.multiply(w, w)))

    ex = relaxpy.compile(main, "numpy")
    bound = ex.bind(w=SQUARE)
    assert len(bound.report().rows) < len(ex.report().rows)
    np.testing.assert_allclose(bound(X[0]), ex(X[0], SQUARE), rtol=1e-6)
    assert relax.analysis.well_formed(bound.written)
