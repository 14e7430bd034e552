"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype
from relaxpy.ir.te.topi.indexing import load, loops, stored
from relaxpy.ir.te.topi.shapes import normal_axis, product
from relaxpy.ir.te.topi.transform import reshape
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.stmt import BufferStore, Stmt

__all__ = ["cumprod", "cumprod_grad", "cumsum"]

Combine: TypeAlias = Callable[[PrimExpr, PrimExpr], PrimExpr]


def _scan(
    data: Tensor,
    axis: int | None,
    dtype: str | None,
    combine: Combine,
    start: int,
    name: str,
    *,
    exclusive: bool,
) -> Tensor:
    """Combine each element with all earlier ones along an axis, by default in row-major order."""
    if axis is None:
        data, axis = reshape(data, [product(data.shape)]), 0
    position = normal_axis(axis, data.ndim)
    target = DataType(dtype) if dtype else data.dtype
    wide = accumulator(target)
    wide_data = as_dtype(data, wide)
    one = ops.const(1, data.shape[position].dtype)

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def body(index: list[PrimExpr]) -> Stmt:
            previous = list(index)
            previous[position] = ops.sub(index[position], one)
            is_first = ops.compare(tir.EQ, index[position], ops.const(0, one.dtype))
            term = load(ins[0], previous if exclusive else index)
            first = ops.const(start, wide) if exclusive else load(ins[0], index)
            value = intrin.if_then_else(is_first, first, combine(load(out, previous), term))
            return BufferStore(out, value, tuple(index))

        return loops(data.shape, body)

    return as_dtype(stored(data.shape, str(wide), [wide_data], name, store), target)


def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool = False
) -> Tensor:
    """The sum of the elements up to each one along an axis; `exclusive` excludes the element.

    Without an axis, the elements are summed in row-major order. Floats narrower than float32 are
    added in float32, and each sum is rounded once.
    """
    return _scan(data, axis, dtype, ops.add, 0, "cumsum_generic", exclusive=exclusive)


def cumprod(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool = False
) -> Tensor:
    """As `cumsum`, the product of the elements."""
    return _scan(data, axis, dtype, ops.mul, 1, "cumprod_generic", exclusive=exclusive)


def cumprod_grad(output_grad: Tensor, data: Tensor, axis: int, exclusive: bool) -> Tensor:
    """The gradient of data in `cumprod` along an axis, also where elements are 0.

    It is the product of all elements before one, times s, where s[k] = g[k] + x[k + 1] * s[k + 1].
    """
    axis = normal_axis(axis, data.ndim)
    wide = accumulator(data.dtype)
    x, g = as_dtype(data, wide), as_dtype(output_grad, wide)
    one = ops.const(1, data.shape[axis].dtype)

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def body(index: list[PrimExpr]) -> Stmt:
            current, after = list(index), list(index)
            current[axis] = ops.sub(ops.sub(data.shape[axis], one), index[axis])
            after[axis] = ops.sub(data.shape[axis], index[axis])
            is_last = ops.compare(tir.EQ, index[axis], ops.const(0, one.dtype))
            chained = ops.mul(load(ins[1], after), load(out, after))
            if exclusive:
                value = intrin.if_then_else(
                    is_last, ops.const(0, wide), ops.add(load(ins[0], after), chained)
                )
            else:
                gradient = load(ins[0], current)
                value = intrin.if_then_else(is_last, gradient, ops.add(gradient, chained))
            return BufferStore(out, value, tuple(current))

        return loops(data.shape, body)

    later = stored(data.shape, str(wide), [g, x], "cumprod_backward", store)
    before = cumprod(x, axis, exclusive=True)
    return as_dtype(later * before, data.dtype)
