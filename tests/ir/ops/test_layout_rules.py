"""Operators compute the same on operands in other layouts, by their layout rules."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from string import ascii_uppercase
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.exec.api.compile import compile
from relaxpy.ir import DataType, IRModule, Op, ops as op
from relaxpy.ir.ops import InferredLayouts
from relaxpy.ir.ops.definition.axis_rules import layouts_of
from relaxpy.ir.ops.definition.registry import register, registered_ops, unregister
from relaxpy.ir.passes.convert_layout import ConvertLayout
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from tests.ir.ops.cases import CASES, Case
from tests.ir.ops.comparison import check, define
from tests.ir.relax.graphs import built, returning

#: How many calls of each operator are converted.
LIMIT = 2


@pytest.fixture(autouse=True)
def reordering() -> Iterator[None]:
    """An operator that returns its operand, and prefers it with the first axis last."""

    def rule(call: rx.Call, desired: Any, known: Mapping[rx.Var, Any]) -> InferredLayouts | None:
        layout = layouts_of(call.args[0], known)
        if not isinstance(layout, str):
            return None
        rotated = ascii_uppercase[1 : len(layout)] + ascii_uppercase[: min(1, len(layout))]
        return InferredLayouts((rotated,), rotated, call.attrs)

    @register("test.reordered", pure=True, layout=rule, legalize=lambda builder, call: call.args[0])
    def reordered(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        """x."""
        return x

    yield
    unregister("test.reordered")


def sampled() -> list[Case]:
    """Some calls of each operator that has a layout rule, on tensors of several axes."""
    by_operator: dict[str, list[Case]] = defaultdict(list)
    for case in CASES:
        axes = any(array.ndim > 1 for array in case.inputs)
        if axes and registered_ops()[case.operator].record.layout is not None:
            by_operator[case.operator].append(case)
    return [case for cases in by_operator.values() for case in cases[:: -(-len(cases) // LIMIT)]]


def program(case: Case) -> IRModule:
    """A function of one call, all operands of which are reordered if they have several axes."""
    reordered = registered_ops()["test.reordered"]

    def body(builder: BlockBuilder, *params: rx.Var) -> rx.Expr:
        args = [
            builder.emit(reordered(param)) if array.ndim > 1 else param
            for param, array in zip(params, case.inputs, strict=True)
        ]
        return case.call(*args)

    return built(body, *(rx.TensorStructInfo(x.shape, DataType(x.dtype)) for x in case.inputs))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in sampled()])
def test_a_call_in_other_layouts_has_the_same_value(case: Case) -> None:
    module = program(case)
    converted = ConvertLayout({})(module)
    assert converted is not module
    assert check_well_formed(converted, normal_form=True) == []
    assert converted["main"].struct_info == module["main"].struct_info
    with np.errstate(all="ignore"):
        definition = define(case.expected, case.inputs)
        found = compile(converted, "numpy")["main"](*case.inputs)
    check(found, definition, 4 * case.roundings)


def test_every_rule_takes_another_layout() -> None:
    expected, following = set(), set()
    for case in sampled():
        expected.add(case.operator)
        body = ConvertLayout({})(program(case))["main"].body  # type: ignore[union-attr]
        values = [binding.value for block in body.blocks for binding in block.bindings]
        names = [v.op.name for v in values if isinstance(v, rx.Call)]  # type: ignore[union-attr]
        before = names[: names.index(case.operator)]
        if before.count("relax.permute_dims") == before.count("test.reordered"):
            following.add(case.operator)
    assert len(expected) > 100
    assert expected == following


X = rx.Var("x", rx.TensorStructInfo((2, 8, 4, 6), "float32"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "known", "operands", "result", "attrs"),
    [
        (op.sum(X, [1, -1]), "ACDB", ("ACDB",), "AB", {"axis": (2, 3)}),
        (op.sum(X, [1], keepdims=True), "ACDB", ("ACDB",), "ACDB", {"axis": (3,)}),
        (op.sum(X), "DCBA", ("DCBA",), "", {"axis": None}),
        (op.argmax(X, 1), "ACDB", ("ACDB",), "ABC", {"axis": 3}),
        (op.permute_dims(X, [3, 2, 1, 0]), "ACDB", ("ACDB",), "ABCD", {"axes": (2, 1, 3, 0)}),
        (op.permute_dims(X), "ABCD", ("ABCD",), "ABCD", {"axes": None}),
        (op.expand_dims(X, [-3, 1]), "ACDB", ("ACDB",), "ABEDFC", {"axis": (-3, 1)}),
        (op.nn.softmax(X, -3), "ACDB", ("ACDB",), "ACDB", {"axis": 3}),
        (op.nn.softmax(X, -3), "ABCD", ("ABCD",), "ABCD", {"axis": -3}),
        (op.nn.softmax(X, -1), "ABCD4b", ("ABCD4b",), "ABCD4b", {"axis": 3}),
        (op.exp(X), "ABCD4b", ("ABCD4b",), "ABCD4b", {}),
        (op.nn.pad(X, [0, 1, 2, 3, 4, 5, 6, 7]), "ACDB", ("ACDB",), "ACDB",
         {"pad_width": (0, 1, 4, 5, 6, 7, 2, 3)}),
        (op.tile(X, [2, 3]), "ACDB", ("ACDB",), "ACDB", {"repeats": (1, 2, 3, 1)}),
        (op.nn.avg_pool2d(X), "ABCD4b", ("ABCD4b",), "ABCD4b",
         {"layout": "NCHW4c", "out_layout": "NCHW4c"}),
        (op.nn.avg_pool2d(X), "ABCD3b", ("ABCD",), "ABCD", {"layout": "NCHW"}),
        (op.nn.avg_pool2d(X, layout="NHWC", out_layout="NCHW"), "ACDB", ("ACDB",), "ACDB",
         {"layout": "NWCH", "out_layout": "NHWC"}),
        (op.take(X, op.zeros((3, 5), "int32"), axis=1), "ACDB", ("ACDB",), "ADEBC", {"axis": 3}),
        (op.take(X, rx.PrimValue(1), axis=1), "ACDB", ("ACDB",), "ABC", {"axis": 3}),
    ],
)  # fmt: skip
def test_a_rule_infers_the_layout_of_the_result(call, known, operands, result, attrs) -> None:
    rule = call.op.record.layout  # type: ignore[union-attr]
    assert rule is not None
    inferred = rule(call, {}, {X: known})
    assert (tuple(inferred.operands), inferred.result) == (operands, result)
    assert {name: inferred.attrs[name] for name in attrs} == attrs


def test_an_operator_along_a_divided_axis_has_its_initial_layout() -> None:
    rule = Op("relax.nn.softmax").record.layout
    assert rule is not None
    assert rule(op.nn.softmax(X, 1), {}, {X: "ABCD4b"}) is None


Y = rx.Var("y", rx.TensorStructInfo((2, 8, 4, 6), "float32"))  # type: ignore[arg-type]
WEIGHT = rx.TensorStructInfo((8, 8, 1, 1), "float32")  # type: ignore[arg-type]
MATRIX = rx.Var("m", rx.TensorStructInfo((4, 6), "float32"))  # type: ignore[arg-type]
SINGLE = rx.Var("s", rx.TensorStructInfo((1, 1), "float32"))  # type: ignore[arg-type]
CHANNELS = rx.Var("c", rx.TensorStructInfo((1, 8, 1, 1), "float32"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "known", "operands", "result"),
    [
        (op.add(X, Y), {X: "ACDB"}, ("ACDB", "ACDB"), "ACDB"),
        (op.add(Y, X), {X: "ACDB"}, ("ABCD", "ABCD"), "ABCD"),
        (op.add(X, MATRIX), {X: "ACDB"}, ("ABCD", "AB"), "ABCD"),
        (op.add(X, MATRIX), {MATRIX: "BA"}, ("ABCD", "AB"), "ABCD"),
        (op.add(X, rx.const(1.0)), {X: "ACDB"}, ("ACDB", ""), "ACDB"),
        (op.add(X, SINGLE), {X: "ACDB"}, ("ACDB", "AB"), "ACDB"),
        (op.add(SINGLE, X), {X: "ABCD4b"}, ("AB", "ABCD4b"), "ABCD4b"),
        (op.add(MATRIX, SINGLE), {MATRIX: "BA"}, ("BA", "BA"), "BA"),
        (op.add(X, Y), {X: "ABCD4b"}, ("ABCD4b", "ABCD4b"), "ABCD4b"),
        (op.add(Y, X), {X: "ABCD4b"}, ("ABCD4b", "ABCD4b"), "ABCD4b"),
        (op.add(X, MATRIX), {X: "ABCD4b"}, ("ABCD", "AB"), "ABCD"),
        (op.add(X, CHANNELS), {X: "ABCD4b"}, ("ABCD4b", "ABCD4b"), "ABCD4b"),
        (op.add(X, CHANNELS), {X: "ABCD2d"}, ("ABCD", "ABCD"), "ABCD"),
        (op.ewise_fma(X, Y, Y), {X: "ACDB"}, ("ABCD", "ABCD", "ABCD"), "ABCD"),
        (op.ewise_fma(X, Y, Y), {Y: "ACDB"}, ("ACDB", "ACDB", "ACDB"), "ACDB"),
    ],
)
def test_operands_that_broadcast_have_one_layout(call, known, operands, result) -> None:
    rule = call.op.record.layout  # type: ignore[union-attr]
    assert rule is not None
    inferred = rule(call, {}, known)
    assert (tuple(inferred.operands), inferred.result) == (operands, result)


def test_a_rule_that_returns_something_else_is_reported() -> None:
    @register("test.confused", pure=True, layout=lambda call, desired, known: "NHWC")
    def confused(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        """x."""
        return x

    try:
        with pytest.raises(MisuseError, match="returns InferredLayouts, found"):
            ConvertLayout({})(returning(confused, X.struct_info))
    finally:
        unregister("test.confused")


def test_an_operator_of_a_user_follows_the_layout_of_its_operand() -> None:
    @op.register("test.softsign", pure=True, layout=op.same_layout)
    def softsign(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        """x / (1 + |x|)."""
        return x

    try:
        before = returning(lambda x, w: softsign(op.nn.conv2d(x, w)), X.struct_info, WEIGHT)
        mod = ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(before)
        [block] = mod["main"].body.blocks  # type: ignore[union-attr]
        names = [binding.value.op.name for binding in block.bindings]  # type: ignore[union-attr]
        permute = "relax.permute_dims"
        assert names == [permute, permute, "relax.nn.conv2d", "test.softsign", permute]
    finally:
        unregister("test.softsign")
