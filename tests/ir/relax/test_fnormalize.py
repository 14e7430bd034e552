"""FNormalize: operators define the normal form of their calls."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.op import Op, register_op_attr
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.transform import LegalizeOps, Normalize
from relaxpy.script import ir as I, relax as R, tir as T

NAME = "test.first_of_two"


@pytest.fixture
def op() -> Iterator[Op]:
    """An operator of two operands, the second of which is ignored; it may be left out."""
    register_op_attr(NAME, "FInferStructInfo", lambda call, ctx: ctx.sinfo_of(call.args[0]))
    register_op_attr(NAME, "FLegalize", lambda builder, call: call.args[0])
    register_op_attr(NAME, "FPurity", True)
    yield Op.get(NAME)
    Op.get(NAME).forget()


def complete(builder: relax.BlockBuilder, call: rx.Call) -> rx.Expr:
    return rx.Call(call.op, [*call.args, rx.Tuple(())]) if len(call.args) == 1 else call


def module(op: Op) -> IRModule:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = relax.Call(op, [R.exp(x)])
            return y

    return Mod


def calls(mod: IRModule) -> list[Any]:
    [block] = mod["main"].body.blocks
    return [binding.value for binding in block.bindings]


def test_normalize_completes_calls_of_a_program_that_was_built_before(op: Op) -> None:
    before = module(op)
    assert len(calls(before)[-1].args) == 1
    assert Normalize()(before) is before
    op.set_attr("FNormalize", complete)
    after = Normalize()(before)
    assert [len(call.args) for call in calls(after)] == [1, 2]
    assert calls(after)[-1].struct_info == calls(before)[-1].struct_info
    assert calls(after)[-1].span == calls(before)[-1].span
    assert len(calls(before)[-1].args) == 1
    assert Normalize()(after) is after


def test_an_unchecked_program_keeps_its_calls_and_is_not_well_formed(op: Op) -> None:
    op.set_attr("FNormalize", complete)

    @I.ir_module(check_well_formed=False)
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = relax.Call(op, [x])
            return y

    assert [len(call.args) for call in calls(Mod)] == [1]
    [found] = relax.analysis.check_well_formed(Mod)
    assert "changes this call" in found.message
    after = Normalize()(Mod)
    assert [len(call.args) for call in calls(after)] == [2]
    assert relax.analysis.well_formed(after)


@pytest.mark.parametrize("bound", [True, False])
def test_the_operands_of_a_kernel_are_written_out(bound: bool) -> None:
    def args(x: rx.Expr, pair: rx.Expr) -> rx.Expr:
        return relax.Tuple((x, x)) if bound else pair

    @I.ir_module(check_well_formed=False)
    class Mod:
        @T.prim_func(private=True)
        def add(
            A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")
        ):
            for i in range(4):
                C[i] = A[i] + B[i]

        @R.function
        def main(
            x: R.Tensor((4,), "float32"),
            pair: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
        ):
            operands = args(x, pair)
            y = relax.Call(
                Op.get("relax.call_tir"), [Mod.add, operands], sinfo_args=[x.struct_info]
            )
            return y

    assert isinstance(calls(Mod)[-1].args[1], relax.Var)
    after = Normalize()(Mod)
    main, packed = after["main"], calls(after)[-1].args[1]
    assert isinstance(packed, relax.Tuple)
    items = [binding.var for binding in main.body.blocks[0].bindings[1:3]]
    assert list(packed.fields) == ([main.params[0]] * 2 if bound else items)
    x, pair = np.ones(4, "float32"), (np.ones(4, "float32"), np.full(4, 2, "float32"))
    result = relaxpy.compile(after)["main"](x, pair)
    np.testing.assert_array_equal(result, np.full(4, 2 if bound else 3, "float32"))


def test_passes_the_builder_and_the_parser_complete_calls(op: Op) -> None:
    op.set_attr("FNormalize", complete)
    mod = module(op)
    assert len(calls(mod)[-1].args) == 2
    builder, x = relax.BlockBuilder(), relax.Var("x", R.Tensor((4,), "float32"))
    with builder.function("main", [x]):
        y = builder.emit(relax.Call(op, [builder.emit(relax.op.exp(x))]))
        builder.emit_func_output(y)
    assert_structural_equal(builder.finalize(), mod)
    values = np.arange(4, dtype="float32")
    for step in (Normalize(), LegalizeOps()):
        found = relaxpy.compile(step(mod))["main"](values)
        np.testing.assert_allclose(found, np.exp(values), rtol=1e-6)


def test_a_rule_may_emit_bindings_look_up_values_and_return_another_expression(op: Op) -> None:
    def simpler(builder: relax.BlockBuilder, call: rx.Call) -> rx.Expr:
        [x] = call.args
        value = builder.lookup_binding(x)
        assert isinstance(value, rx.Call)
        assert value.op == Op.get("relax.exp")
        half = builder.emit(relax.op.abs(x))
        return relax.op.add(relax.op.negative(half), half)

    before = module(op)
    op.set_attr("FNormalize", simpler)
    names = [call.op.name for call in calls(Normalize()(before))]
    assert names == ["relax.exp", "relax.abs", "relax.negative", "relax.add"]


def test_a_rule_may_return_another_operator_with_the_same_operands(op: Op) -> None:
    before = module(op)
    op.set_attr("FNormalize", lambda builder, call: rx.Call(Op("relax.negative"), call.args))
    names = [call.op.name for call in calls(Normalize()(before))]
    assert names == ["relax.exp", "relax.negative"]


def test_a_rule_that_never_keeps_a_call_is_an_error(op: Op) -> None:
    before = module(op)
    op.set_attr("FNormalize", lambda builder, call: rx.Call(call.op, [*call.args, rx.Tuple(())]))
    with pytest.raises(MisuseError, match=r"the normalisation of Op\(test.first_of_two\) does not"):
        Normalize()(before)


def test_a_rule_returns_an_expression_for_a_builder_and_a_call(op: Op) -> None:
    before = module(op)
    op.set_attr("FNormalize", lambda builder, call: None)
    with pytest.raises(MisuseError, match="returns an expression, found None"):
        Normalize()(before)
    op.set_attr("FNormalize", lambda call: call)
    with pytest.raises(MisuseError, match=r"takes \(builder, call\), found \(call\)"):
        Normalize()(before)


def test_a_rule_that_is_removed_has_no_effect(op: Op) -> None:
    op.set_attr("FNormalize", complete)
    op.reset_attr("FNormalize")
    assert len(calls(module(op))[-1].args) == 1
