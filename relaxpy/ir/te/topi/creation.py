"""Tensors that are computed from their indices alone."""

from __future__ import annotations

import math

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, computed
from relaxpy.ir.te.topi.shapes import Refuse, as_sizes, tidy
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr

__all__ = ["arange", "eye", "hamming_window"]


def eye(n: ExprLike, m: ExprLike | None = None, k: ExprLike = 0, dtype: str = "float32") -> Tensor:
    """1 on diagonal k of a matrix of n rows and m columns, by default n, and 0 elsewhere."""
    offset = ops.cast_to(ops.convert(k), "int64")

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        row, column = ops.cast_to(i, "int64"), ops.cast_to(j, "int64")
        is_diagonal = ops.compare(tir.EQ, row, ops.sub(column, offset))
        return intrin.if_then_else(is_diagonal, ops.const(1, dtype), ops.const(0, dtype))

    return computed(as_sizes((n, n if m is None else m)), element, "eye")


def hamming_window(
    window_size: ExprLike, periodic: ExprLike, alpha: ExprLike, beta: ExprLike, dtype: str
) -> Tensor:
    """The window alpha - beta * cos(2 * pi * i / n); n is its size, one less unless `periodic`.

    A window of size 1 is 1. Values of half precision are computed in single precision.
    """
    wide = accumulator(DataType(dtype))
    size = ops.cast_to(ops.convert(window_size), "int64")
    is_periodic = ops.cast_to(ops.convert(periodic), "bool")
    period = tir.Select(is_periodic, size, ops.sub(size, ops.const(1, "int64")))
    low, swing = (ops.cast_to(ops.convert(v), wide) for v in (alpha, beta))
    single = ops.compare(tir.EQ, size, ops.const(1, "int64"))

    def element(i: PrimExpr) -> PrimExpr:
        share = ops.div(ops.cast_to(i, wide), ops.cast_to(period, wide))
        wave = intrin.cos(ops.mul(ops.const(2 * math.pi, wide), share))
        value = ops.sub(low, ops.mul(swing, wave))
        return ops.cast_to(tir.Select(single, ops.const(1, wide), value), dtype)

    return computed((size,), element, "hamming_window")


def range_length(
    start: PrimExpr, end: PrimExpr, step: PrimExpr, refuse: Refuse = MisuseError
) -> PrimExpr:
    """The number of elements start, start + step, … before `end`.

    Errors:
        MisuseError, or the error of `refuse`: the step is 0, or one of the three is not finite.
    """
    if isinstance(step, (tir.IntImm, tir.FloatImm)) and step.value == 0:
        raise refuse("step is other than 0", about=step)
    zero = ops.const(0, INT64)
    if all(v.dtype.is_int for v in (start, end, step)):
        first, last, by = (ops.cast_to(v, INT64) for v in (start, end, step))
        if isinstance(by, tir.IntImm) and by.value < 0:
            first, last, by = last, first, ops.const(-by.value, INT64)
        if not isinstance(by, tir.IntImm):  # which may be negative
            return simplify(ops.sub(zero, ops.floordiv(ops.sub(first, last), by)))
        rounded = ops.sub(ops.add(last, ops.const(by.value - 1, INT64)), first)
        length = tidy(ops.floordiv(rounded, by))
        return ops.maximum(length, zero) if isinstance(length, tir.IntImm) else length
    first, last, by = (ops.cast_to(v, "float64") for v in (start, end, step))
    for value in (first, last, by):
        if isinstance(value, tir.FloatImm) and not math.isfinite(value.value):
            raise refuse(f"start, end and step are finite, found {value.value}", about=value)
    if all(isinstance(v, tir.FloatImm) for v in (first, last, by)):
        exact = math.ceil((last.value - first.value) / by.value)  # type: ignore[attr-defined]
        return ops.const(max(0, exact), INT64)
    return ops.cast_to(intrin.ceil(ops.div(ops.sub(last, first), by)), INT64)


def arange(
    start: ExprLike,
    stop: ExprLike | None = None,
    step: ExprLike = 1,
    dtype: str = "float32",
    length: PrimExpr | None = None,
) -> Tensor:
    """The sequence start, start + step, … before `stop`, or its first `length` elements.

    Without `stop`, it begins at 0 and ends before `start`.

    Errors:
        MisuseError: the step is 0, or a bound is not finite.
    """
    first, last = (0, start) if stop is None else (start, stop)
    begin, end, by = map(ops.convert, (first, last, step))
    size = range_length(begin, end, by) if length is None else length
    return computed(
        (size,), lambda i: ops.cast_to(ops.add(begin, ops.mul(by, i)), dtype), "T_arange"
    )
