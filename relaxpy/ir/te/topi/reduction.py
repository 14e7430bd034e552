"""Reductions along axes; floats narrower than float32 accumulate in it and are rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import elementwise
from relaxpy.ir.te.topi.shapes import Axes, normal_axes, product, ravel, reduced_sizes
from relaxpy.ir.te.topi.transform import reshape
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.ops import is_const

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "collapse_sum",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "variance",
]

REDUCE, REDUCE_INDEX = "comm_reduce", "comm_reduce_idx"


def least(dtype: DataType) -> PrimExpr:
    """Return the lower bound of the values of `dtype`."""
    if not intrin.has_infinity(dtype):
        return intrin.min_value(dtype)
    return tir.FloatImm(dtype, float("-inf"))


def greatest(dtype: DataType) -> PrimExpr:
    """Return the upper bound of the values of `dtype`."""
    if not intrin.has_infinity(dtype):
        return intrin.max_value(dtype)
    return tir.FloatImm(dtype, float("inf"))


_max = reduce.comm_reducer(lambda x, y: ops.maximum(x, y), least, "max")
_min = reduce.comm_reducer(lambda x, y: ops.minimum(x, y), greatest, "min")


def _reduce_axes(x: Tensor, axes: tuple[int, ...]) -> list[IterVar]:
    zero = [ops.const(0, x.shape[a].dtype) for a in axes]
    return [te.reduce_axis((z, x.shape[a]), f"k{a}") for a, z in zip(axes, zero, strict=True)]


def _source_index(
    x: Tensor,
    index: tuple[PrimExpr, ...],
    axes: tuple[int, ...],
    reduction_axes: list[IterVar],
    *,
    kept: tuple[int, ...],
) -> list[PrimExpr]:
    """Return the index into x for the result at `index`, which has the axes in `kept`, too."""
    result_axes = [a for a in range(x.ndim) if a not in axes or a in kept]
    outer = iter([i for a, i in zip(result_axes, index, strict=True) if a not in axes])
    reduced = iter(axis.var for axis in reduction_axes)
    return [next(reduced) if a in axes else next(outer) for a in range(x.ndim)]


def reduce_elements(
    reducer: Callable[..., Any],
    x: Tensor,
    axis: Axes,
    name: str,
    *,
    keepdims: bool | tuple[int, ...],
) -> Tensor:
    """Apply `reducer` along axes; along axes that are known to be empty, return its identity.

    The axes stay with size 1 if `keepdims` is set, or if they are in `keepdims`.
    """
    axes = normal_axes(axis, x.ndim)
    if not axes:
        return elementwise.map_elements(lambda v: v, x, name)
    reduction_axes = _reduce_axes(x, axes)
    empty = is_const(count(x, axes), 0)
    kept = _kept(axes, keepdims)

    def element(*index: PrimExpr) -> Any:
        source_index = _source_index(x, index, axes, reduction_axes, kept=kept)
        element_value = reducer(x(*source_index), axis=reduction_axes)
        return element_value.combiner.identity_element[0] if empty else element_value

    shape = reduced_sizes(x.shape, axes, kept=kept)
    return elementwise.computed(shape, element, name, REDUCE)


def _kept(axes: tuple[int, ...], keepdims: bool | tuple[int, ...]) -> tuple[int, ...]:
    """Return the reduced axes that stay, with size 1."""
    if isinstance(keepdims, tuple):
        return keepdims
    return axes if keepdims else ()


def sum(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum along axes in the datatype of `data`; for Booleans, whether any is true."""
    return _sum(data, axis, keepdims=keepdims)


def _sum(x: Tensor, axis: Axes, *, keepdims: bool | tuple[int, ...]) -> Tensor:
    return _accumulated(reduce.any if x.dtype.is_bool else reduce.sum, x, axis, keepdims=keepdims)


def _accumulated(
    reducer: Callable[..., Any], x: Tensor, axis: Axes, *, keepdims: bool | tuple[int, ...]
) -> Tensor:
    """Apply `reducer` along axes and round the result to the datatype of x."""
    wide = elementwise.as_dtype(x, elementwise.accumulator(x.dtype))
    result = reduce_elements(reducer, wide, axis, f"{x.name}_red", keepdims=keepdims)
    return elementwise.as_dtype(result, x.dtype)


