"""Reductions, scans and sorting along axes."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import elementwise
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype
from relaxpy.ir.te.topi.indexing import load, loops, stored
from relaxpy.ir.te.topi.shapes import Axes, normal_axes, normal_axis, product, ravel, reduced_sizes
from relaxpy.ir.te.topi.transform import reshape
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.stmt import BufferStore, Stmt

__all__: list[str] = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "collapse_sum",
    "cumprod",
    "cumprod_grad",
    "cumsum",
    "linear_recurrence",
    "max",
    "mean",
    "min",
    "prod",
    "searchsorted",
    "sort",
    "std",
    "sum",
    "topk",
    "variance",
]

REDUCE, REDUCE_INDEX = "comm_reduce", "comm_reduce_idx"


def least(dtype: DataType) -> PrimExpr:
    """The lower bound of the values of `dtype`."""
    if not intrin.has_infinity(dtype):
        return intrin.min_value(dtype)
    return tir.FloatImm(dtype, float("-inf"))


def greatest(dtype: DataType) -> PrimExpr:
    """The upper bound of the values of `dtype`."""
    if not intrin.has_infinity(dtype):
        return intrin.max_value(dtype)
    return tir.FloatImm(dtype, float("inf"))


max_reducer = reduce.comm_reducer(lambda x, y: ops.maximum(x, y), least, "max")
min_reducer = reduce.comm_reducer(lambda x, y: ops.minimum(x, y), greatest, "min")


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
    """The index into x for the result at `index`, which has the axes in `kept`, too."""
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
    empty = ops.is_const(count(x, axes), 0)
    kept = _kept(axes, keepdims)

    def element(*index: PrimExpr) -> Any:
        source_index = _source_index(x, index, axes, reduction_axes, kept=kept)
        element_value = reducer(x(*source_index), axis=reduction_axes)
        return element_value.combiner.identity_element[0] if empty else element_value

    shape = reduced_sizes(x.shape, axes, kept=kept)
    return elementwise.computed(shape, element, name, REDUCE)


def _kept(axes: tuple[int, ...], keepdims: bool | tuple[int, ...]) -> tuple[int, ...]:
    """The reduced axes that stay, with size 1."""
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
    reducer = reduce.any if data.dtype.is_bool else max_reducer
    return reduce_elements(reducer, data, axis, f"{data.name}_red", keepdims=keepdims)


def min(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The minimum along axes; NaN if an element is NaN, inf if there are no elements."""
    reducer = reduce.all if data.dtype.is_bool else min_reducer
    return reduce_elements(reducer, data, axis, f"{data.name}_red", keepdims=keepdims)


def all(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """True where all Booleans along axes are true."""
    return reduce_elements(reduce.all, data, axis, f"{data.name}_red", keepdims=keepdims)


def any(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """True where any Boolean along axes is true."""
    return reduce_elements(reduce.any, data, axis, f"{data.name}_red", keepdims=keepdims)


def count(x: Tensor, axis: Axes) -> PrimExpr:
    """The number of elements that are reduced to one along axes."""
    return product([x.shape[a] for a in normal_axes(axis, x.ndim)])


def _divided(x: Tensor, by: PrimExpr) -> Tensor:
    """x / by; for floats, an empty sum divided by 0 is NaN."""
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
    """The index of the first (or last) extreme element along axes, or of the first NaN.

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
        if ops.is_const(size, 1) and not ops.is_const(data.shape[axis + leading], 1)
    )
    return _sum(data, (*range(leading), *stretched), keepdims=stretched)


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
            previous[position] = index[position] - one
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
            here = at(size - one - k) if transposed else index
            before = at(size - k if transposed else k - one)
            term = before if exclusive else here
            factor = before if transposed else term
            first = ops.const(0, wide) if exclusive else load(ins[1], term)
            rest = load(ins[0], factor) * load(out, before)
            is_first = ops.compare(tir.EQ, k, ops.const(0, one.dtype))
            value = intrin.if_then_else(is_first, first, load(ins[1], term) + rest)
            return BufferStore(out, value, tuple(here))

        return loops(terms.shape, body)

    operands = [as_dtype(factors, wide), as_dtype(terms, wide)]
    total = stored(terms.shape, str(wide), operands, "linear_recurrence", store)
    return as_dtype(total, terms.dtype)


def _filled(
    shapes: Sequence[Sequence[PrimExpr]],
    dtypes: Sequence[str],
    inputs: Sequence[Tensor],
    function: str,
    *options: int,
) -> list[Tensor]:
    """The tensors that a packed function fills; it takes the inputs, the outputs and options."""
    outputs = te.extern(
        [tuple(shape) for shape in shapes],
        list(inputs),
        lambda ins, outs: intrin.call_packed(f"tvm.contrib.sort.{function}", *ins, *outs, *options),
        f"{function}_cpu",
        list(dtypes),
    )
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def sort(data: Tensor, axis: int = -1, is_ascend: int = 1) -> Tensor:
    """The elements in order along an axis; NaN counts as greater than any number."""
    axis = normal_axis(axis, data.ndim)
    return _filled([data.shape], [str(data.dtype)], [data], "sort", axis, int(is_ascend))[0]


def argsort(
    data: Tensor,
    valid_count: Tensor | None = None,
    axis: int = -1,
    is_ascend: int = 1,
    dtype: str = "float32",
) -> Tensor:
    """The indices that sort the elements along an axis; equal elements keep their order.

    With `valid_count`, only the first `valid_count` elements of each line are sorted.
    """
    axis, options = normal_axis(axis, data.ndim), (int(is_ascend),)
    if valid_count is None:
        return _filled([data.shape], [dtype], [data], "argsort", axis, *options)[0]
    inputs = [data, valid_count]
    return _filled([data.shape], [dtype], inputs, "argsort_nms", axis, *options)[0]


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int64",
) -> Tensor | list[Tensor]:
    """The first k elements in order along an axis, and their indices; all if k is not positive.

    Errors:
        MisuseError: `ret_type` is not "both", "values" or "indices".
    """
    if ret_type not in ("both", "values", "indices"):
        raise unexpected(ret_type, "topk: ret_type is 'both', 'values' or 'indices'")
    axis = normal_axis(axis, data.ndim)
    sizes = list(data.shape)
    if k > 0:
        size = sizes[axis]
        count = builtins.min(size.value, k) if isinstance(size, tir.IntImm) else k
        sizes[axis] = ops.const(count, "int64")
    dtypes = {"values": str(data.dtype), "indices": dtype}
    out_dtypes = list(dtypes.values()) if ret_type == "both" else [dtypes[ret_type]]
    function = "topk" if ret_type == "both" else f"topk_{ret_type}"
    outputs = _filled([sizes] * len(out_dtypes), out_dtypes, [data], function, axis, int(is_ascend))
    return outputs if ret_type == "both" else outputs[0]


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, out_dtype: str = "int64"
) -> Tensor:
    """For each value, the number of elements of a sequence below it; with `right`, not above it.

    The sequence is ascending along its last axis: one vector for all values, or one for each of
    their lines.

    Errors:
        MisuseError: the ranks differ, and the sequence is not a vector.
    """
    if sorted_sequence.ndim not in (1, values.ndim):
        raise MisuseError(
            f"searchsorted takes a vector or a sequence for each line of values, found ranks "
            f"{sorted_sequence.ndim} and {values.ndim}"
        )
    inputs = [sorted_sequence, values]
    return _filled([values.shape], [out_dtype], inputs, "searchsorted", int(right))[0]
