"""The checks of calls, on both targets, and what may be passed from outside."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.errors import FunctionSignatureError, RelaxpyError, RuntimeCheckError, Source, Span
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from tests.exec.kernels import elementwise, function, module, size_var, tensor

Build = Callable[..., Executable]
N, M = size_var("n"), size_var("m")
OBJECT = rx.ObjectStructInfo()


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.fixture(params=["reference", "numpy"])
def build(request: pytest.FixtureRequest) -> Build:
    def compiled(mod: IRModule | rx.Function) -> Executable:
        return compile(mod, request.param, relax_pipeline=None)

    return compiled


def taking(
    *sinfos: rx.StructInfo | None, result: rx.Expr | None = None, ret: rx.StructInfo | None = None
) -> rx.Function:
    """A function of parameters a, b, c, … that gives `result`, or them all."""
    params = [rx.Var(name, sinfo) for name, sinfo in zip("abcdef", sinfos, strict=False)]
    return function(params, [], result or rx.Tuple(tuple(params)), ret=ret)


def refused(ex: Executable, args: tuple[object, ...], message: str, rule: str) -> str:
    with pytest.raises(FunctionSignatureError, match=message) as caught:
        ex["main"](*args)
    assert caught.value.diagnostic.rule == rule
    return str(caught.value)


@pytest.mark.rule("FN-1", "FN-10")
@pytest.mark.parametrize(
    ("sinfo", "value", "message", "rule"),
    [
        (tensor((2, 3)), zeros(2), "its rank .ndim. is 1, not 2", "FN-1"),
        (tensor((2, 3)), zeros(2, 3, dtype="int32"), "its dtype is int32, not float32", "FN-1"),
        (tensor((2, 3)), zeros(2, 4), "dimension 1 is 4, not 3", "FN-5"),
        (tensor((2, 3)), None, "the null object", "FN-1"),
        (tensor((2, 3)), [[0.0] * 3] * 2, r'asarray\(\.\.\., "float32"\)', "FN-1"),
        (tensor((2, 3)), "abc", "an object of class str", "FN-1"),
        (tensor((2, 3)), zeros(2, 3, dtype="complex64"), "complex64", "FN-1"),
        (rx.ShapeStructInfo(ndim=2), (1, 2), "relaxpy.runtime.ShapeTuple", "FN-1"),
        (rx.PrimStructInfo("int64"), zeros(), "a tensor is not a prim value", "FN-1"),
        (rx.PrimStructInfo("int64"), 0.5, "its dtype is float64, not int64", "FN-1"),
        (rx.PrimStructInfo("int8"), 300, "its dtype is int64, not int8", "FN-1"),
        (rx.TupleStructInfo((OBJECT,)), (1, 2), "it has 2 fields, not 1", "FN-1"),
        (rx.FuncStructInfo((), OBJECT), len, "is not a closure or a PrimFunc", "FN-1"),
        (rx.FuncStructInfo((), OBJECT), len, "declare the parameter as R.Callable", "FN-1"),
        (tensor((2, 3)), zeros(2, 3, dtype="longdouble"), ": it is not a tensor", "FN-1"),
        (tensor((1,)), zeros(1, dtype="object"), "an array of dtype object: it is not", "FN-1"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(build, sinfo, value, message, rule) -> None:
    text = refused(build(taking(OBJECT, sinfo)), (1, value), message, rule)
    assert text.startswith(f"parameter b of main: expected {sinfo}, found ")


@pytest.mark.rule("FN-2")
def test_calls_inside_the_module_are_checked_too(build: Build) -> None:
    inner = rx.GlobalVar("inner")
    x = rx.Var("x")
    f, y = rx.Var("f"), rx.Var("y")
    a = rx.Var("a", tensor((2,)))
    closure = function([a], [], a, name=None)
    direct = function([x], [], rx.Call(inner, (x,)), name="direct")
    through = function([x], [(f, closure), (y, rx.Call(f, (x,)))], y, name="through")
    value = function([x], [(f, inner), (y, rx.Call(f, (x,)))], y, name="value")
    ex = build(
        IRModule(
            {
                inner: function([a], [], a, name=None),
                "direct": direct,
                "through": through,
                "value": value,
            }
        )
    )
    for name in ("direct", "through", "value"):
        array = zeros(2)
        assert ex[name](array) is array
        with pytest.raises(FunctionSignatureError, match=r"parameter a of \w+: .*dimension 0 is 3"):
            ex[name](zeros(3))
        with pytest.raises(FunctionSignatureError, match="a prim value is not a tensor"):
            ex[name](1.0)


@pytest.mark.rule("FN-3")
@pytest.mark.parametrize("value", [1, None, "s", zeros(2), (), len])
def test_a_parameter_without_annotation_takes_anything(build: Build, value: object) -> None:
    assert build(taking(None))["main"](value) == (value,)


@pytest.mark.rule("FN-4", "FN-6", "SC-12")
def test_lone_variables_bind_and_then_must_match(build: Build) -> None:
    ex = build(taking(tensor((N, M)), tensor((M, N)), result=rx.ShapeExpr((N, M))))
    assert ex["main"](zeros(2, 3), zeros(3, 2)) == (2, 3)
    text = refused(ex, (zeros(2, 3), zeros(2, 2)), "dimension 0 is 2, but m = 3", "FN-5")
    assert "m = 3 was bound by dimension 1 of parameter a of main" in text


@pytest.mark.rule("FN-5", "RES-33")
def test_everything_is_bound_before_anything_is_compared(build: Build) -> None:
    ex = build(taking(tensor((N * 2,)), tensor((N,)), result=rx.ShapeExpr((N,))))
    assert ex["main"](zeros(6), zeros(3)) == (3,)
    refused(ex, (zeros(5), zeros(3)), r"dimension 0 is 5, but n \* 2 = 6", "FN-5")
    both = build(taking(tensor((3,)), tensor((2,))))
    refused(both, (zeros(4), zeros(2, 2)), "parameter b of main.*its rank .ndim. is 2", "FN-1")


@pytest.mark.rule("FN-5", "SC-17", "RES-75")
def test_a_parameter_may_be_the_shape_of_an_earlier_one(build: Build) -> None:
    s = rx.Var("s", rx.ShapeStructInfo(ndim=2))
    x = rx.Var("x", rx.TensorStructInfo(s, "float32"))
    ex = build(function([x, s], [], x, ret=rx.TensorStructInfo(s, "float32")))
    array = zeros(2, 3)
    assert ex["main"](array, ShapeTuple((2, 3))) is array
    refused(ex, (array, ShapeTuple((3, 2))), r"its shape is \(2, 3\), but s is \(3, 2\)", "FN-5")


@pytest.mark.rule("FN-7", "SC-15", "RES-52")
def test_a_captured_size_is_checked_and_not_bound_anew(build: Build) -> None:
    x, y, f, r = rx.Var("x", tensor((N,))), rx.Var("y"), rx.Var("f"), rx.Var("r")
    z = rx.Var("z", tensor((N, M)))
    inner = function([z], [], rx.ShapeExpr((N, M)), name=None)
    ex = build(function([x, y], [(f, inner), (r, rx.Call(f, (y,)))], r))
    assert ex["main"](zeros(2), zeros(2, 5)) == (2, 5)
    text = refused(ex, (zeros(3), zeros(2, 5)), "dimension 0 is 2, but n = 3", "FN-5")
    assert "n = 3 was bound by" in text


@pytest.mark.rule("FN-8", "FN-9", "RES-32")
def test_the_result_is_compared_with_the_return_annotation(build: Build) -> None:
    register_func("test.any", lambda value: value)
    try:
        x, v, y = rx.Var("x", tensor((N,))), rx.Var("v"), rx.Var("y")
        call = rx.Call(rx.ExternFunc("test.any"), (v,))
        func = function([x, v], [(y, call)], y, ret=tensor((N, 2)), pure=False)
        ex = build(func)
        array = zeros(3, 2)
        assert ex["main"](zeros(3), array) is array
        text = refused(ex, (zeros(3), zeros(4, 2)), "dimension 0 is 4, but n = 3", "FN-8")
        assert text.startswith("the result of main: expected R.Tensor((n, 2)")
        refused(ex, (zeros(3), None), "the null object", "FN-8")
    finally:
        remove_global_func("test.any")


@pytest.mark.rule("FN-11")
@pytest.mark.parametrize("args", [(), (1,), (1, 2, 3)])
def test_a_wrong_number_of_arguments_shows_the_signature(build, args) -> None:
    ex = build(taking(OBJECT, tensor((N,))))
    with pytest.raises(RuntimeCheckError, match=f"main takes 2 arguments, found {len(args)}") as e:
        ex["main"](*args)
    assert 'main(a: R.Object, b: R.Tensor((n,), dtype="float32"))' in str(e.value)
    inner, x = rx.GlobalVar("inner"), rx.Var("x")
    calling = function([], [], rx.Call(inner, tuple(map(rx.PrimValue, args))))
    mod = IRModule({inner: function([x, rx.Var("y")], [], x, name=None), "main": calling})
    with pytest.raises(RuntimeCheckError, match=f"takes 2 arguments, found {len(args)}"):
        build(mod)["main"]()


@pytest.mark.rule("FN-11")
def test_a_long_signature_is_shown_by_its_ends(build: Build) -> None:
    params = [rx.Var(f"p{number}", OBJECT) for number in range(300)]
    with pytest.raises(RuntimeCheckError, match="takes 300 arguments, found 1") as e:
        build(function(params, [], params[0]))["main"](1)
    assert "main(p0: R.Object, " in str(e.value)
    assert "p7: R.Object, ... 284 parameters ..., p292: R.Object" in str(e.value)
    assert len(str(e.value)) < 600


def test_arguments_may_be_named(build: Build) -> None:
    ex = build(taking(OBJECT, OBJECT))
    assert ex["main"](1, b=2) == (1, 2)
    assert ex["main"](b=2, a=1) == (1, 2)
    for args, named, message in [
        ((1,), {"c": 2}, "has no parameter 'c'"),
        ((1,), {"a": 2}, "gets parameter 'a' twice"),
        ((), {"b": 2}, "takes 2 arguments, found 1"),
    ]:
        with pytest.raises(RuntimeCheckError, match=message):
            ex["main"](*args, **named)


def test_arguments_may_have_the_names_that_methods_use(build: Build) -> None:
    params = [rx.Var(name) for name in ("self", "args", "kwargs")]
    ex = build(function(params, [], rx.Tuple(params)))
    assert ex["main"](kwargs=3, args=2, self=1) == ex(kwargs=3, args=2, self=1) == (1, 2, 3)


def test_parameters_of_one_name_are_given_by_position(build: Build) -> None:
    x, y, z = rx.Var("x"), rx.Var("x"), rx.Var("z")
    ex = build(function([x, y, z], [], rx.Tuple((x, y, z))))
    assert ex["main"](1, 2, z=3) == (1, 2, 3)
    for args, named in (((1,), {"x": 2, "z": 3}), ((), {"x": 2})):
        with pytest.raises(RuntimeCheckError, match="has several parameters 'x'"):
            ex["main"](*args, **named)
    with pytest.raises(RuntimeCheckError, match="takes 3 arguments, found 2"):
        ex["main"](1, z=3)


def test_scalars_from_outside_are_read_by_the_parameter(build: Build) -> None:
    ex = build(taking(tensor(()), rx.PrimStructInfo("int32"), OBJECT, tensor((), "")))
    a, b, c, d = ex["main"](2, 3, 4, 5.0)
    assert isinstance(a, np.ndarray)
    assert a.dtype == np.float32
    assert type(b) is np.int32
    assert type(c) is int
    assert d.dtype == np.float64
    assert ex["main"](0.1, 3, 4, 5.0)[0] == np.float32(0.1)
    number = np.float64(0.1)
    refused(
        ex, (number, 3, 4, 5), "the float64 prim value 0.1: a prim value is not a tensor", "FN-1"
    )
    with pytest.raises(RelaxpyError, match=r"round it with \.astype"):
        ex["main"](number, 3, 4, 5.0)


def test_arrays_of_other_libraries_are_taken(build: Build) -> None:
    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return self.array

    class Broken:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise RuntimeError("lost")

    array = zeros(2)
    ex = build(taking(tensor((2,))))
    [taken] = ex["main"](Foreign(array))
    assert np.shares_memory(taken, array)
    refused(ex, (Broken(),), "parameter a of main: expected .* lost", "FN-1")


def test_a_subclass_of_tuple_or_array_inside_passes_the_full_check(build: Build) -> None:
    class Pair(tuple[object, ...]):
        __slots__ = ()

    sinfo = rx.TupleStructInfo((tensor((N,)), rx.PrimStructInfo("int64")))
    ex = build(taking(sinfo, result=rx.ShapeExpr((N,))))
    sub = np.zeros(3, "float32").view(type("Sub", (np.ndarray,), {}))
    assert ex["main"](Pair((sub, np.int64(1)))) == (3,)


def test_errors_point_at_the_parameter(build: Build) -> None:
    span = Span(Source("model.py", "def main(x: R.Tensor((2,))):"), 1, 10, 1, 27)
    x = rx.Var("x", tensor((2,)), span)
    ex = build(function([x], [], x))
    text = refused(ex, (zeros(3),), "dimension 0 is 3", "FN-5")
    assert text.startswith("model.py:1:10: parameter x of main")
    assert "         ^^^^" in text


@pytest.mark.rule("EV-27")
def test_a_kernel_as_entry_point_checks_its_arguments(build: Build) -> None:
    copy = elementwise((N, 2), lambda v: v, "copy")
    ex = build(module(copy=copy))
    out = zeros(3, 2)
    assert ex["copy"](np.ones((3, 2), "float32"), out) == ()
    assert out.min() == 1
    for args, message in [
        ((zeros(3, 2),), "takes 2 arguments, found 1"),
        ((zeros(3, 2), zeros(4, 2)), "O"),
        ((zeros(3, 3), out), "A0"),
        ((zeros(3, 2), None), "O"),
    ]:
        with pytest.raises(RuntimeCheckError, match=message):
            ex["copy"](*args)


SIZE = st.sampled_from([N, M, N + M, N * 2, tir.IntImm("int64", 2)])


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[list[tir.PrimExpr]], list[list[int]]]:
    dims = draw(st.lists(st.lists(SIZE, min_size=1, max_size=2), min_size=1, max_size=3))
    dims += [[N], [M]]
    shapes = []
    values = {"n": draw(st.integers(0, 3)), "m": draw(st.integers(0, 3))}
    for dim in dims:
        exact = [_value(d, values) for d in dim]
        wrong = draw(st.integers(0, 5)) == 0
        shapes.append([e + wrong for e in exact])
    return dims, shapes


def _value(size: tir.PrimExpr, values: dict[str, int]) -> int:
    from relaxpy.exec.runtime.scalar import ScalarEvaluator

    named = {N: values["n"], M: values["m"]}
    result = ScalarEvaluator(named).value(size)
    assert isinstance(result, int)
    return result


@given(programs())
@settings(max_examples=60, deadline=None)
def test_both_targets_judge_alike(
    program: tuple[list[list[tir.PrimExpr]], list[list[int]]],
) -> None:
    dims, shapes = program
    params = [rx.Var(f"p{i}", tensor(tuple(d))) for i, d in enumerate(dims)]
    func = function(params, [], rx.ShapeExpr((N, M)))
    outcomes = []
    for target in ("reference", "numpy"):
        try:
            ex = compile(func, target, relax_pipeline=None)
            outcomes.append(str(ex["main"](*(zeros(*s) for s in shapes))))
        except FunctionSignatureError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
