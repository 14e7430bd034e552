"""Operators of users: what is wrong with them is said in their words, and they can be replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import (
    MisuseError,
    ParseError,
    RelaxpyError,
    RuntimeCheckError,
    StructInfoError,
    UnknownNameError,
)
from relaxpy.exec.api.compile import Target
from relaxpy.ir import IRModule, Op, ops as op
from relaxpy.ir.ops.definition.registry import OpDef, registered_ops
from relaxpy.ir.passes.legalize import register_legalize
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.te import topi
from relaxpy.script import from_source, relax as R
from tests.ir.ops.scratch import forgotten_operators
from tests.ir.relax.graphs import var
from tests.ir.relax.sinfos import tensor

X = var("x", tensor(3))
ONES = np.ones(3, "float32")


@pytest.fixture(autouse=True)
def scratch() -> Iterator[None]:
    with forgotten_operators():
        yield


def main_with(name: str) -> IRModule:
    text = (
        f'@R.function\ndef main(x: R.Tensor((3,), "float32")):\n    y = R.{name}(x)\n    return y\n'
    )
    return IRModule({"main": from_source(text)})


def same(name: str, **columns: Any) -> OpDef:
    """Register an operator whose result is like its operand."""

    @op.register(f"relax.{name}", pure=True, **columns)
    def rule(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        return x

    return rule


def doubled(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    return builder.call_te(lambda x: topi.multiply(x, 2), *call.args)


def tripled(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    return builder.call_te(lambda x: topi.multiply(x, 3), *call.args)


# ---- rules


def gives_nothing(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
    pass  # type: ignore[return]


def gives_a_shape(x: rx.TensorStructInfo) -> Any:
    return x.shape


def not_annotated(x):  # type: ignore[no-untyped-def]
    return x


def annotated_as_a_program(x: R.Tensor):  # type: ignore[no-untyped-def]
    return x


def annotated_as_a_program_of_three(x: R.Tensor((3,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    return x


def annotated_by_an_unknown_name(x: TensorInfo):  # type: ignore[name-defined,no-untyped-def]  # noqa: F821
    return x


WRONG_RULES: list[tuple[Callable[..., Any], str, str]] = [
    (gives_nothing, "the struct info rule gives_nothing returns struct info, found None", "Tensor"),
    (gives_a_shape, r"gives_a_shape returns struct info, found R\.shape\(\[3\]\)", "Tensor"),
    (not_annotated, "x is an attribute, found the expression x", r"x: relax\.TensorStructInfo"),
    (annotated_as_a_program, "annotated_as_a_program annotates x as a program", "classes"),
    (annotated_as_a_program_of_three, "three annotates x as a program does", "classes"),
    (annotated_by_an_unknown_name, "'TensorInfo' is not defined", "looked up in its module"),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("rule", "message", "hint"), WRONG_RULES)
def test_a_wrong_rule_is_told_what_a_rule_is(rule, message, hint) -> None:
    op.register("relax.wrong", pure=True)(rule)
    with pytest.raises(MisuseError, match=f"{message}(?s:.*){hint}"):
        R.wrong(X)
    with pytest.raises(ParseError, match=f":3:.*{message}(?s:.*){hint}"):
        main_with("wrong")


def test_an_exception_of_a_rule_is_that_of_the_user() -> None:
    @op.register("relax.wrong", pure=True)
    def wrong(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        raise KeyError("oops")

    with pytest.raises(KeyError, match="oops"):
        R.wrong(X)
    with pytest.raises(ParseError, match=r"R\.wrong: KeyError: 'oops'"):
        main_with("wrong")


@pytest.mark.rule("DER-35")
def test_what_a_rule_for_calls_returns_is_checked_too() -> None:
    operator = same("wrong", infer=lambda call, ctx: None)
    with pytest.raises(MisuseError, match=r"relax\.wrong: .* returns struct info, found None"):
        operator.infer(rx.Call(operator.op, (X,)), BlockBuilder().context)
    bb = BlockBuilder()
    same("wronger").op.set_attr("FInferStructInfo", lambda call, ctx: 5)
    with bb.testing_scope(), pytest.raises(MisuseError, match="returns struct info, found 5"):
        bb.emit(rx.Call(Op("relax.wronger"), (X,)))


def test_an_operator_outside_the_namespace_of_relax_is_not_suggested_there() -> None:
    @op.register("mine.scaled", pure=True)
    def scaled(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        return x

    assert scaled(X).struct_info == tensor(3)
    text = '@R.function\ndef main(x: R.Tensor((3,), "float32")):\n    return {}\n'
    for wrong in ("R.scaled(x)", "x.scaled()"):
        with pytest.raises(ParseError) as caught:
            from_source(text.format(wrong))
        assert "mine.scaled" not in str(caught.value)
    op.register("short", pure=True)(scaled.__wrapped__)
    with pytest.raises(ParseError, match=r"operators of R have names such as relax\.short;"):
        from_source(text.format("R.short(x)"))


# ---- columns


@pytest.mark.parametrize(
    ("legalize", "message"),
    [
        (lambda bb, call: None, "the legalisation of relax.wrong returns an expression, found No"),
        (lambda bb, call: 5, "the legalisation of relax.wrong returns an expression, found 5"),
        (
            lambda call: 5,
            r"the legalisation of relax.wrong takes \(builder, call\), found \(call\)",
        ),
    ],
)
def test_a_wrong_legalisation_is_told_what_one_is(legalize: Any, message: str) -> None:
    same("wrong", legalize=legalize)
    with pytest.raises(MisuseError, match=f"<string>:3:9: {message}"):
        relaxpy.compile(main_with("wrong"))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            topi.sum,
            r"returns R\.Tensor\(\(\), .*\), expected R\.Tensor\(\(3,\), .*rank 0 is not rank 1",
        ),
        (lambda x: topi.cast(x, "int32"), r"returns .*int32.*expected .*int32 is not float32"),
    ],
)
def test_a_legalisation_returns_what_the_rule_infers(kernel: Any, message: str) -> None:
    same("wrong", legalize=lambda bb, call: bb.call_te(kernel, *call.args))
    with pytest.raises(StructInfoError, match=f"<string>:3:9: the legalisation of .*{message}"):
        relaxpy.compile(main_with("wrong"))


def test_a_legalisation_that_fails_by_itself_is_not_explained() -> None:
    same("wrong", legalize=lambda bb, call: len(call))
    with pytest.raises(TypeError, match=r"has no len\(\)") as caught:
        relaxpy.compile(main_with("wrong"))
    assert not isinstance(caught.value, RelaxpyError)


def gradients(operator: OpDef) -> tuple[rx.Expr, ...]:
    call = operator(X)
    return operator.operand_gradients(
        var("y", tensor(3)), call, var("g", tensor(3)), BlockBuilder()
    )


@pytest.mark.parametrize(
    "found", [None, [], [X, X], X, [5], "x"], ids=["none", "empty", "two", "bare", "number", "text"]
)
def test_a_gradient_is_one_expression_for_each_operand(found: object) -> None:
    operator = same("wrong", gradient=lambda var, call, gradient, builder: found)
    with pytest.raises(
        MisuseError, match=r"gradient of relax\.wrong returns a list of one(?s:.*)no_grad"
    ):
        gradients(operator)


def test_a_gradient_takes_four_arguments() -> None:
    operator = same("wrong", gradient=lambda call, gradient: [gradient])
    message = r"gradient of relax\.wrong takes \(var, call, gradient, builder\), found \(call, grad"
    with pytest.raises(MisuseError, match=message):
        gradients(operator)
    with pytest.raises(MisuseError, match=r"relax\.right has no gradient"):
        gradients(same("right"))


def test_a_gradient_is_registered_as_in_tvm() -> None:
    operator = same("right")

    @op.register_gradient("relax.right")
    def gradient(var: rx.Var, call: rx.Call, grad: rx.Expr, ctx: BlockBuilder) -> list[rx.Expr]:
        return [grad]

    assert operator.gradient is gradient
    op.register_gradient("relax.right", lambda *args: [], level=5)
    assert operator.gradient is gradient
    op.unregister("relax.right")
    op.register_gradient("relax.right", gradient, level=5)
    assert Op("relax.right").record.gradient is gradient
    Op("relax.right").forget()


def test_gradients_are_those_of_the_rule() -> None:
    operator = same("right", gradient=lambda var, call, gradient, builder: [gradient])
    [found] = gradients(operator)
    assert isinstance(found, rx.Var)
    assert found.name_hint == "g"


@pytest.mark.rule("DER-29")
@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        (lambda x: x[:2], r"the result of relax\.wrong: expected .*dimension 0 is 2, not 3"),
        (lambda x: x.astype("int8"), "its dtype is int8, not float32"),
        (lambda x: [1, 2, 3], "found an object of class list"),
        (lambda x: None, r"implementation of relax\.wrong returned None, expected R\.Tensor"),
    ],
)
def test_what_an_implementation_returns_is_checked(runtime, message, target) -> None:
    same("wrong", runtime=runtime)
    executable = relaxpy.compile(main_with("wrong"), target)
    with pytest.raises(RuntimeCheckError, match=f"<string>:3:9: .*{message}"):
        executable["main"](ONES)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_a_scalar_of_numpy_is_a_tensor_of_rank_0(target: Target) -> None:
    @op.register("relax.total", pure=True, runtime=lambda x: x.sum())
    def total(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        return rx.TensorStructInfo((), x.dtype)

    found = relaxpy.compile(main_with("total"), target)["main"](ONES)
    assert isinstance(found, np.ndarray)
    assert found == 3


@pytest.mark.parametrize("column", ["legalize", "gradient", "runtime", "infer", "layout"])
def test_a_column_that_is_not_a_function_is_refused(column: str) -> None:
    with pytest.raises(MisuseError, match=f"column {column} is a function, found 5"):
        same("wrong", **{column: 5})
    with pytest.raises(MisuseError, match=f"column {column} is a function, found 5"):
        same("wrong").op.extend(**{column: 5})  # type: ignore[misc]


@pytest.mark.rule("OP-16")
@pytest.mark.parametrize("name", ["relax.my op", "relax.", "", 5, "relax..x", same])
def test_an_operator_has_a_dotted_name(name: Any) -> None:
    with pytest.raises(
        MisuseError, match=r'named as in (?s:.*)@relax\.op\.register\("relax\.name"\)'
    ):
        op.register(name)


def test_a_rule_is_a_function() -> None:
    with pytest.raises(MisuseError, match=r"the rule of relax\.wrong is a function, found 5"):
        op.register("relax.wrong")(5)  # type: ignore[arg-type]


# ---- replacing and forgetting


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_a_function_that_is_defined_again_replaces_its_operator(target: Target) -> None:
    first = same("scaled", legalize=doubled, gradient=lambda *args: [args[2]])
    module = main_with("scaled")
    np.testing.assert_array_equal(relaxpy.compile(module, target)["main"](ONES), [2, 2, 2])
    second = same("scaled", legalize=tripled)
    assert registered_ops()["relax.scaled"] is R.scaled is second
    assert first.op is second.op
    assert second.gradient is None
    np.testing.assert_array_equal(relaxpy.compile(module, target)["main"](ONES), [3, 3, 3])


def test_a_function_that_ran_uses_the_operator_as_it_is_now() -> None:
    operator = same("scaled", legalize=doubled)
    main = main_with("scaled")["main"]
    np.testing.assert_array_equal(main(ONES), [2, 2, 2])
    same("scaled", legalize=tripled)
    np.testing.assert_array_equal(main(ONES), [3, 3, 3])
    operator.op.extend(legalize=doubled)
    np.testing.assert_array_equal(main(ONES), [2, 2, 2])


def test_the_public_module_has_the_operator_that_is_registered_now() -> None:
    relax, unary = relaxpy.relax, import_module("relaxpy.relax.op.unary")

    def defined() -> object:
        @relax.op.register("relax.lately", pure=True)
        def lately(x: relax.TensorStructInfo) -> relax.TensorStructInfo:
            return x

        return lately

    first = defined()
    assert relax.op.lately is unary.lately is first
    second = defined()
    assert relax.op.lately is unary.lately is second is not first
    relax.op.unregister("relax.lately")
    assert not hasattr(relax.op, "lately")
    assert not hasattr(unary, "lately")


def test_a_legalisation_is_registered_as_in_tvm() -> None:
    operator = same("scaled")
    module = main_with("scaled")
    assert operator.op.get_attr("FLegalize") is None
    assert register_legalize("relax.scaled", doubled) is doubled
    np.testing.assert_array_equal(relaxpy.compile(module)["main"](ONES), [2, 2, 2])
    assert register_legalize("relax.scaled")(tripled) is tripled
    np.testing.assert_array_equal(relaxpy.compile(module)["main"](ONES), [3, 3, 3])
    operator.op.reset_attr("FLegalize")
    assert operator.op.get_attr("FLegalize") is None


@pytest.mark.rule("OP-16")
def test_another_function_does_not_take_the_name() -> None:
    same("scaled", legalize=doubled)

    def other(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        return x

    message = r"relax\.scaled is registered already, by tests\..*same\..*rule(?s:.*)unregister\("
    for function in (other, lambda x: x):
        with pytest.raises(MisuseError, match=message):
            op.register("relax.scaled")(function)


@pytest.mark.rule("OP-16")
def test_operators_of_relaxpy_are_extended_not_replaced() -> None:
    before = registered_ops()["relax.add"].record
    with pytest.raises(MisuseError, match=r"already, by relaxpy(?s:.*)extend\(legalize="):
        same("add")
    with pytest.raises(MisuseError, match=r"operator relax\.add belongs to relaxpy"):
        op.unregister("relax.add")
    assert registered_ops()["relax.add"].record is before


@pytest.mark.rule("OP-16")
def test_an_operator_is_forgotten_with_all_that_was_attached_to_it() -> None:
    same("mine.scaled", legalize=doubled).op.set_attr("TOpPattern", 2)
    assert R.mine.scaled(X).struct_info == tensor(3)
    op.unregister("relax.mine.scaled")
    with pytest.raises(ParseError, match=r"mine"):
        main_with("mine.scaled")
    with pytest.raises(AttributeError):
        _ = R.mine
    with pytest.raises(UnknownNameError):
        Op.get("relax.mine.scaled")
    assert not Op("relax.mine.scaled").has_attr("TOpPattern")
    with pytest.raises(UnknownNameError, match=r"no operator is registered as 'relax\.mine"):
        op.unregister("relax.mine.scaled")


def test_a_namespace_is_that_of_the_operators_registered_now() -> None:
    same("mine.first")
    assert R.mine.first.name == "relax.mine.first"
    op.unregister("relax.mine.first")
    same("yours.first")
    assert R.yours.first.name == "relax.yours.first"
    with pytest.raises(AttributeError):
        _ = R.mine
