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

__all__ = ["cumprod", "cumprod_grad", "cumsum", "linear_recurrence"]

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
    """The gradient of data in `cumprod` along an axis, exact where elements are 0.

    It is the product of all elements before one, times s, where s[k] = g[k] + x[k + 1] * s[k + 1].
    """
    wide = accumulator(data.dtype)
    x, g = as_dtype(data, wide), as_dtype(output_grad, wide)
    later = linear_recurrence(x, g, axis, transposed=True, exclusive=exclusive)
    before = cumprod(x, axis, exclusive=True)
    return as_dtype(later * before, data.dtype)


def linear_recurrence(
    factors: Tensor, terms: Tensor, axis: int, transposed: bool = False, exclusive: bool = False
) -> Tensor:
    """y[k] = terms[k] + factors[k] * y[k - 1] along an axis, y[-1] being 0.

    With `transposed`, y[k] = terms[k] + factors[k + 1] * y[k + 1]. With `exclusive`, the result is
    y[k - 1] in position k; of a transposed recurrence, y for terms[k + 1] instead of terms[k].
    """
    axis = normal_axis(axis, terms.ndim)
    wide = accumulator(terms.dtype)
    size = terms.shape[axis]
    one = ops.const(1, size.dtype)

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def body(index: list[PrimExpr]) -> Stmt:
            def at(position: PrimExpr) -> list[PrimExpr]:
                return [*index[:axis], position, *index[axis + 1 :]]

            k = index[axis]
            here = at(ops.sub(ops.sub(size, one), k)) if transposed else index
            before = at(ops.sub(size, k) if transposed else ops.sub(k, one))
            term = before if exclusive else here
            factor = before if transposed else term
            first = ops.const(0, wide) if exclusive else load(ins[1], term)
            rest = ops.mul(load(ins[0], factor), load(out, before))
            is_first = ops.compare(tir.EQ, k, ops.const(0, one.dtype))
            value = intrin.if_then_else(is_first, first, ops.add(load(ins[1], term), rest))
            return BufferStore(out, value, tuple(here))

        return loops(terms.shape, body)

    operands = [as_dtype(factors, wide), as_dtype(terms, wide)]
    total = stored(terms.shape, str(wide), operands, "linear_recurrence", store)
    return as_dtype(total, terms.dtype)
