"""BundleModelParams and LiftTransformParams."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import TransformError, UnknownNameError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.transform import BundleModelParams, LiftTransformParams
from relaxpy.script import ir as I, relax as R
from relaxpy.transform import PassContext
from tests.ir.passes.before_after import check, leaves, numbers, stays
from tests.ir.relax.texts import graph, module, pair

TARGETS = ("numpy", "reference")


def same_values(before: IRModule, after: IRModule, inputs: Any, weights: Any, name: str) -> None:
    """The function on transformed weights gives what it gave on the weights themselves."""
    for target in TARGETS:
        old, new = (relaxpy.compile(mod, target=target) for mod in (before, after))
        transform = f"{name}_transform_params"
        if transform not in [var.name_hint for var in after.get_global_vars()]:
            transform = "transform_params"
        expected = old[name](*inputs, *weights)
        found = new[name](*inputs, *new[transform](weights))
        for one, other in zip(leaves(expected), leaves(found), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_function_without_weights_has_a_transformation_that_returns_unit() -> None:
    before = module("""
    def main(shape: R.Shape(["n"])):
        R.func_attr({"num_input": 1})
        return shape
    """)
    transform = LiftTransformParams()(before)["main_transform_params"]
    assert transform.body.blocks == ()
    assert str(transform.struct_info.ret) == "R.Tuple()"


def test_fields_are_read_in_each_branch_that_uses_them() -> None:
    Before, After = pair("""
    -def main(c: bool, v: f32[n], w: R.Tensor(("n",))):
    +def main(c: bool, model_params: R.Tuple(f32[n], R.Tensor(("n",)))):
        R.func_attr({"num_input": 1})
        if c:
    +       v = model_params[0]
            y = R.add(v, v)
        else:
    +       w = model_params[1]
            z = R.negative(w)
            y = z
        with R.dataflow():
    -       t = R.multiply(y, v)
    -   return (t, v)
    +       v1 = model_params[0]
    +       t = R.multiply(y, v1)
    +   v2 = model_params[0]
    +   return (t, v2)
    """)
    check(BundleModelParams(), Before, After)
    v, w = numbers(3), numbers(3, seed=1)
    for c in (np.array(True), np.array(False)):
        old = relaxpy.compile(Before)["main"](c, v, w)
        new = relaxpy.compile(BundleModelParams()(Before))["main"](c, (v, w))
        for one, other in zip(old, new, strict=True):
            np.testing.assert_array_equal(one, other)


def test_without_weights_the_tuple_is_empty() -> None:
    Before, After = pair("""
    -def main(x: f32[4]):
    +def main(x: f32[4], model_params: R.Tuple()):
        R.func_attr({"num_input": 1})
        y = R.exp(x)
        return y

    def other(x: f32[4]):
        y = R.exp(x)
        return y
    """)
    check(BundleModelParams(), Before, After)
    del Before["main"]
    stays(BundleModelParams(), Before)


def test_a_captured_weight_is_read_in_the_closure() -> None:
    Before = module("""
    def main(x: f32[4], w: f32[4]):
        R.func_attr({"num_input": 1})
        def inner(y: f32[4]) -> f32[4]:
            z = R.add(y, w)
            return z
        r = inner(x)
        return r
    """)
    after = BundleModelParams("weights")(Before)
    assert after["main"].params[1].name_hint == "weights"
    x, w = numbers(4), numbers(4, seed=1)
    np.testing.assert_array_equal(relaxpy.compile(after)["main"](x, (w,)), x + w)


@pytest.mark.parametrize("count", [-1, 3, "one"])
@pytest.mark.parametrize("step", [BundleModelParams(), LiftTransformParams()])
def test_num_input_is_a_number_of_parameters(step: Any, count: object) -> None:
    @I.ir_module
    class Bad:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            R.func_attr({"num_input": count})
            y = R.add(x, w)
            return y

    with pytest.raises(TransformError, match=f"{type(step).__name__}: num_input counts"):
        step(Bad)


Layers = graph("""
def main(x: f32[2, 4], v: f32[3, 4], w: f32[3]):
    R.func_attr({"num_input": 1})
    one = R.ones((4, 3), "float32")
    t = R.permute_dims(v)
    u = R.add(t, one)
    y = R.matmul(x, u)
    s = R.add(y, w)
    o = R.matmul(x, one)
    z = R.add(s, o)
    return z
