"""The registry: one record says how an operator is called, what it gives, and what is wrong."""

import ast
import copy
import dataclasses
import pickle
import pkgutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import (
    MisuseError,
    RelaxpyError,
    StructInfoError,
    StructInfoTypeError,
    UnknownNameError,
)
from relaxpy.exec.api.compile import compile
from relaxpy.ir import DataType, IRModule, ops as op
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op, register_op_attr
from relaxpy.ir.ops.definition.registry import OpDef, register, registered_ops
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.passes.rewrite_pass import Normalize
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.dpl.pattern import is_op, wildcard
from relaxpy.ir.relax.relations.derivation import Context
from tests.ir.ops.scratch import forgotten_operators
from tests.ir.relax.graphs import returning, shape_of, var
from tests.ir.relax.sinfos import Object, prim, shape, tensor


@pytest.fixture
def scratch() -> Iterator[list[str]]:
    with forgotten_operators():
        yield []


@pytest.fixture
def window(scratch: list[str]) -> OpDef:
    @register("test.window", pure=True)
    def window(
        x: rx.TensorStructInfo,
        size: rx.ShapeStructInfo,
        scale: rx.TensorStructInfo | rx.PrimStructInfo | None = None,
        *,
        axis: int = -1,
        dtype: DataType | None = None,
        mode: str = "valid",
    ) -> rx.TensorStructInfo:
        if not -x.ndim <= axis < x.ndim:
            raise StructInfoError(f"axis {axis} is out of range for rank {x.ndim}")
        if size.ndim != x.ndim:
            raise StructInfoTypeError("the size has another rank", about=size)
        return rx.TensorStructInfo(x.shape, dtype or x.dtype)

    return window


X = var("x", tensor(2, 3))
PACKAGE = Path(relaxpy.__file__).parent


@pytest.mark.rule("OP-16")
def test_every_operator_has_a_name_a_docstring_and_a_word_on_purity() -> None:
    assert "relax.call_tir" in registered_ops()
    for name, record in registered_ops().items():
        assert record.name == name
        assert Op.get(name) is record.op
        assert record.__doc__
        assert record.op.get_attr("FPurity") in (True, False)
        assert callable(record.op.get_attr("FInferStructInfo"))
        assert repr(record) == f"<operator {name}>"
    assert len(registered_ops()) == len(list(registered_ops()))


def test_operators_that_the_package_names_are_registered() -> None:
    """A name that is written wrong would select nothing, and say nothing."""
    names, wrong, found = frozenset(Op.list_op_names()), [], 0
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if '"relax.' in text else ():
            for name in _operators_in(node):
                found += 1
                if name not in names:
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {name}")
    assert wrong == []
    assert found > 100


def _operators_in(node: ast.AST) -> Iterator[str]:
    """The names of Relax operators that a call or a pattern selects by."""
    match node:
        case ast.Call(func, args):
            users = ("is_call_of", "is_op", "Op", "Op.get")
        case ast.MatchValue(value):
            func, args, users = None, [value], ()
        case _:
            return
    for arg in args:
        named = isinstance(arg, ast.Constant) and str(arg.value).startswith("relax.")
        if named and (func is None or ast.unparse(func).rpartition("rx.")[2] in users):
            yield arg.value


def test_no_home_has_the_name_of_an_operator() -> None:
    homes = {module.name for module in pkgutil.iter_modules(op.__path__)}
    assert not homes & {name.removeprefix("relax.") for name in registered_ops()}


@pytest.mark.rule("OP-16")
def test_an_unregistered_name_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'relax\.shape_of'"):
        Op.get("relax.shapeof")
    bb = BlockBuilder()
    with (
        bb.testing_scope(),
        pytest.raises(StructInfoError, match=r"did you mean 'relax\.shape_of'"),
    ):
        bb.emit(rx.Call(Op("relax.shapeof"), (X,)))


@pytest.mark.rule("PU-14")
def test_an_operator_without_a_word_on_purity_is_impure(scratch: list[str]) -> None:
    @register("test.silent")
    def silent(x: rx.StructInfo) -> rx.StructInfo:
        return x

    assert not silent.pure
    silent.op.set_attr("FPurity", True)
    assert silent.pure


