"""FuseOpsByPattern and MergeCompositeFunctions: what becomes a function for a back end."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import MisuseError, TransformError, UnknownNameError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.dpl import is_op, is_tuple_get_item, wildcard
from relaxpy.relax.transform import (
    BindParams,
    FuseOpsByPattern,
    FusionPattern,
    MergeCompositeFunctions,
    PatternCheckContext,
)
from tests.ir.passes.before_after import agree, check, stays
from tests.ir.relax import texts
from tests.ir.relax.texts import graph

MATMUL = is_op("relax.matmul")(wildcard(), wildcard())
RELU = is_op("relax.nn.relu")(wildcard())
MATMUL_RELU = is_op("relax.nn.relu")(MATMUL)
A = np.random.default_rng(0).standard_normal((4, 4)).astype("float32")
B = np.random.default_rng(1).standard_normal((4, 4)).astype("float32")


TWICE = graph("""
def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
    a = R.matmul(x, w)
    b = R.nn.relu(a)
    c = R.matmul(b, w)
    d = R.nn.relu(c)
    return d
""")

TwiceFused = texts.graph("""
def main(x: f32[4, 4], w: f32[4, 4]):
    b = cls.fused_relax_matmul_relax_nn_relu(x, w)
    d = cls.fused_relax_matmul_relax_nn_relu(b, w)
    return d

@private
def fused_relax_matmul_relax_nn_relu(x: f32[4, 4], w: f32[4, 4]):
    R.func_attr({"Composite": "mine.matmul_relu", "Primitive": True})
    a = R.matmul(x, w)
    b = R.nn.relu(a)
    return b
""")


def test_each_match_is_a_call_and_equal_matches_share_a_function() -> None:
    step = FuseOpsByPattern([("mine.matmul_relu", MATMUL_RELU)])
    check(step, TWICE, TwiceFused, A, B)
    assert_structural_equal(
        FuseOpsByPattern([FusionPattern("mine.matmul_relu", MATMUL_RELU)])(TWICE), TwiceFused
    )


def test_patterns_are_tried_in_order() -> None:
    """What the first pattern matches is not available to the second."""
    both = [("mine.matmul_relu", MATMUL_RELU), ("mine.matmul", MATMUL)]
    check(FuseOpsByPattern(both), TWICE, TwiceFused)
    other = FuseOpsByPattern(both[::-1])(TWICE)
    names = {func.attrs.get("Composite") for func in other.functions_by_name.values()}
    assert names == {None, "mine.matmul"}


def test_a_wildcard_does_not_take_the_match_before() -> None:
    after = FuseOpsByPattern([("mine.relu", RELU), ("mine.matmul", MATMUL)])(TWICE)
    (block,) = after["main"].body.blocks
    assert len(block.bindings) == 4
    same(TWICE, after)


def same(before: IRModule, after: IRModule) -> None:
    assert check_well_formed(after, normal_form=True) == []
    agree(before, after, A, B)


BRANCHES = graph("""
def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
    a = R.matmul(x, w)
    b = R.nn.relu(a)
    c = R.exp(b)
    d = R.exp(a)
    e = R.add(c, d)
    return e
