"""Operators compute what NumPy computes, on both targets, with known and with symbolic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxpy.exec.compile import compile
from relaxpy.ir.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.builder import BlockBuilder
from relaxpy.ir.relax.op.registry import registered_ops
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.traverse import walk
from tests.ir.relax.op.cases import CASES, Array, Case

RUNS_AS_IT_STANDS = {
    "relax.assert_op",
    "relax.builtin.alloc_tensor",
    "relax.builtin.stop_lift_params",
    "relax.hint_on_device",
    "relax.make_closure",
    "relax.memory.alloc_storage",
    "relax.memory.alloc_tensor",
    "relax.memory.ensure_zero_offset",
    "relax.memory.kill_storage",
    "relax.memory.kill_tensor",
    "relax.memory.view",
    "relax.null_value",
    "relax.print",
    "relax.shape_of",
    "relax.shape_to_tensor",
    "relax.tensor_to_shape",
    "relax.to_vdevice",
    "relax.vm.alloc_storage",
    "relax.vm.alloc_tensor",
    "relax.vm.kill_object",
}
CALLS_SOMETHING = {
    "relax.call_builtin_with_ctx",
    "relax.call_dps_packed",
    "relax.call_inplace_packed",
    "relax.call_pure_packed",
    "relax.call_py_func",
    "relax.call_tir",
    "relax.call_tir_inplace",
    "relax.call_tir_with_grad",
    "relax.invoke_closure",
    "relax.invoke_pure_closure",
    "relax.vm.call_tir_dyn",
}
NEEDS_DEVICES = {
    "relax.dist.annotate_sharding",
    "relax.dist.call_tir_local_view",
    "relax.dist.redistribute",
    "relax.dist.redistribute_replica_to_shard",
}
NEEDS_SIZES = {"relax.reshape", "relax.broadcast_to", "relax.squeeze", "relax.split"}


def program(case: Case, *, symbolic: bool) -> IRModule:
    """A function of one call; with symbolic sizes, equal sizes are one variable, 1 stays 1."""
    sizes: dict[int, Any] = {}
    params = []
    for k, array in enumerate(case.inputs):
        shape = [
            sizes.setdefault(n, tir.Var(f"n{n}", "int64")) if symbolic and n > 1 else n
            for n in array.shape
        ]
        info = rx.TensorStructInfo(tuple(shape), DataType(array.dtype))  # type: ignore[arg-type]
        params.append(rx.Var(f"x{k}", info))
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(case.call(*params))
        builder.emit_func_output(out)
    return builder.finalize()


def check(found: Any, expected: Any, inputs: tuple[Array, ...], roundings: int) -> None:
    """The value agrees in shape, and up to some roundings of its datatype."""
    if isinstance(found, tuple):
        assert isinstance(expected, tuple)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            check(a, b, inputs, roundings)
        return
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected.astype(found.dtype))
        return
    eps = float(np.finfo(found.dtype).eps)
    magnitude = max([1.0, *(float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in inputs)])
    np.testing.assert_allclose(
        found, expected, rtol=roundings * eps, atol=roundings * eps * magnitude
    )


def doubles(array: Array) -> Array:
    return array.astype("float64") if array.dtype.kind == "f" else array


@pytest.mark.parametrize(
    ("case", "symbolic"),
    [
        pytest.param(case, symbolic, id=f"{case.name}-{'symbolic' if symbolic else 'static'}")
        for case in CASES
        for symbolic in (False, True)
        if not (symbolic and case.operator in NEEDS_SIZES)  # such a call names sizes of its input
    ],
)
def test_the_kernel_computes_the_definition(case: Case, symbolic: bool) -> None:
    module = program(case, symbolic=symbolic)
    lowered = LegalizeOps()(module)
    calls = [node for node in walk(lowered["main"]) if isinstance(node, rx.Call)]
    with np.errstate(all="ignore"):
        expected = case.expected(*map(doubles, case.inputs))
        for target in ("reference", "numpy"):
            if target == "reference" or not symbolic:
                found = compile(lowered, target)["main"](*case.inputs)
                check(found, expected, case.inputs, case.roundings)
    assert {call.op for call in calls} == {Op("relax.call_tir")}


@pytest.mark.rule("OP-16")
def test_every_operator_is_documented_lowered_and_compared() -> None:
    compared = {case.operator for case in CASES}
    for name, record in registered_ops().items():
        if not name.startswith("relax."):
            continue
        assert record.__doc__, name
        elsewhere = RUNS_AS_IT_STANDS | CALLS_SOMETHING | NEEDS_DEVICES
        assert name in compared or name in elsewhere, name
        if name not in CALLS_SOMETHING:
            assert (record.legalize is not None) == (name in compared), name
        if name in compared:
            assert record.pure, name