def test_arguments_are_bound_by_the_signature_of_the_rule(window: OpDef) -> None:
    call = window(X, (1, 2), axis=0)
    assert call.op is window.op
    assert call.args[0] is X
    assert isinstance(call.args[1], rx.ShapeExpr)
    assert dict(call.attrs) == {"axis": 0, "dtype": None, "mode": "valid"}
    assert call.struct_info == tensor(2, 3)
    third = window(X, size=[1, 2], scale=2.0, dtype="int8").args[2]
    assert isinstance(third, rx.PrimValue)
    assert window(X, rx.ShapeExpr((1, 2)), dtype=np.int8).struct_info == tensor(2, 3, dtype="int8")  # type: ignore[arg-type]


def test_arrays_and_numbers_become_constants(window: OpDef) -> None:
    array = window(np.zeros((2, 3), "float32"), (1, 1)).args[0]
    assert isinstance(array, rx.Constant)
    assert isinstance(op.shape_of(1.5).args[0], rx.Constant)


def test_a_call_says_how_it_was_written(window: OpDef) -> None:
    positional, named = window.arguments(window(X, (1, 2), mode="same"))
    assert positional[0] is X
    assert named == {"mode": "same"}
    assert window.arguments(window(X, (1, 2)))[1] == {}


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((X, (1, 2)), {"axes": 1}, "unexpected keyword argument 'axes'"),
        ((X, (1, 2), 1, 2), {}, "too many positional arguments"),
        ((X, (1, 2)), {"axis": 1.5}, r"axis is int, found 1\.5"),
        ((X, (1, 2)), {"axis": True}, "axis is int, found True"),
        ((X, (1, 2)), {"mode": 3}, "mode is str, found 3"),
        ((X, (1, 2)), {"dtype": object()}, "dtype is DataType or None, found"),
        ((object(), (1, 2)), {}, "expected a Relax expression, found object"),
    ],
)
def test_a_wrong_argument_is_named(window, args, named, message) -> None:
    with pytest.raises(MisuseError, match=rf"test\.window: .*{message}") as caught:
        window(*args, **named)
    assert isinstance(caught.value, TypeError)


def test_what_may_stand_alone_or_in_a_list_is_told_once() -> None:
    with pytest.raises(MisuseError, match="indices_or_sections is int or a list of them, found"):
        op.split(X, True)  # type: ignore[arg-type]


def test_an_operand_of_another_kind_is_a_type_error(window: OpDef) -> None:
    s, o = var("s", shape(2)), var("o", Object)
    with pytest.raises(TypeError, match=r"test\.window: x is a tensor, found R\.Shape") as caught:
        window(s, (1, 2))
    assert caught.value.about is s  # type: ignore[attr-defined]
    with pytest.raises(StructInfoTypeError, match=r"match_cast"):
        window(X, (1, 2), o)


def test_what_the_rule_refuses_names_operator_and_operand(window: OpDef) -> None:
    refusal = r"^.*: test\.window: axis 5 is out of range for rank 2"
    with pytest.raises(StructInfoError, match=refusal):
        window(X, (1, 2), axis=5)
    y = var("y", shape(1))
    with pytest.raises(StructInfoError, match="another rank") as caught:
        window(X, y)
    assert caught.value.about is y


def test_a_call_built_by_hand_is_checked_too(window: OpDef) -> None:
    bb = BlockBuilder()
    with bb.testing_scope():
        size = rx.ShapeExpr((1, 2))  # type: ignore[arg-type]
        assert bb.emit(rx.Call(window.op, (X, size))).struct_info == tensor(2, 3)
        with pytest.raises(StructInfoTypeError, match="takes 3 operands, found 1"):
            bb.emit(rx.Call(window.op, (X,)))
        with pytest.raises(StructInfoTypeError, match=r"(?s)has no attribute 'axes'.*hint.*'axis'"):
            bb.emit(rx.Call(window.op, (X, size), {"axes": 1}))  # type: ignore[arg-type]


def test_a_rule_may_ask_for_call_and_context(scratch: list[str]) -> None:
    @register("test.known", pure=True)
    def known(x: rx.StructInfo, call: rx.Call, ctx: Context) -> rx.StructInfo:
        value = ctx.sinfo_of(call.args[0])
        return prim(1 if value is x else 0)

    assert known.needs_context
    assert [p.name for p in known.parameters] == ["x"]
    assert known(X).struct_info == prim(1)


