"""The values and outputs of array expressions while they are emitted."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import TypeAlias

from relaxpy.exec.numpy.emit.scope import intermediate, is_unspecified
from relaxpy.ir.arith.algebra.affine import IndexPoly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.support.dataclass import dataclass

Guards: TypeAlias = tuple[ast.expr, ...]
"""Conditions on iterations. Values in other iterations are unused and must not cause errors."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An array over `dims`, or a scalar; its `temporary` is free after its last use.

    A `plain` value is a Python number, which takes its datatype from the other operand.
    """

    node: ast.expr
    dims: frozenset[tir.Var]
    dtype: DataType
    temporary: str | None = None
    plain: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The array that the last operation of an expression writes.

    `reads` are the loads of the same memory: of the same elements, or None if there are others.
    Once these are evaluated, earlier operations may write to it, too.
    """

    node: ast.expr
    dims: frozenset[tir.Var]
    dtype: DataType
    reads: Sequence[BufferLoad] | None

    @property
    def free(self) -> bool:
        """True if no operand reads it."""
        return self.reads is not None and not self.reads


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A buffer of which only some rows are present: `size` of them from `start` along `axis`."""

    axis: int
    start: IndexPoly
    size: IndexPoly


def truth_of(expr: tir.PrimExpr) -> tir.PrimExpr | None:
    """The condition whose value, as 0 or 1, is `expr`; None if there is none."""
    match expr:
        case tir.Cast(value=condition) if condition.dtype.is_bool and not expr.dtype.is_bool:
            return condition
        case tir.Select(condition=condition, true_value=yes, false_value=no):
            pass
        case tir.Call(op=Op(name="tir.if_then_else"), args=(condition, yes, no)):
            pass
        case _:
            return None
    if _is_literal(yes, 1) and _is_literal(no, 0):
        return condition
    return tir.Not(condition) if _is_literal(yes, 0) and _is_literal(no, 1) else None


def converted_by_store(expr: tir.PrimExpr) -> tir.PrimExpr | None:
    """The expression that NumPy converts to `expr` while storing; None if there is none."""
    match expr:
        case tir.Cast(value=value, dtype=dtype) if step := intermediate(value.dtype, dtype):
            return None if is_unspecified(step, dtype) else tir.Cast(step, value)
        case tir.Cast(value=value, dtype=dtype) if value.dtype.bits >= 8 and dtype.bits >= 8:
            return None if is_unspecified(value.dtype, dtype) else value
        case _:
            return truth_of(expr)


def _is_literal(expr: tir.PrimExpr, value: int) -> bool:
    """True if `expr` is a literal number, a 0 being positive."""
    match expr:
        case tir.IntImm(value=number) | tir.FloatImm(value=number):
            is_negative = math.copysign(1, number) < 0
            return number == value and not is_negative and not expr.dtype.is_bool
        case _:
            return False


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """`operand` clamped to bounds, one of which may be missing."""

    operand: tir.PrimExpr
    low: tir.IntImm | tir.FloatImm | None
    high: tir.IntImm | tir.FloatImm | None


def limits_of(expr: tir.PrimExpr) -> Limits | None:
    """`expr` as an operand limited by literals, or None."""
    match expr:
        case (
            tir.Max(
                a=tir.Min(a=operand, b=(tir.IntImm() | tir.FloatImm()) as high),
                b=(tir.IntImm() | tir.FloatImm()) as low,
            )
            | tir.Min(
                a=tir.Max(a=operand, b=(tir.IntImm() | tir.FloatImm()) as low),
                b=(tir.IntImm() | tir.FloatImm()) as high,
            )
        ) if low.value <= high.value:
            return Limits(operand, low, high)
        case tir.Max(a=operand, b=(tir.IntImm() | tir.FloatImm()) as low) if not math.isnan(
            low.value
        ):
            return Limits(operand, low, None)
        case tir.Min(a=operand, b=(tir.IntImm() | tir.FloatImm()) as high) if not math.isnan(
            high.value
        ):
            return Limits(operand, None, high)
        case _:
            return None


def is_weak(dtype: DataType) -> bool:
    """True if a plain Python number takes this datatype from the other operand."""
    return dtype.numpy().isbuiltin == 1


def is_work(expr: tir.PrimExpr) -> bool:
    """True if a value is computed, and not only read."""
    return not isinstance(expr, (BufferLoad, tir.Var, tir.IntImm, tir.FloatImm))