def prod(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product along axes in the datatype of `data`; for Booleans, whether all are true."""
    return _accumulated(
        reduce.all if data.dtype.is_bool else reduce.prod, data, axis, keepdims=keepdims
    )


def max(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The maximum along axes; NaN if an element is NaN, -inf if there are no elements."""
    reducer = reduce.any if data.dtype.is_bool else _max
    return reduce_elements(reducer, data, axis, f"{data.name}_red", keepdims=keepdims)


def min(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The minimum along axes; NaN if an element is NaN, inf if there are no elements."""
    reducer = reduce.all if data.dtype.is_bool else _min
    return reduce_elements(reducer, data, axis, f"{data.name}_red", keepdims=keepdims)


def all(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """True where all Booleans along axes are true."""
    return reduce_elements(reduce.all, data, axis, f"{data.name}_red", keepdims=keepdims)


def any(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """True where any Boolean along axes is true."""
    return reduce_elements(reduce.any, data, axis, f"{data.name}_red", keepdims=keepdims)


def count(x: Tensor, axis: Axes) -> PrimExpr:
    """Return the number of elements that are reduced to one along axes."""
    return product([x.shape[a] for a in normal_axes(axis, x.ndim)])


def _divided(x: Tensor, by: PrimExpr) -> Tensor:
    """Return x / by; for floats, an empty sum divided by 0 is NaN."""
    name = "T_divide"
    if x.dtype.is_int:
        divisor = ops.cast_to(by, x.dtype)
        return elementwise.map_elements(lambda v: tir.Div(v, divisor), x, name)
    return elementwise.map_elements(lambda v: tir.Div(v, ops.cast_to(by, x.dtype)), x, name)


def mean(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean along axes; of integers, rounded toward zero."""
    wide = _for_means(data)
    return elementwise.as_dtype(_divided(sum(wide, axis, keepdims), count(data, axis)), data.dtype)


def _for_means(x: Tensor) -> Tensor:
    """Cast x to a datatype that can represent sums of its elements and their number."""
    if not x.dtype.is_int:
        return elementwise.as_dtype(x, elementwise.accumulator(x.dtype))
    return x if x.dtype.bits == INT64.bits else elementwise.cast(x, INT64)


def variance(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean square of the distances from the mean, along axes."""
    return elementwise.as_dtype(_variance(_for_means(data), axis, keepdims=keepdims), data.dtype)


def _variance(x: Tensor, axis: Axes, *, keepdims: bool) -> Tensor:
    distance = elementwise.subtract(x, mean(x, axis, keepdims=True))
    return mean(elementwise.multiply(distance, distance), axis, keepdims)


def std(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The square root of the variance, in the datatype of `data`."""
    root = elementwise.sqrt(_variance(_for_means(data), axis, keepdims=keepdims))
    return elementwise.as_dtype(root, data.dtype)


def _arg(
    reduction: Callable[..., Tensor],
    x: Tensor,
    axis: Axes,
    *,
    keepdims: bool,
    last: bool,
    dtype: str | None,
) -> Tensor:
    """Return the index of the first (or last) extreme element along axes, or of the first NaN.

    The result is -1 without elements, and has the datatype of the dimensions by default. The
    extreme of elements with a NaN is NaN.
    """
    dtype = dtype or ("int64" if INT64 in (n.dtype for n in x.shape) else "int32")
    if not x.ndim:
        return elementwise.full(x.shape, dtype, 0)
    if axis is None and x.ndim > 1:  # the index in row-major order
        flat = reshape(x, (product(x.shape),))
        source_index = _arg(reduction, flat, 0, keepdims=False, last=last, dtype=dtype)
        return reshape(source_index, (1,) * x.ndim) if keepdims else source_index
    best = reduction(x, axis, keepdims=True)
    axes = normal_axes(axis, x.ndim)
    kept = _kept(axes, keepdims)
    reduction_axes = _reduce_axes(x, axes)
    sizes = [x.shape[a] for a in axes]
    sentinel = ops.const(-1, dtype) if last else intrin.max_value(dtype)
    reducer = reduce.max if last else reduce.min

    def element(*index: PrimExpr) -> Any:
        source_index = _source_index(x, index, axes, reduction_axes, kept=kept)
        value = x(*source_index)
        extreme = best(
            *(ops.const(0, i.dtype) if a in axes else i for a, i in enumerate(source_index))
        )
        is_best = ops.compare(tir.EQ, value, extreme)
        if x.dtype.is_float:
            is_best = ops.any_of(is_best, intrin.isnan(value))
        position = ops.cast_to(ravel([axis.var for axis in reduction_axes], sizes), dtype)
        return reducer(tir.Select(is_best, position, sentinel), axis=reduction_axes)

    shape = reduced_sizes(x.shape, axes, kept=kept)
    result = elementwise.computed(shape, element, f"{x.name}_arg", REDUCE_INDEX)
    number = count(x, axes)
    if last or (isinstance(number, tir.IntImm) and number.value):
        return result
    minus_one = ops.const(-1, dtype)
    return elementwise.map_elements(
        lambda v: tir.Select(ops.compare(tir.EQ, v, sentinel), minus_one, v),
        result,
        f"{x.name}_arg",
    )


def argmax(
    data: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    select_last_index: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """The row-major index over the axes of the first (or last) maximum; NaN counts as maximum."""
    return _arg(max, data, axis, keepdims=keepdims, last=select_last_index, dtype=dtype)


def argmin(
    data: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    select_last_index: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """The row-major index over the axes of the first (or last) minimum; NaN counts as minimum."""
    return _arg(min, data, axis, keepdims=keepdims, last=select_last_index, dtype=dtype)


def collapse_sum(data: Tensor, target_shape: Sequence[PrimExpr | int]) -> Tensor:
    """The sum over the axes along which `target_shape` would be broadcast to the shape of data."""
    target = [ops.const(n, "int64") if isinstance(n, int) else n for n in target_shape]
    leading = data.ndim - len(target)
    stretched = tuple(
        axis + leading
        for axis, size in enumerate(target)
        if is_const(size, 1) and not is_const(data.shape[axis + leading], 1)
    )
    return _sum(data, (*range(leading), *stretched), keepdims=stretched)
