"""Recognises accumulations, `C[i] = op(C[i], e)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from relaxpy.exec.loops.nest.bounds import may_fail
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import Add, And, Call, FloatImm, IntImm, Max, Min, Mul, Or, PrimExpr, Sub
from relaxpy.support.dataclass import dataclass

Combine: TypeAlias = Literal[
    "add", "mul", "min", "max", "and", "or", "bitwise_and", "bitwise_or", "bitwise_xor"
]
_NODES: dict[type[PrimExpr], Combine] = {
    Add: "add",
    Sub: "add",
    Mul: "mul",
    Min: "min",
    Max: "max",
    And: "and",
    Or: "or",
}
_CALLS: dict[str, Combine] = {
    "tir.bitwise_and": "bitwise_and",
    "tir.bitwise_or": "bitwise_or",
    "tir.bitwise_xor": "bitwise_xor",
}


def reduction_identity(combine: Literal["add", "min", "max"], dtype: DataType) -> IntImm | FloatImm:
    """The identity of a sum, a minimum or a maximum of values of `dtype`; -0.0 for sums."""
    if combine == "add":
        return FloatImm(dtype, -0.0) if dtype.is_float else IntImm(dtype, 0)
    if not dtype.is_float:
        return IntImm(dtype, ops.int_range(dtype)[combine == "min"])
    value = float("inf" if combine == "min" else "-inf")
    if not np.isinf(dtype.numpy().type(value)):
        value = ops.float_range(dtype)[combine == "min"]
    return FloatImm(dtype, value)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """The target becomes `combine` of itself and `operand`."""

    combine: Combine
    operand: PrimExpr


def update_of(value: PrimExpr, target: BufferLoad, axes: Sequence[Axis]) -> Update | None:
    """The accumulation into `target` by storing `value` in each iteration of `axes`, or None.

    It is None for `and` and `or` if the operand may stop the program, as they short-circuit.
    """
    update = update_from(value, target)
    if update is None or update.combine not in ("and", "or"):
        return update
    return None if may_fail(update.operand, axes, ()) else update


def update_from(value: PrimExpr, target: BufferLoad) -> Update | None:
    """The operation in `value` that combines `target` with an operand without it, or None."""
    update = _update(value, target, {})
    if update is None or any(load is target for load in loads(update.operand)):
        return None
    return update


def _update(
    value: PrimExpr, target: BufferLoad, memo: dict[PrimExpr, Update | None]
) -> Update | None:
    """As `update_from`, memoised in `memo`, since an operand may be shared."""
    if value not in memo:
        memo[value] = _update_of_sides(value, target, memo)
    return memo[value]


def _update_of_sides(
    value: PrimExpr, target: BufferLoad, memo: dict[PrimExpr, Update | None]
) -> Update | None:
    sides = _sides(value)
    if sides is None:
        return None
    combine, left, right = sides
    if left is target:
        return Update(combine, _negated(right) if isinstance(value, Sub) else right)
    if right is target and not isinstance(value, Sub):
        return Update(combine, left)
    sub_update = _update(left, target, memo)
    if sub_update is not None and sub_update.combine == combine:
        return Update(combine, _with_operands(value, sub_update.operand, right))
    if isinstance(value, Sub):
        return None
    sub_update = _update(right, target, memo)
    if sub_update is not None and sub_update.combine == combine:
        return Update(combine, _with_operands(value, left, sub_update.operand))
    return None


def _sides(value: PrimExpr) -> tuple[Combine, PrimExpr, PrimExpr] | None:
    match value:
        case Min() | Max() if value.dtype.bits < 8 and not value.dtype.is_bool:
            # NumPy computes these in wider integers.
            return None
        case Add() | Sub() | Mul() | Min() | Max() | And() | Or():
            return _NODES[type(value)], value.a, value.b
        case Call(op=Op(name=name), args=(a, b)) if name in _CALLS:
            return _CALLS[name], a, b
        case _:
            return None


def _negated(value: PrimExpr) -> PrimExpr:
    return Sub(ops.const(0, value.dtype), value)


def _with_operands(value: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    if isinstance(value, Call):
        return Call(value.dtype, value.op, (left, right))
    node: type[PrimExpr] = type(value)
    return node(left, right)  # type: ignore[call-arg]
