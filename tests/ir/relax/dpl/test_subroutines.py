"""Functions that replacements call: how they come into the module that is rewritten."""

import pytest

from relaxpy import relax as rx
from relaxpy.errors import TransformError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.analysis import check_well_formed, well_formed
from relaxpy.relax.dpl import ExprPatternRewriter, is_op, wildcard
from relaxpy.script import from_source, relax as R, tir as T
from tests.ir.relax.texts import module

Main = module("""
def main(A: f32[16]):
    B = A + A
    C = B * B
    return C

@private
def helper(A: f32[16]) -> f32[16]:
    return R.exp(A)
""")


@R.rewriter
class CallTwice:
    @R.function
    def pattern(A: R.Tensor((16,), "float32")):
        return A + A

    @R.function
    def replacement(A: R.Tensor((16,), "float32")):
        return CallTwice.helper(A)

    @R.function(private=True)
    def helper(A: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        return CallTwice.inner(A)

    @R.function(private=True)
    def inner(A: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        return A * R.const(2.0, "float32")

    @R.function(private=True)
    def unused(A: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        return A


@R.rewriter
class CallSquare:
    @R.function
    def pattern(A: R.Tensor((16,), "float32")):
        return A * A

    @R.function
    def replacement(A: R.Tensor((16,), "float32")):
        return R.call_tir(CallSquare.helper, [A], out_sinfo=R.Tensor((16,), "float32"))

    @T.prim_func(private=True)
    def helper(A: T.Buffer(16, "float32"), B: T.Buffer(16, "float32")):
        for i in range(16):
            B[i] = A[i] * A[i]


BothApplied = module("""
def main(A: f32[16]):
    B = cls.helper_1(A)
    C = R.call_tir(cls.helper_2, [B], out_sinfo=f32[16])
    return C

@private
def helper(A: f32[16]) -> f32[16]:
    return R.exp(A)

@private
def helper_1(A: f32[16]) -> f32[16]:
    return cls.inner(A)

@private
def inner(A: f32[16]) -> f32[16]:
    return A * R.const(2.0, "float32")

@kernel
def helper_2(A: T.Buffer(16, "float32"), B: T.Buffer(16, "float32")):
    for i in range(16):
        B[i] = A[i] * A[i]
""")


def test_functions_that_a_replacement_calls_come_with_it_under_names_of_their_own() -> None:
    after = (CallTwice | CallSquare)(Main)
    assert_structural_equal(after, BothApplied)
    assert well_formed(after)
    again = CallTwice(CallTwice(Main))
    assert {v.name_hint for v in again} == {"main", "helper", "helper_1", "inner"}


def test_a_function_that_the_module_has_is_not_added_again() -> None:
    once = CallSquare(Main)
    more = once.clone()
    more["other"] = from_source(
        "@R.function\ndef other(x: R.Tensor((16,), 'float32')):\n    y = x * x\n    return y"
    )
    after = CallSquare(more)
    assert {v.name_hint for v in after} == {"main", "helper", "helper_1", "other"}


SAME_NAMES = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((16,), "float32")):
        cls = Module
        a = x + x
        b = cls.helper(a)
        return b

    @R.function(private=True)
    def helper(A: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        return Module.inner(A)

    @R.function(private=True)
    def inner(A: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        return R.sin(A)
"""


@pytest.mark.rule("OPT-1")
def test_a_function_that_calls_others_is_the_same_only_if_those_are() -> None:
    other = CallTwice(from_source(SAME_NAMES))
    assert {v.name_hint for v in other} == {"main", "helper", "inner", "helper_1", "inner_1"}
    [binding] = other["helper_1"].body.blocks[0].bindings
    assert binding.value.op.name_hint == "inner_1"
    assert check_well_formed(other) == []
    same = CallTwice(from_source(SAME_NAMES.replace("R.sin(A)", 'A * R.const(2.0, "float32")')))
    assert {v.name_hint for v in same} == {"main", "helper", "inner"}
    assert_structural_equal(from_source(same.script()), same)


@pytest.mark.rule("WF-24")
def test_a_function_that_is_not_there_is_not_called() -> None:
    x = wildcard()
    unknown = ExprPatternRewriter(
        is_op("relax.exp")(x), lambda _, m: rx.Call(rx.GlobalVar("nowhere"), [m[x]])
    )
    with pytest.raises(TransformError, match="calls nowhere, but the module has no function"):
        unknown(Main)


def test_functions_are_not_added_to_a_function() -> None:
    with pytest.raises(TransformError, match="calls helper, which only a module can contain"):
        CallTwice(Main["main"])
