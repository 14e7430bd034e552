"""Operators compute what NumPy computes, on both targets, with known and with symbolic sizes."""

import inspect
from collections.abc import Collection, Iterator
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

import relaxpy.exec.runtime.operators  # noqa: F401 (their columns `runtime`)
from relaxpy.exec.api.compile import compile
from relaxpy.ir import DataType, Op, assert_structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.ops.definition.signature import Parameter
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.script import from_source
from tests.ir.ops.cases import CASES, WITHOUT_ROWS, Case
from tests.ir.ops.comparison import check, define
from tests.ir.ops.variants import drawn_with_each_choice, program

#: Operators of which no kernel is left: ranges of literals are constants, the others are bounds.
FOLDED = {"relax.arange", "relax.grad.no_grad"}
FOLDED |= {"relax.grad.start_checkpoint", "relax.grad.end_checkpoint"}

#: Why the kernels of an operator run one element at a time: there is none that does.
_REGIONS = "the borders of a region decide which elements it has"
SCALAR = {
    "relax.vision.non_max_suppression": "a box remains if no better one that remains is near",
    "relax.vision.roi_align": _REGIONS,
    "relax.vision.roi_pool": _REGIONS,
}


def assert_datatypes(found: Any, function: rx.StructInfo | None) -> None:
    """The values have the datatypes that were inferred."""
    assert isinstance(function, rx.FuncStructInfo)
    sinfos = (
        function.ret.fields if isinstance(function.ret, rx.TupleStructInfo) else (function.ret,)
    )
    values = found if isinstance(found, tuple) else (found,)
    for value, sinfo in zip(values, sinfos, strict=True):
        assert isinstance(sinfo, rx.TensorStructInfo)
        assert DataType(value.dtype) == sinfo.dtype


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "knowledge" in metafunc.fixturenames:
        drawn = drawn_with_each_choice(metafunc.config)
        metafunc.parametrize(("case", "knowledge"), drawn.values(), ids=drawn.keys())


def test_the_kernel_computes_the_definition(case: Case, knowledge: str) -> None:
    module = program(case, knowledge)
    lowered = LegalizeOps()(module)
    assert_structural_equal(from_source(lowered.script()), lowered)
    calls = [node for node in walk(lowered["main"]) if isinstance(node, rx.Call)]
    with np.errstate(all="ignore"):
        definition = define(case.expected, case.inputs)
        for target in ("reference", "numpy"):
            if target == "reference" or knowledge == "static":
                executable = compile(lowered, target)
                found = executable["main"](*case.inputs)
                check(found, definition, case.roundings)
                assert_datatypes(found, module["main"].struct_info)
    scalar = {row.block for row in executable.report() if row.method == "scalar loop"}
    assert not scalar or case.operator in SCALAR, "give the reason in SCALAR, or vectorise it"
    kernels = {call.op for call in calls}
    runs_itself = Op(case.operator).record.runtime is not None
    # What runs itself may still have a kernel for shapes that are known.
    expected_ops = {Op("relax.call_tir"), *([Op(case.operator)] if runs_itself else [])}
    assert kernels <= expected_ops
    assert kernels or case.operator in FOLDED


def missing(operator: Op, compared: Collection[str]) -> Iterator[str]:
    """What an operator lacks."""
    name, record = operator.name, operator.record
    if not inspect.cleandoc(record.doc).partition("\n")[0].endswith("."):
        yield f"{name}: no docstring"
    runs_itself = record.runtime is not None or record.calls is not None
    if record.legalize is None and not runs_itself and not name.startswith("relax.dist."):
        yield f"{name}: no legalisation: pass legalize=... to `register`"
    if record.legalize is not None and record.calls is None:
        if name not in compared:
            yield f"{name}: no oracle: add what NumPy says of it to tests/ir/ops/cases/"
        if not record.pure:
            yield f"{name}: what is computed by a kernel has no other effect"


@pytest.mark.rule("OP-16")
def test_every_operator_is_documented_lowered_and_compared() -> None:
    compared = {case.operator for case in CASES}
    operators = [op for name, op in sorted(registered_ops().items()) if name.startswith("relax.")]
    assert len(operators) > 200
    assert [lack for op in operators for lack in missing(op, compared)] == []


def test_every_operator_is_compared_or_has_a_reason_not_to_be() -> None:
    registered = {name for name in registered_ops() if name.startswith("relax.")}
    compared = {case.operator for case in CASES}
    excused = {f"relax.{name}" for name in WITHOUT_ROWS}
    assert compared | excused == registered
    assert not compared & excused


def values_that_are_named(attribute: Parameter) -> Iterator[object]:
    """The values of an attribute that its type lists: of a Literal, and True and False."""
    for choice in attribute.choices:
        yield from (True, False) if choice is bool else ()
        yield from get_args(choice) if get_origin(choice) is Literal else ()


def test_each_value_of_an_attribute_is_compared() -> None:
    compared = {(case.operator, *choice) for case in CASES for choice in case.choices()}
    declared = {
        (name, attribute.name, str(value))
        for name in {case.operator for case in CASES}
        for attribute in registered_ops()[name].signature.attributes.values()
        for value in values_that_are_named(attribute)
    }
    assert ("relax.unique", "sorted", "False") in declared
    assert ("relax.scatter_nd", "reduction", "mean") in declared
    assert declared - compared == set()
