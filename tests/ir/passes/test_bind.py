"""BindParams and BindSymbolicVars; tests/ir/relax/test_bind.py has the functions behind them."""

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, TransformError, UnknownNameError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.pass_infra.passes import Pass
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import BindParams, BindSymbolicVars, InlinePrivateFunctions
from tests.ir.relax.texts import module

Two = module("""
@kernel
def kernel(x: f32[1]):
    x[0] = T.float32(1)

def main(x: f32[n, m], w: f32[m]):
    R.func_attr({"num_input": 1})
    y = R.multiply(x, w)
    return y

def other(x: f32[n]):
    y = R.exp(x)
    return y
""")

W = np.array([1, 2, 3], "float32")


def test_a_bound_parameter_is_a_constant() -> None:
    text = Two.script()
    bound = BindParams("main", {"w": W})(Two)
    assert Two.script() == text
    assert [p.name_hint for p in bound["main"].params] == ["x"]
    assert bound["other"] is Two["other"]
    x = np.ones((2, 3), "float32")
    for target in ("numpy", "reference"):
        np.testing.assert_array_equal(relaxpy.compile(bound, target=target)["main"](x), x * W)
    by_variable = BindParams(Two.get_global_var("main"), {Two["main"].params[1]: W})(Two)
    assert_structural_equal(by_variable, bound)
    assert BindParams("main", {})(Two) is Two


@pytest.mark.parametrize(
    ("name", "params", "error", "message"),
    [
        ("mian", {}, UnknownNameError, "no function 'mian'"),
        ("main", {"v": W}, UnknownNameError, "no parameter v"),
        ("kernel", {}, TransformError, "kernel is not a Relax function"),
        ("main", {"w": np.ones((3, 3), "float32")}, relaxpy.errors.StructInfoError, "w"),
    ],
)
def test_parameters_that_are_not_there(name, params, error, message) -> None:
    with pytest.raises(error, match=message):
        BindParams(name, params)(Two)


def shape_of(mod: relaxpy.IRModule, name: str) -> list[str]:
    sizes = mod[name].params[0].struct_info.shape.values
    return [str(getattr(size, "value", size)) for size in sizes]


def test_shape_variables_are_bound_wherever_they_are_defined() -> None:
    bound = BindSymbolicVars({"n": 16})(Two)
    assert shape_of(bound, "main") == ["16", "m"]
    assert shape_of(bound, "other") == ["16"]
    assert bound["kernel"] is Two["kernel"]
    assert shape_of(Two, "main") == ["n", "m"]
    of_main = BindSymbolicVars({"n": 16}, "main")(Two)
    assert of_main["other"] is Two["other"]
    n = Two["other"].params[0].struct_info.shape.values[0]
    by_variable = BindSymbolicVars({n: 4})(Two)
    assert by_variable["main"] is Two["main"]
    assert shape_of(by_variable, "other") == ["4"]
    assert relax.analysis.well_formed(bound)
    assert BindSymbolicVars({})(Two) is Two


@pytest.mark.parametrize(
    ("values", "name", "error", "message"),
    [
        ({"k": 1}, None, UnknownNameError, "no function of the module defines shape variable k"),
        ({"n": 1, "k": 1}, None, UnknownNameError, "shape variable k"),
        ({"m": 1}, "other", UnknownNameError, "no shape variable m"),
        ({"n": 1}, "mian", UnknownNameError, "no function 'mian'"),
        ({"n": 1}, "kernel", TransformError, "kernel is not a Relax function"),
        ({"n": 1.5}, None, MisuseError, "shape variable n is an integer, found 1.5"),
        ({"n": True}, None, MisuseError, "shape variable n is an integer, found True"),
        ({"n": "3"}, "main", MisuseError, "shape variable n is an integer, found '3'"),
    ],
)
def test_shape_variables_that_are_not_there(values, name, error, message) -> None:
    with pytest.raises(error, match=message):
        BindSymbolicVars(values, name)(Two)


Calls = module("""
@private
def inner(x: f32[m]):
    y = R.exp(x)
    return y

@private
def shared(x: f32[m]):
    y = cls.inner(x)
    return y

@private
def once(x: f32[m]):
    y = R.exp(x)
    return y

@private
def outer(x: f32[m]):
    y = R.exp(x)
    return y

def main(x: f32[m], z: f32[k]):
    a = cls.shared(x)
    b = cls.shared(z)
    c = cls.once(x)
    d = R.concat([x, z])
    e = cls.outer(d)
    return (a, b, c, e)
""")


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        ({"k": 6, "m": 4}, {"shared": "m", "inner": "m", "once": "4", "outer": "m"}),
        ({"m": 4}, {"shared": "m", "inner": "m", "once": "4", "outer": "m"}),
        ({"k": 6}, {"shared": "m", "inner": "m", "once": "m", "outer": "m"}),
        ({"k": 4, "m": 4}, {"shared": "4", "inner": "4", "once": "4", "outer": "m"}),
        ({"k": 0, "m": 4}, {"shared": "m", "inner": "m", "once": "4", "outer": "4"}),
    ],
)
def test_a_callee_keeps_a_variable_that_calls_give_other_values(values, sizes) -> None:
    bound = BindSymbolicVars(values)(Calls)
    assert {name: shape_of(bound, name)[0] for name in sizes} == sizes
    assert relax.analysis.well_formed(bound)
    lengths = {"m": 4, "k": 6} | values
    x, z = (np.arange(float(lengths[name]), dtype="float32") for name in "mk")
    expected = np.exp(x), np.exp(z), np.exp(x), np.exp(np.concatenate([x, z]))
    found = relaxpy.compile(bound, target="numpy")["main"](x, z)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_variable_is_bound_in_no_function_since_calls_give_it_other_values() -> None:
    m = Calls["shared"].params[0].struct_info.shape.values[0]
    with pytest.raises(UnknownNameError, match="calls in the module give shape variable m other"):
        BindSymbolicVars({m: 4})(Calls)


def test_a_function_that_is_a_value_keeps_its_variables() -> None:
    mod = module("""
@private
def shared(x: f32[m]):
    y = R.exp(x)
    return y

def main(x: f32[n], z: f32[k]):
    f = cls.shared
    a = f(x)
    b = f(z)
    return (a, b)
""")
    with pytest.raises(UnknownNameError, match="calls in the module give shape variable m other"):
        BindSymbolicVars({"m": 4})(mod)


Values = module("""
@private
def shared(x: f32[m]):
    return R.exp(x)

@private
def inlined(x: f32[k]):
    f = cls.shared
    return (f, f(x))

@private
def apply(f: R.Callable((f32[3],), f32[3]), x: f32[3]):
    return f(x)

def main(x: f32[n], w: f32[3]):
    f = cls.shared
    t = (cls.shared, w)
    g = t[0]
    p = cls.inlined(x)
    h = p[0]
    return (f(x), g(w), h(w), p[1], cls.apply(cls.shared, w))
""")


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@pytest.mark.parametrize(
    ("step", "count"),
    [
        (BindParams("main", {"w": W}), 1),
        (BindSymbolicVars({"n": 3}, "main"), 2),
        (InlinePrivateFunctions(), 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_functions_of_the_module_are_values_as_before(step: Pass, count: int) -> None:
    after = step(Values)
    assert check_well_formed(after, normal_form=True) == []
    expected = relaxpy.compile(Values, "reference")["main"](W, W)
    for one, other in zip(
        relaxpy.compile(after, "numpy")["main"](*[W] * count), expected, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)
