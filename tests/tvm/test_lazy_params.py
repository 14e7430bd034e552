"""LazyTransformParams, LazyGetInput and LazySetOutput."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import TransformError
from relaxpy.relax.transform import (
    LazyGetInput,
    LazySetOutput,
    LazyTransformParams,
    LiftTransformParams,
)
from tests.ir.passes.before_after import check, leaves, numbers, stays
from tests.ir.relax.texts import graph, module

TARGETS = ("numpy", "reference")


def stored(mod: IRModule, name: str, weights: Any, *args: Any, target: str) -> tuple[Any, ...]:
    """The results that packed functions get from a function that reads weights through others."""
    results: dict[int, Any] = {}

    def get_item(index: int) -> Any:
        return weights[index]

    def set_item(index: int, value: Any) -> None:
        assert index not in results
        results[index] = value

    relaxpy.register_func("get_item", get_item, override=True)
    relaxpy.register_func("set_item", set_item, override=True)
    assert relaxpy.compile(mod, target=target)[name](*args) == ()
    return tuple(results[index] for index in range(len(results)))


Callbacks = module("""
def getter():
    def get(index: R.Prim("int64"), name: R.Object) -> R.Object:
        value = R.call_pure_packed("test.lazy.get", index, name, sinfo_args=R.Object)
        return value
    return get

def setter():
    @impure
    def set_output(index: R.Prim("int64"), value: R.Object) -> R.Tuple():
        _ = R.call_packed("test.lazy.set", index, value, sinfo_args=R.Object)
        return R.tuple()
    return set_output
""")


def getter(get: Any, target: str) -> Any:
    """A closure that calls a Python function."""
    relaxpy.register_func("test.lazy.get", get, override=True, pure=True)
    return relaxpy.compile(Callbacks, target=target)["getter"]()


def setter(store: Any, target: str) -> Any:
    """A closure that calls a Python function, which may have effects."""
    relaxpy.register_func("test.lazy.set", store, override=True)
    return relaxpy.compile(Callbacks, target=target)["setter"]()


Transform = graph("""
def transform_params(params: R.Tuple(f32[3, n], f32[2])):
    w = params[1]
    v = params[0]
    t = R.permute_dims(v)
    s = R.sum(t, axis=0)
    r = (w, t, t, s, R.const(1, "int32"))
    return r