@pytest.fixture
def asking() -> Iterator[Op]:
    """An operator of a user; its rule asks that of R.add about a variable that it makes up."""
    made = Op("test.asking")
    add = Op.get("relax.add")
    rule = add.get_attr("FInferStructInfo")
    assert callable(rule)

    def infer(call: rx.Call, ctx: Context) -> rx.StructInfo:
        sinfo = rule(rx.Call(add, (call.args[0], call.args[0])), ctx)
        found = rule(rx.Call(add, (rx.Var("made_up", sinfo), call.args[0])), ctx)
        assert isinstance(found, rx.StructInfo)
        return found

    register_op_attr(made.name, "FInferStructInfo", infer)
    register_op_attr(made.name, "FPurity", True)
    yield made
    made.reset_attr("FInferStructInfo")
    made.reset_attr("FPurity")


@pytest.mark.rule("DER-35")
def test_a_rule_may_ask_other_rules_about_variables_of_its_own(asking: Op) -> None:
    whole = Normalize()(returning(lambda x: rx.Call(asking, (x,)), tensor(2, 3), dataflow=False))
    assert isinstance(main := whole["main"], rx.Function)
    assert main.body.struct_info == tensor(2, 3)


@pytest.mark.rule("DER-3")
def test_what_the_call_itself_takes_has_to_be_in_scope(asking: Op) -> None:
    x, stray = var("x", tensor(2, 3)), var("stray", tensor(2, 3))
    main = rx.Function([x], rx.Call(asking, (stray,)), tensor(2, 3))
    with pytest.raises(StructInfoError, match="variable stray is not in scope"):
        Normalize()(IRModule({"main": main}))


@pytest.mark.rule("DER-35")
def test_the_rule_of_an_operator_may_be_asked_with_a_builder(window: OpDef) -> None:
    rule = window.op.get_attr("FInferStructInfo")
    assert callable(rule)
    call = window(X, (1, 2))
    assert rule(call, BlockBuilder()) == tensor(2, 3)
    with pytest.raises(MisuseError, match="expected a BlockBuilder, found int"):
        rule(call, 3)


def test_struct_infos_wait_until_those_of_the_operands_are_known() -> None:
    assert op.shape_of(shape_of(X)).struct_info is None
    assert op.shape_of(X).struct_info == shape(2, 3)