""")


def test_what_needs_no_weight_is_computed_in_both_functions() -> None:
    After = graph("""
    def main(x: f32[2, 4], w: f32[3], u: f32[4, 3]):
        R.func_attr({"num_input": 1})
        one = R.ones((4, 3), "float32")
        y = R.matmul(x, u)
        s = R.add(y, w)
        o = R.matmul(x, one)
        z = R.add(s, o)
        return z

    def main_transform_params(params: R.Tuple(f32[3, 4], f32[3])):
        R.func_attr({"num_input": 0})
        one = R.ones((4, 3), "float32")
        v = params[0]
        t = R.permute_dims(v)
        u = R.add(t, one)
        w = params[1]
        result = (w, u)
        return result
    """)
    check(LiftTransformParams(), Layers, After)
    weights = (numbers(3, 4), numbers(3))
    same_values(Layers, LiftTransformParams()(Layers), [numbers(2, 4, seed=1)], weights, "main")


def test_a_second_run_changes_nothing_and_a_later_one_extends_the_transformation() -> None:
    Before = graph("""
    def main(x: f32[2, 4], v: f32[3, 4]):
        R.func_attr({"num_input": 1})
        t = R.permute_dims(v)
        stop = R.builtin.stop_lift_params(t)
        u = R.negative(stop)
        y = R.matmul(x, u)
        return y
    """)
    once = LiftTransformParams()(Before)
    assert [p.name_hint for p in once["main"].params] == ["x", "t"]
    assert "negative" in once["main"].script()
    assert "stop_lift_params" not in once.script()
    twice = LiftTransformParams()(once)
    assert "negative" not in twice["main"].script()
    assert LiftTransformParams()(twice) is twice
    v = numbers(3, 4)
    for mod, value in ((once, v.T), (twice, -v.T)):
        for target in TARGETS:
            transform = relaxpy.compile(mod, target=target)["main_transform_params"]
            np.testing.assert_array_equal(transform((v,))[0], value)
        same_values(Before, mod, [numbers(2, 4)], (v,), "main")


def test_sizes_that_only_removed_weights_define_are_passed_on() -> None:
    Before, After = pair(
        """
    -def main(x: f32[2], w: f32[m, 2]):
    +def main(x: f32[2], sizes: R.Shape(["m"]), s: f32[2]):
        R.func_attr({"num_input": 1})
    -   s = R.sum(w, axis=0)
        y = R.add(x, s)
        z = R.broadcast_to(y, (m, 2))
        return z
    +def main_transform_params(params: R.Tuple(f32[m, 2])):
    +   R.func_attr({"num_input": 0})
    +   w = params[0]
    +   s = R.sum(w, axis=[0])
    +   result = (R.shape([m]), s)
    +   return result
    """,
        graph,
    )

    check(LiftTransformParams(), Before, After)
    same_values(Before, After, [numbers(2)], (numbers(3, 2),), "main")


@pytest.mark.rule("OPT-2", "OPT-11")
def test_what_a_mutation_could_change_is_not_lifted() -> None:
    Before = module("""
    @impure
    def main(x: f32[4], v: f32[4]):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            a = R.negative(v)
            b = R.exp(v)
            y = R.add(x, b)
        _ = R.call_packed("test.lift.change", a, sinfo_args=R.Tuple())
        _1 = R.call_packed("test.lift.change", v, sinfo_args=R.Tuple())
        with R.dataflow():
            c = R.sqrt(v)
            z = R.add(y, c)
        return (a, z)
    """)
    after = LiftTransformParams()(Before)
    assert [p.name_hint for p in after["main"].params] == ["x", "v", "b"]


@pytest.mark.rule("OPT-7")
def test_branches_and_functions_that_the_module_calls_stay() -> None:
    Before = module("""
    def called(x: f32[4], w: f32[4]):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t = R.negative(w)
            y = R.add(x, t)
        return y

    def main(x: f32[4], w: f32[4]):
        y = cls.called(x, w)
        return y
    """)
    stays(LiftTransformParams(), Before)
    with pytest.raises(TransformError, match="function called is called by the module"):
        LiftTransformParams(["called"])(Before)
    with pytest.raises(TransformError, match="function main has no num_input"):
        LiftTransformParams(["main"])(Before)
    with pytest.raises(UnknownNameError, match="no function 'mian'"):
        LiftTransformParams(["mian"])(Before)


Two = graph("""
def f(x: f32[b, 4], v: f32[k, 4], w: f32[k, 4]):
    R.func_attr({"num_input": 1})
    v_t = R.permute_dims(v)
    y = R.matmul(x, v_t)
    w_t = R.permute_dims(w)
    z = R.matmul(x, w_t)
    s = R.add(y, z)
    return s