""")


@pytest.mark.parametrize("target", TARGETS)
def test_results_are_stored_one_by_one(target: str) -> None:
    weights = (numbers(3, 4), numbers(2))
    after = LazyTransformParams()(Transform)
    expected = relaxpy.compile(Transform, target=target)["transform_params"](weights)
    found = stored(after, "transform_params", weights, target=target)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_items_are_read_before_use_and_released_after_it() -> None:
    After = module("""
    @impure
    def transform_params():
        n = T.int64()
        o1 = R.call_packed("get_item", R.prim_value(1), sinfo_args=R.Object)
        c1 = R.match_cast(o1, f32[2])
        w = c1
        _ = R.call_packed("set_item", R.prim_value(0), w, sinfo_args=R.Object)
        _1: R.Tuple() = R.vm.kill_object(w)
        o = R.call_packed("get_item", R.prim_value(0), sinfo_args=R.Object)
        c = R.match_cast(o, f32[3, n])
        v = c
        t = R.permute_dims(v)
        _2: R.Tuple() = R.vm.kill_object(v)
        s = R.sum(t, axis=[0])
        _3 = R.call_packed("set_item", R.prim_value(1), t, sinfo_args=R.Object)
        _4 = R.call_packed("set_item", R.prim_value(2), t, sinfo_args=R.Object)
        _5 = R.call_packed("set_item", R.prim_value(3), s, sinfo_args=R.Object)
        r: R.Tuple() = R.tuple()
        _6 = R.call_packed(
            "set_item", R.prim_value(4), R.const(1, "int32"), sinfo_args=R.Object
        )
        return r
    """)
    check(LazyTransformParams(), Transform, After)


def test_names_and_extra_parameters() -> None:
    Before = module("""
    def transform_params(v: f32[4], w: f32[4]):
        y = R.add(v, w)
        return (y, w)
    """)
    After = module("""
    @impure
    def transform_params(loader: R.Object):
        o = R.call_packed("load", loader, R.prim_value(0), sinfo_args=R.Object)
        v = R.match_cast(o, f32[4])
        o1 = R.call_packed("load", loader, R.prim_value(1), sinfo_args=R.Object)
        w = R.match_cast(o1, f32[4])
        y = R.add(v, w)
        return (y, w)
    """)
    loader = relax.Var("loader", relax.ObjectStructInfo())
    check(LazyTransformParams("load", None, [loader]), Before, After)
    setter = relax.Var("setter", relax.ObjectStructInfo())
    both = LazyTransformParams(extra_get_item_params=[loader], extra_set_item_params=[setter])
    after = both(Before)
    assert [p.name_hint for p in after["transform_params"].params] == ["loader", "setter"]
    assert after.script().count("set_item") == 2


def test_shapes_among_the_weights_stay_parameters() -> None:
    Before = module("""
    def transform_params(params: R.Tuple(f32[6], R.Shape(["k"]))):
        w = params[0]
        y = R.reshape(w, (k, 6 // k))
        r = (y,)
        return r
    """)
    after = LazyTransformParams(fset_item=None)(Before)
    (holder,) = after["transform_params"].params
    assert isinstance(holder.struct_info, relax.ShapeStructInfo)


def test_what_lifting_returns_as_it_is_is_stored() -> None:
    Before = module("""
    def main(x: f32[4], w: f32[4]):
        R.func_attr({"num_input": 1})
        y = R.add(x, w)
        return y
    """)
    after = LazyTransformParams()(LiftTransformParams()(Before))
    w = numbers(4)
    for target in TARGETS:
        (found,) = stored(after, "main_transform_params", (w,), target=target)
        np.testing.assert_array_equal(found, w)


@pytest.mark.parametrize("params", ["", "params: R.Tuple()"])
def test_results_without_weights_are_stored(params: str) -> None:
    Before = module(f"""
    def transform_params({params}):
        c = R.const([1, 2, 3, 4], "float32")
        y = R.exp(c)
        return (y, c)
    """)
    after = LazyTransformParams()(Before)
    assert not after["transform_params"].params
    for target in TARGETS:
        exp, same = stored(after, "transform_params", (), target=target)
        np.testing.assert_array_equal(same, [1, 2, 3, 4])
        np.testing.assert_allclose(exp, np.exp(same), rtol=1e-6)


def named(weights: list[Any], names: list[str], index: int, name: str) -> Any:
    names.append(name)
    return weights[index]


Shapes = module("""
def main(x: f32[k], v: f32[m * 2, k], w: f32[m], c: bool):
    R.func_attr({"num_input": 1})
    with R.dataflow():
        z = R.zeros((m, k), "float32")
        a = R.add(z, x)
    if c:
        s = R.sum(v, axis=0)
        r = s
    else:
        r = x
    return (a, r)
""")


def test_sizes_are_known_before_they_are_used() -> None:
    after = LazyGetInput()(Shapes)
    weights = [numbers(4, 3), numbers(2), np.array(True)]
    x = numbers(3)
    for target in TARGETS:
        for c in (True, False):
            weights[2] = np.array(c)
            names: list[str] = []
            fget = getter(partial(named, weights, names), target)
            expected = relaxpy.compile(Shapes, target=target)["main"](x, *weights)
            found = relaxpy.compile(after, target=target)["main"](x, fget)
            for one, other in zip(expected, found, strict=True):
                np.testing.assert_array_equal(one, other)
            assert names == (["w", "c", "v"] if c else ["w", "c"])


def test_a_weight_of_another_shape_is_refused() -> None:
    run = relaxpy.compile(LazyGetInput()(Shapes))["main"]
    with pytest.raises(relaxpy.errors.RuntimeCheckError):
        run(numbers(3), getter(lambda index, name: numbers(2, 2), "numpy"))


def test_private_functions_and_called_ones_stay() -> None:
    Mod = module("""
    @private
    def private(w: f32[4]):
        y = R.exp(w)
        return y

    def called(w: f32[4]):
        y = R.exp(w)
        return y

    def transform_params() -> R.Tuple():
        x = R.const([1, 2, 3, 4], "float32")
        y = cls.called(x)
        z = cls.private(y)
        return R.tuple()
    """)
    stays(LazyGetInput(), Mod)
    stays(LazySetOutput(), Mod)
    stays(LazyTransformParams(), Mod)


@pytest.mark.parametrize("target", TARGETS)
def test_outputs_are_passed_on_after_they_are_bound(target: str) -> None:
    Before = module("""
    def main(x: f32[4], w: f32[4]):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.add(x, w)
            z = R.negative(y)
        u = R.multiply(y, z)
        return (u, y, w, u, R.prim_value(7))
    """)
    After = module("""
    @impure
    def main(
        x: f32[4],
        fset_output: R.Callable([R.Prim("int64"), R.Object], R.Tuple(), purity=False),
        w: f32[4],
    ):
        R.func_attr({"num_input": 2})
        _: R.Tuple() = fset_output(R.prim_value(2), w)
        with R.dataflow():
            y = R.add(x, w)
            z = R.negative(y)
        _1: R.Tuple() = fset_output(R.prim_value(1), y)
        u = R.multiply(y, z)
        _2: R.Tuple() = fset_output(R.prim_value(0), u)
        _3: R.Tuple() = fset_output(R.prim_value(3), u)
        _4: R.Tuple() = fset_output(R.prim_value(4), R.prim_value(7))
        return R.tuple()
    """)
    check(LazySetOutput(), Before, After)
    x, w = numbers(4), numbers(4, seed=1)
    results: dict[int, Any] = {}

    def store(index: int, value: Any) -> None:
        results[index] = value

    fset = setter(store, target)
    assert relaxpy.compile(LazySetOutput()(Before), target=target)["main"](x, fset, w) == ()
    expected = relaxpy.compile(Before, target=target)["main"](x, w)
    assert list(results) == [2, 1, 0, 3, 4]
    for index, value in enumerate(leaves(expected)):
        np.testing.assert_array_equal(results[index], value)


@pytest.mark.parametrize("step", [LazyGetInput(), LazySetOutput(), LazyTransformParams()])
def test_num_input_is_a_number_of_parameters(step: Any) -> None:
    Bad = module("""
    def transform_params(w: f32[4]):
        R.func_attr({"num_input": 2})
        y = R.exp(w)
        return y
    """)
    with pytest.raises(TransformError, match=f"{type(step).__name__}: num_input counts"):
        step(Bad)