""")


def test_an_intermediate_that_others_use_is_a_second_result() -> None:
    After = texts.graph("""
    def main(x: f32[4, 4], w: f32[4, 4]):
        both = cls.fused_relax_matmul_relax_nn_relu(x, w)
        a = both[1]
        b = both[0]
        c = R.exp(b)
        d = R.exp(a)
        e = R.add(c, d)
        return e

    @private
    def fused_relax_matmul_relax_nn_relu(x: f32[4, 4], w: f32[4, 4]):
        R.func_attr({"Composite": "mine.matmul_relu", "Primitive": True})
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        return (b, a)
    """)
    check(FuseOpsByPattern([("mine.matmul_relu", MATMUL_RELU)]), BRANCHES, After, A, B)


def test_a_match_that_others_separate_is_refused() -> None:
    """The sum needs d, which is computed from the product: no function can compute both."""
    product = is_op("relax.matmul")(wildcard(), wildcard())
    pattern = is_op("relax.add")(is_op("relax.exp")(is_op("relax.nn.relu")(product)), wildcard())
    partial = is_op("relax.add")(is_op("relax.exp")(wildcard()), is_op("relax.exp")(wildcard()))
    same(BRANCHES, FuseOpsByPattern([("mine.sum", partial)])(BRANCHES))
    message = (
        "A cyclic dependency detected: a, b, c, e match a pattern and cannot be computed "
        "together, because d needs some of them"
    )
    with pytest.raises(TransformError, match=message) as caught:
        FuseOpsByPattern([("mine.all", pattern)])(BRANCHES)
    assert caught.value.__notes__ == ["in pass FuseOpsByPattern"]

    def check(context: PatternCheckContext) -> bool:
        return False

    stays(FuseOpsByPattern([("mine.all", pattern, {}, check)]), BRANCHES)


def test_a_later_match_replaces_those_that_it_contains() -> None:
    """The sum matches first, and the greater alternative contains it; d overlaps with a match."""

    Before = texts.graph("""
    def main(x: f32[4, 4], w: f32[4, 4]):
        a = R.matmul(x, w)
        b = R.add(a, w)
        c = R.nn.relu(b)
        return c

    def other(x: f32[4, 4]):
        a = R.nn.relu(x)
        b = R.nn.relu(a)
        c = R.nn.relu(b)
        return c
    """)
    added = is_op("relax.add")(MATMUL, wildcard())
    after = FuseOpsByPattern([("mine.sum", added | is_op("relax.nn.relu")(added))])(Before)
    fused = after["fused_relax_matmul_relax_add_relax_nn_relu"]
    assert [binding.var.name_hint for binding in fused.body.blocks[0].bindings] == ["a", "b", "c"]
    assert_structural_equal(after["other"], Before["other"])
    twice = is_op("relax.nn.relu")(RELU)
    bindings = FuseOpsByPattern([("mine.twice", twice)])(Before)["other"].body.blocks[0].bindings
    assert [binding.var.name_hint for binding in bindings] == ["b", "c"]
    assert bindings[1].value.op.name == "relax.nn.relu"
    same(Before, after)


def test_matches_that_need_each_other_are_refused() -> None:
    crossed = graph("""
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        a = R.exp(x)
        b = R.exp(y)
        c = R.add(a, R.abs(b))
        d = R.add(b, R.abs(a))
        return c, d
    """)
    pattern = is_op("relax.add")(is_op("relax.exp")(wildcard()), wildcard())
    message = "a, b, c, d match a pattern and cannot be computed together, because .* needs some"
    with pytest.raises(TransformError, match=message):
        FuseOpsByPattern([("mine.sum", pattern)])(crossed)


def test_constants_are_bound_or_passed() -> None:
    mod = BindParams("main", {"w": B})(TWICE)
    bound = FuseOpsByPattern([("mine.matmul", MATMUL)])(mod)
    passed = FuseOpsByPattern([("mine.matmul", MATMUL)], bind_constants=False)(mod)
    assert len(bound["fused_relax_matmul"].params) == 1
    assert len(passed["fused_relax_matmul"].params) == 2
    for after in (bound, passed):
        np.testing.assert_array_equal(
            relaxpy.compile(mod)["main"](A), relaxpy.compile(after)["main"](A)
        )


def test_a_check_sees_the_match_and_may_refuse_it() -> None:
    lhs, rhs = wildcard(), wildcard()
    root = is_op("relax.matmul")(lhs, rhs)
    seen: list[PatternCheckContext] = []

    def check_match(context: PatternCheckContext) -> bool:
        seen.append(context)
        return len(seen) == 1

    named = {"lhs": lhs, "rhs": rhs, "root": root}
    after = FuseOpsByPattern([("mine.matmul", root, named, check_match)])(TWICE)
    assert len(seen) == 2
    first = seen[0]
    assert [first.annotated_expr[name].name_hint for name in ("lhs", "rhs")] == ["x", "w"]
    assert first.annotated_expr["root"] is first.matched_expr
    ((var, value),) = first.matched_bindings.items()
    assert (var.name_hint, value) == ("a", first.matched_expr)
    assert first.value_to_bound_var[value] is var
    assert [user.name_hint for user in first.var_usages[var]] == ["b"]
    calls = [b.value.op for block in after["main"].body.blocks for b in block.bindings]
    assert [isinstance(op, relax.GlobalVar) for op in calls] == [True, False, False, False]


def test_further_attributes_come_from_the_match() -> None:
    rhs = wildcard()
    root = is_op("relax.matmul")(wildcard(), rhs)
    pattern = FusionPattern(
        "mine.matmul", root, {"rhs": rhs}, None, lambda named: {"weight": named["rhs"].name_hint}
    )
    after = FuseOpsByPattern([pattern])(TWICE)
    weights = [func.attrs.get("weight") for func in after.functions_by_name.values()]
    assert list(filter(None, weights)) == ["w"]


def test_fields_of_tuples() -> None:
    module = graph("""
    def main(x: R.Tensor((4, 4), "float32"), y: R.Tensor((4, 4), "float32")):
        halves = R.split(x, 2, axis=1)
        one = halves[0]
        other = halves[1]
        z = R.add(one, other)
        return z
    """)
    split = is_op("relax.split")(wildcard())
    add = is_op("relax.add")(is_tuple_get_item(split, 0), is_tuple_get_item(split, 1))
    whole = FuseOpsByPattern([("mine.halves", add)])(module)
    (block,) = whole["main"].body.blocks
    assert len(block.bindings) == 1
    same(module, whole)
    same(module, FuseOpsByPattern([("mine.split", split)])(module))


def test_symbolic_sizes() -> None:
    module = graph("""
    def main(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor(("m", "k"), "float32")):
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        return b
    """)
    for codegen in (False, True):
        step = FuseOpsByPattern([("mine.matmul_relu", MATMUL_RELU)], annotate_codegen=codegen)
        after = step(module)
        assert after is not module
        same(module, after)


def test_the_function_for_a_back_end_contains_the_composite_one() -> None:
    After = texts.module("""
    def main(x: f32[4, 4], w: f32[4, 4]):
        with R.dataflow():
            b = cls.fused_relax_matmul_relax_nn_relu_mine(x, w)
            d = cls.fused_relax_matmul_relax_nn_relu_mine(b, w)
        return d

    def fused_relax_matmul_relax_nn_relu_mine(x: f32[4, 4], w: f32[4, 4]):
        R.func_attr({"Codegen": "mine"})
        def inner(x: f32[4, 4], w: f32[4, 4]):
            R.func_attr({"Composite": "mine.matmul_relu"})
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.relu(a)
            return b
        y = inner(x, w)
        return y
    """)
    step = FuseOpsByPattern([("mine.matmul_relu", MATMUL_RELU)], annotate_codegen=True)
    check(step, TWICE, After, A, B)
    stays(step, step(TWICE))


def test_the_composite_function_has_the_shape_variables_around_it() -> None:
    module = graph("""
    def main(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor(("m", "k"), "float32")):
        a = R.matmul(x, w)
        return a
    """)
    after = FuseOpsByPattern([("mine.matmul", MATMUL)], annotate_codegen=True)(module)
    outer = after["fused_relax_matmul_mine"]
    assert isinstance(outer, relax.Function)
    inner = outer.body.blocks[0].bindings[0].value
    assert isinstance(inner, relax.Function)
    assert relax.analysis.defined_symbolic_vars(inner) == relax.analysis.defined_symbolic_vars(
        outer
    )
    assert not set(inner.params) & set(outer.params)
    same(module, after)


def test_only_entry_functions_are_searched() -> None:
    Module = texts.graph("""
    def main(x: f32[4, 4], w: f32[4, 4]):
        a = R.matmul(x, w)
        return a

    def other(x: f32[4, 4], w: f32[4, 4]):
        a = R.matmul(x, w)
        return a
    """)
    after = FuseOpsByPattern([("mine.matmul", MATMUL)], entry_functions=["other"])(Module)
    assert after["main"] is relax.transform.Normalize()(Module)["main"]
    assert "fused_relax_matmul" in after.functions_by_name
    with pytest.raises(UnknownNameError, match="no function main2"):
        FuseOpsByPattern([], entry_functions=["main2"])(Module)


def test_nothing_to_do_is_the_module_itself() -> None:
    for codegen in (False, True):
        stays(FuseOpsByPattern([], annotate_codegen=codegen), TWICE)
        stays(FuseOpsByPattern([("mine.exp", is_op("relax.exp")(wildcard()))]), TWICE)
    stays(MergeCompositeFunctions(), TWICE)


@pytest.mark.parametrize("patterns", [3, [3], [("name",)], "abc"])
def test_patterns_are_checked(patterns: Any) -> None:
    with pytest.raises(MisuseError):
        FuseOpsByPattern(patterns)


def test_a_pattern_without_a_back_end_is_refused() -> None:
    with pytest.raises(TransformError, match="pattern 'matmul' names no back end"):
        FuseOpsByPattern([("matmul", MATMUL)], annotate_codegen=True)(TWICE)


def test_neighbours_for_one_back_end_are_merged() -> None:
    After = texts.module("""
    def main(x: f32[4, 4], w: f32[4, 4]):
        with R.dataflow():
            d = cls.fused_relax_matmul_relax_nn_relu_relax_matmul_relax_nn_relu_mine(x, w)
        return d

    def fused_relax_matmul_relax_nn_relu_relax_matmul_relax_nn_relu_mine(
        x: f32[4, 4], w: f32[4, 4]
    ):
        R.func_attr({"Codegen": "mine"})
        def inner(x: f32[4, 4], w: f32[4, 4]):
            R.func_attr({"Composite": "mine.matmul_relu"})
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.relu(a)
            return b
        b = inner(x, w)
        d = inner(b, w)
        return d
    """)
    check(MergeCompositeFunctions(), TwiceFused, After, A, B)


def test_calls_that_another_computation_separates_are_not_merged() -> None:
    """The sum needs what another back end computes; the two functions for that are equal."""
    patterns = [("one.matmul", MATMUL), ("one.relu", RELU)]
    exp = is_op("relax.exp")(wildcard())
    add = is_op("relax.add")(wildcard(), wildcard())
    fused = FuseOpsByPattern([*patterns, ("two.exp", exp), ("one.add", add)])(BRANCHES)
    after = MergeCompositeFunctions()(fused)
    functions = after.functions_by_name.values()
    backends = [func.attrs["Codegen"] for func in functions if "Codegen" in func.attrs]
    assert sorted(backends) == ["one", "one", "two"]
    same(BRANCHES, after)
    stays(MergeCompositeFunctions(), after)


def test_all_of_a_diamond_is_merged() -> None:
    exp = is_op("relax.exp")(wildcard())
    add = is_op("relax.add")(wildcard(), wildcard())
    parts = [("one.matmul", MATMUL), ("one.relu", RELU), ("one.exp", exp), ("one.add", add)]
    after = MergeCompositeFunctions()(FuseOpsByPattern(parts)(BRANCHES))
    assert len(after.functions_by_name) == 2
    same(BRANCHES, after)


def test_functions_of_patterns_declare_their_results() -> None:
    Module = texts.graph("""
    def main(x: f32[n, 4], w: f32[8, 4]):
        t = R.permute_dims(w)
        y = R.matmul(x, t)
        return y
    """)
    pattern = is_op("relax.matmul")(wildcard(), is_op("relax.permute_dims")(wildcard()))
    fused = relax.transform.FuseOpsByPattern([("product", pattern)])(Module)
    (func,) = (f for v, f in fused.functions.items() if v.name_hint != "main")
    n = func.params[1].struct_info.shape[0]
    assert func.ret_struct_info == relax.TensorStructInfo((n, 8), "float32")