def test_a_record_is_extended_from_outside(window: OpDef) -> None:
    assert window.legalize is None
    assert window.gradient is None

    def legalize(builder: object, call: object) -> object:
        return call

    before = window.record
    window.op.set_attr("FLegalize", legalize)
    window.op.set_attr("FPrimalGradient", legalize)
    assert window.legalize is legalize
    assert window.gradient is legalize
    assert (before.legalize, before.gradient) == (None, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        window.record.legalize = None  # type: ignore[misc]


TVM_ATTRIBUTES = {
    "FPurity": "pure",
    "FInferStructInfo": "infer",
    "FLegalize": "legalize",
    "FPrimalGradient": "gradient",
    "FRelaxInferLayout": "layout",
    "FInferMixedPrecision": "mixed_precision",
    "TMixedPrecisionPolicy": "precision_policy",
    "FDataDependent": "data_dependent",
}


@pytest.mark.parametrize(("attribute", "column"), TVM_ATTRIBUTES.items())
def test_attributes_of_tvm_are_columns_of_the_record(window, attribute, column) -> None:
    value = lambda *args: None  # noqa: E731
    window.op.set_attr(attribute, value)
    assert getattr(window.record, column) is value
    window.op.reset_attr(attribute)
    assert not window.op.has_attr(attribute)
    window.op.extend(**{column: value})  # type: ignore[misc]
    assert window.op.get_attr(attribute) is value


def test_other_attributes_are_kept_beside_the_record(window: OpDef) -> None:
    before = window.record
    window.op.set_attr("TOpPattern", 2)
    assert window.op.get_attr("TOpPattern") == 2
    assert window.record is before
    window.op.reset_attr("TOpPattern")
    assert not window.op.has_attr("TOpPattern")


def test_a_name_without_attributes_is_not_registered() -> None:
    op = Op("test.attributes_alone")
    op.set_attr("FPurity", False)
    assert Op.get(op.name) is op
    op.reset_attr("FPurity")
    with pytest.raises(UnknownNameError):
        Op.get(op.name)


def test_a_column_of_an_unknown_name_is_refused(window: OpDef) -> None:
    with pytest.raises(MisuseError, match=r"no column 'gradients'(?s:.*)'gradient'"):
        window.op.extend(gradients=None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no column 'pur'"):
        register("test.misspelt", pur=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_an_operator_runs_by_the_implementation_attached_to_it(scratch, target) -> None:
    @register("test.scaled", pure=True)
    def scaled(
        x: rx.TensorStructInfo, shift: rx.TensorStructInfo | None = None, by: int = 2
    ) -> rx.TensorStructInfo:
        return x

    @scaled.implement
    def run(x: Any, shift: Any = 0, *, by: int) -> Any:
        return (x * by + shift).astype(x.dtype)

    mod = returning(lambda x: scaled(scaled(x, by=3), x), tensor(3))
    found = compile(mod, target)["main"](np.arange(3, dtype="float32"))
    np.testing.assert_array_equal(found, [0, 7, 14])


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("function", [np.square, partial(np.power, 2), max])
def test_any_callable_may_be_an_implementation(scratch, function, target) -> None:
    @register("test.computed", pure=True, runtime=function)
    def computed(x: rx.TensorStructInfo) -> rx.ObjectStructInfo:
        return rx.ObjectStructInfo()

    array = np.arange(3, dtype="float32")
    found = compile(returning(computed, tensor(3)), target)["main"](array)
    np.testing.assert_array_equal(found, function(array))


@pytest.mark.parametrize("data_dependent", [False, True])
def test_calls_with_data_dependent_shapes_are_legalised(scratch, data_dependent) -> None:
    def legalize(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        return op.call_dps_packed("f", call.args[0], tensor(3))

    @register("test.dynamic", pure=True, legalize=legalize, data_dependent=data_dependent)
    def dynamic(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        return rx.TensorStructInfo(None, x.dtype)

    x = var("x", tensor(2))
    main = rx.Function([x], dynamic(x), is_pure=False)
    lowered = LegalizeOps()(IRModule({"main": main}))
    calls = [node.op for node in walk(lowered["main"]) if isinstance(node, rx.Call)]
    assert calls == [op.call_dps_packed.op if data_dependent else dynamic.op]


def test_patterns_match_operands_of_a_commutative_operator_in_either_order(scratch) -> None:
    @register("test.joined", pure=True)
    def joined(x: rx.TensorStructInfo, y: rx.TensorStructInfo) -> rx.TensorStructInfo:
        return x

    call, pattern = (
        joined(op.exp(X), X),
        is_op("test.joined")(wildcard(), is_op("relax.exp")(wildcard())),
    )
    assert not pattern.match(call)
    joined.op.extend(commutative=True)
    assert pattern.match(call)


BY_HAND: list[tuple[rx.Call, str]] = [
    (rx.Call(Op("relax.sum"), (X,), {"axis": "x"}), r"axis is int or a list of them or None"),  # type: ignore[arg-type]
    (rx.Call(Op("relax.sum"), (X,), {"keepdims": 2}), r"keepdims is bool, found 2"),  # type: ignore[arg-type]
    (rx.Call(Op("relax.astype"), (X,)), r"relax\.astype: the attribute dtype is missing"),
    (rx.Call(Op("relax.zeros"), (rx.ShapeExpr((2,)),), {"dtype": None}), r"dtype is DataType"),  # type: ignore[arg-type]
    (rx.Call(Op("relax.arange"), (rx.PrimValue(2),)), r"takes start, end and step, and a dtype"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("call", "message"), BY_HAND)
def test_attributes_of_a_call_built_by_hand_are_checked(call: rx.Call, message: str) -> None:
    bb = BlockBuilder()
    with bb.testing_scope(), pytest.raises(RelaxpyError, match=message) as caught:
        bb.emit(call)
    assert isinstance(caught.value, TypeError)


def test_what_a_call_built_by_hand_leaves_out_has_its_default() -> None:
    builder = BlockBuilder()
    with builder.function("main", [x := var("x", tensor(2, 3))]):
        parts = [
            builder.emit(rx.Call(Op("relax.sum"), (x,), {"axis": np.int64(1)})),  # type: ignore[arg-type]
            builder.emit(rx.Call(Op("relax.concat"), (rx.Tuple((x, x)),))),
        ]
        builder.emit_func_output(rx.Tuple(tuple(parts)))
    total, joined = compile(LegalizeOps()(builder.get()))["main"](np.ones((2, 3), "float32"))
    np.testing.assert_array_equal(total, [3, 3])
    assert joined.shape == (4, 3)


def test_an_operator_is_pickled_and_copied_by_its_name() -> None:
    for operator in (op.add, op.nn.relu, op.call_tir):
        assert pickle.loads(pickle.dumps(operator)) is operator
        assert copy.deepcopy([operator]) == [operator]