def g(v: f32[n, 4], w: f32[n, 4]):
    R.func_attr({"num_input": 0})
    v_t = R.permute_dims(v)
    e = R.matmul(w, v_t)
    r = R.exp(w)
    u = R.matmul(r, v_t)
    s = R.add(e, u)
    return s
""")


@pytest.mark.parametrize("shared", [True, ["g", "f"]])
def test_a_shared_transformation_computes_what_all_functions_compute(shared: Any) -> None:
    after = LiftTransformParams(shared)(Two)
    params = {n: [p.name_hint for p in after[n].params] for n in ("f", "g")}
    assert params == {"f": ["x", "w", "v_t"], "g": ["w", "v_t"]}
    weights = (numbers(3, 4), numbers(3, 4, seed=1))
    same_values(Two, after, [numbers(2, 4)], weights, "f")
    same_values(Two, after, [], weights, "g")
    assert LiftTransformParams(shared)(after) is after
    alone = LiftTransformParams(["f"])(Two)
    assert [p.name_hint for p in alone["f"].params] == ["x", "v_t", "w_t"]
    assert alone["g"] is Two["g"] or alone["g"].script() == Two["g"].script()


def test_functions_with_other_weights_have_no_shared_transformation() -> None:
    Bad = module("""
    def f(x: f32[4], w: f32[4]):
        R.func_attr({"num_input": 1})
        y = R.add(x, w)
        return y

    def g(x: f32[4], w: f16[4]):
        R.func_attr({"num_input": 1})
        return x
    """)
    with pytest.raises(TransformError, match="f and g have no shared transformation"):
        LiftTransformParams(shared_transform=True)(Bad)
    LiftTransformParams()(Bad)


def test_fields_are_reset_if_the_option_says_so() -> None:
    with PassContext(config={"relax.lift_transform_params.consume_params": True}):
        after = LiftTransformParams()(Layers)

    Expected = graph("""
    def main_transform_params(params: R.Tuple(f32[3, 4], f32[3])):
        R.func_attr({"num_input": 0})
        one = R.ones((4, 3), "float32")
        v = params[0]
        _ = R.call_pure_packed(
            "vm.builtin.tuple_reset_item",
            params,
            R.prim_value(T.int32(0)),
            sinfo_args=R.Tuple(),
        )
        t = R.permute_dims(v)
        u = R.add(t, one)
        w = params[1]
        _1 = R.call_pure_packed(
            "vm.builtin.tuple_reset_item",
            params,
            R.prim_value(T.int32(1)),
            sinfo_args=R.Tuple(),
        )
        result = (w, u)
        return result
    """)
    assert_structural_equal(after["main_transform_params"], Expected["main_transform_params"])
    same_values(Layers, after, [numbers(2, 4)], (numbers(3, 4), numbers(3)), "main")
