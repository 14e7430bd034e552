"""Tensors that are computed from their indices alone."""

from __future__ import annotations

import math

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, computed
from relaxpy.ir.te.topi.shapes import as_sizes
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr

__all__ = ["arange", "eye", "hamming_window"]


def eye(
    n: ExprLike,
    m: ExprLike | None = None,
    k: ExprLike = 0,
    dtype: str = "float32",
) -> Tensor:
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


def arange(start: ExprLike, stop: ExprLike, step: ExprLike, dtype: str, length: PrimExpr) -> Tensor:
    """Return the first `length` elements of the sequence start, start + step, …, in `dtype`."""
    first, by = ops.convert(start), ops.convert(step)
    return computed(
        (length,), lambda i: ops.cast_to(ops.add(first, ops.mul(by, i)), dtype), "T_arange"
    )
