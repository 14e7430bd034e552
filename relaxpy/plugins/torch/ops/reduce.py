"""Reductions along axes and of segments: sum, max, min, moments, norms, cumulative sums, bits.

And operators that count: histograms, unique elements, nonzero positions, repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.te.text import T, kernel_text, variable
from relaxpy.ir.te.topi.elementwise import accumulator
from relaxpy.ir.tir.expr import Select
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import (
    Number,
    dtype_of,
    kernel,
    product,
    rank_of,
    scalar,
    shape_of,
)
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.elementwise import truth
from relaxpy.plugins.torch.registry import converter

Axes = int | Sequence[int] | None


def _reduction(op: Any) -> Callable[..., Expr]:
    def convert(
        cx: Context, x: Expr, axes: Axes = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Expr:
        y = cx.tensor(x, cx.result_dtype())
        result: Expr = op(y, cx.written_axes(axes), keepdim) if rank_of(x) else y
        return result

    return convert


converter("sum", "sum.dim_IntList")(_reduction(R.sum))
converter("mean", "mean.dim")(_reduction(R.mean))
converter("prod", "prod.dim_int")(_reduction(R.prod))


def _extreme(op: Any, among: Callable[[Context, Expr], Expr]) -> Callable[..., Expr]:
    """A converter for the max or min of the values that `among` makes of an operand."""

    def convert(cx: Context, x: Expr, axes: Axes = None, keepdim: bool = False) -> Expr:
        y = among(cx, x)
        if not rank_of(x):
            return y
        if dtype_of(y) != "bool":
            result: Expr = op(y, cx.written_axes(axes), keepdim)
            return result
        # The maximum of no elements is negative, the minimum positive.
        return R.greater(op(R.astype(y, "int8"), cx.written_axes(axes), keepdim), const(0, "int8"))

    return convert


def _itself(cx: Context, x: Expr) -> Expr:
    return x


converter("amax", "max")(_extreme(R.max, _itself))
converter("amin", "min")(_extreme(R.min, _itself))
converter("any", "any.dim", "any.dims", "_is_any_true")(_extreme(R.max, truth))
converter("all", "all.dim", "all.dims", "_is_all_true")(_extreme(R.min, truth))


@converter("argmax", "argmin")
def argmax(cx: Context, x: Expr, axis: int | None = None, keepdim: bool = False) -> Expr:
    op = R.argmax if "argmax" in str(cx.node.target) else R.argmin
    y = cx.tensor(x, "int8") if dtype_of(x) == "bool" else x
    if not rank_of(x):
        return const(0, "int64")
    return op(y, axis, keepdim)


@converter("max.dim", "min.dim")
def max_dim(cx: Context, x: Expr, axis: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    least = "min.dim" in str(cx.node.target)
    if not rank_of(x):
        return x, const(0, "int64")
    y = cx.tensor(x, "int8") if dtype_of(x) == "bool" else x
    at = cx.axis(axis, x)
    values = (R.min if least else R.max)(y, [at], keepdim)
    return values, (R.argmin if least else R.argmax)(y, at, keepdim)


def moments(
    cx: Context, x: Expr, axes: Axes, correction: float | None, keepdim: bool
) -> tuple[Expr, Expr]:
    """The variance of elements along axes, and their mean."""
    chosen, sizes = cx.axes(axes, x), shape_of(x)
    delta = 1.0 if correction is None else float(correction)
    centred = x - (R.mean(x, chosen, True) if chosen else x)
    squares = centred * centred
    above = R.sum(squares, chosen, keepdim) if chosen else squares
    count = cx.tensor(product([sizes[k] for k in chosen]), dtype_of(x))
    below = R.maximum(count - scalar(delta, x), scalar(0.0, x))
    return above / below, R.mean(x, chosen, keepdim) if chosen else x


@converter(
    *("var.correction", "std.correction", "var_mean.correction", "std_mean.correction"), wide=True
)
def variance(
    cx: Context, x: Expr, axes: Axes = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    name = str(cx.node.target)
    # The variance whose root is a number of float32 may be none.
    y = R.astype(x, "float64") if "std" in name else x
    result, mean = moments(cx, y, axes, correction, keepdim)
    result = R.sqrt(result) if "std" in name else result
    return (result, mean) if "_mean" in name else result


@converter("linalg_vector_norm", wide=True)
def vector_norm(
    cx: Context,
    x: Expr,
    order: float = 2,
    axes: Axes = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Expr:
    y = R.abs(cx.tensor(x, cx.result_dtype()))
    chosen = cx.axes(axes, x)
    if not chosen:
        return R.astype(R.not_equal(y, scalar(0.0, y)), dtype_of(y)) if order == 0 else y
    if order in (math.inf, -math.inf):
        return (R.max if order > 0 else R.min)(y, chosen, keepdim)
    if order == 0:
        return R.sum(R.astype(R.not_equal(y, scalar(0.0, y)), dtype_of(y)), chosen, keepdim)
    if order == 1:
        return R.sum(y, chosen, keepdim)
    if order == 2:
        return R.sqrt(R.sum(y * y, chosen, keepdim))
    powers = R.sum(y ** scalar(float(order), y), chosen, keepdim)
    return powers ** scalar(1.0 / float(order), y)


@converter("cumsum", "cumprod")
def cumsum(cx: Context, x: Expr, axis: int, *, dtype: Any = None) -> Expr:
    y = cx.tensor(x, cx.result_dtype())
    if not rank_of(x):
        return y
    op = R.cumsum if "cumsum" in str(cx.node.target) else R.cumprod
    return op(y, cx.axis(axis, x), dtype_of(y))


@converter("topk")
def topk(
    cx: Context, x: Expr, k: Any, axis: int = -1, largest: bool = True, is_sorted: bool = True
) -> Any:
    if not rank_of(x):
        return x, const(0, "int64")
    if not isinstance(k, int):
        values, indices = sort(cx, x, axis, largest)
        at = cx.axis(axis, x)
        return tuple(R.strided_slice(item, [at], [0], [k]) for item in (values, indices))
    both = cx.emit(R.topk(x, k, axis, "both", largest, "int64"))
    return both[0], both[1]


@converter("sort")
def sort(cx: Context, x: Expr, axis: int = -1, descending: bool = False) -> tuple[Expr, Expr]:
    if not rank_of(x):
        return x, const(0, "int64")
    y = cx.tensor(x, "int8") if dtype_of(x) == "bool" else x
    at = cx.axis(axis, x)
    order = cx.emit(R.argsort(y, at, descending, "int64"))
    return R.gather_elements(x, order, at), order


@converter("sort.stable")
def stable_sort(
    cx: Context, x: Expr, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Expr, Expr]:
    return sort(cx, x, dim, descending)


@converter("argsort")
def argsort(cx: Context, x: Expr, axis: int = -1, descending: bool = False) -> Expr:
    return sort(cx, x, axis, descending)[1]


@converter("argsort.stable")
def argsort_stable(cx: Context, x: Expr, *, stable: bool, dim: int, descending: bool) -> Expr:
    return sort(cx, x, dim, descending)[1]


_FIRST = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


@converter("segment_reduce", wide=True)
def segment_reduce(
    cx: Context,
    x: Expr,
    reduction: str,
    *,
    lengths: Expr | None = None,
    offsets: Expr | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Expr:
    at = cx.axis(axis, x)
    if offsets is None:
        assert lengths is not None
        sizes = [*tensors.shape_of(lengths)[:-1], 1]
        ends = R.cumsum(R.astype(lengths, "int64"), at)
        offsets = R.concat([R.zeros(tuple(sizes), "int64"), ends], at)
    sizes = tensors.shape_of(x)
    outer, inner = tensors.product(sizes[:at]), tensors.product(sizes[at + 1 :])
    edges = tensors.shape_of(cx.emit(offsets))[-1]
    count = cx.simplify(tensors.as_size(edges) - 1)
    data = cx.emit(tensors.reshaped(x, [outer, sizes[at], inner]))
    bounds = cx.emit(tensors.reshaped(cx.tensor(offsets, "int64"), [outer, edges]))
    first = _FIRST[reduction] if initial is None else float(initial)
    inputs = {"x": data, "bounds": bounds}
    outputs = {"out": ([outer, count, inner], tensors.dtype_of(x))}
    options = {"reduction": reduction, "first": first, "has_initial": initial is not None}
    (out,) = kernel(cx, "segment_reduce", outputs, inputs, _reduce_segments, **options)
    return tensors.reshaped(out, cx.result_shape())


@kernel_text
def _reduce_segments(
    x: Any, bounds: Any, out: Any, reduction: str, first: float, has_initial: bool
) -> None:
    for a, s, b in T.grid(*out.shape):
        begin, end = bounds[a, s], bounds[a, s + 1]
        total = variable(T.Cast(x.dtype, first))
        for i in T.serial(begin, end):
            value = x[a, i, b]
            total[0] = _combined(reduction, total[0], value)
        if reduction == "mean":
            # Without an initial value, the mean of nothing is NaN.
            count = T.max(end - begin, 1) if has_initial else end - begin
            total[0] /= T.Cast(x.dtype, count)
        out[a, s, b] = total[0]


def _combined(reduction: str, total: Number, value: Number) -> Number:
    """The value of a reduction after another value; NaN comes before all."""
    match reduction:
        case "sum" | "mean":
            return total + value
        case "prod":
            return total * value
        case _:
            better = value > total if reduction == "max" else value < total
            return Select(better | (value != value), value, total)


@converter("hash_tensor")
def hash_tensor(
    cx: Context, x: Expr, axes: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> Expr:
    """Bits of the elements as float64 or int64, with exclusive or."""
    dtype = tensors.dtype_of(x)
    wide = cx.tensor(x, "float64" if "float" in dtype else "int64")
    among = cx.axes(axes, x)
    kept = [k for k in range(tensors.rank_of(x)) if k not in among]
    sizes = tensors.shape_of(x)
    turned = R.permute_dims(wide, [*kept, *among]) if tensors.rank_of(x) else wide
    shape = [tensors.product([sizes[k] for k in kept]), tensors.product([sizes[k] for k in among])]
    rows = cx.emit(tensors.reshaped(turned, shape))
    outputs = {"out": (shape[:1], "uint64")}
    (out,) = kernel(cx, "hash_tensor", outputs, {"x": rows}, _combine_bits)
    return tensors.reshaped(out, cx.result_shape())


@kernel_text
def _combine_bits(x: Any, out: Any) -> None:
    for a in T.serial(x.shape[0]):
        out[a] = 0
        for i in T.serial(x.shape[1]):
            out[a] = out[a] ^ T.reinterpret("uint64", x[a, i])


def _whole(value: int) -> Expr:
    return const(value, "int64")


def _flat(x: Expr) -> Expr:
    return tensors.reshaped(x, [tensors.product(tensors.shape_of(x))])


def _tallied(
    cx: Context, bins: tensors.Size, places: Expr, dtype: str, weights: Expr | None = None
) -> Expr:
    """The number, or the sum of the weights, of the places that are each bin.

    Places beyond the last bin count nowhere.
    """
    wide = str(accumulator(DataType(dtype)))
    outputs = {"out": ([bins], wide)}
    (counted,) = kernel(cx, "tallied", outputs, {"places": places, "weights": weights}, _tally)
    return R.astype(counted, dtype)


@kernel_text
def _tally(places: Any, out: Any, weights: Any = None) -> None:
    for i in T.serial(out.shape[0]):
        out[i] = 0
    for i in T.serial(places.shape[0]):
        place = places[i].astype("int64")
        if place < out.shape[0]:
            out[place] += 1 if weights is None else weights[i].astype(out.dtype)


@converter("histc")
def histc(cx: Context, x: Expr, bins: int = 100, low: float = 0, high: float = 0) -> Expr:
    y = cx.emit(_flat(x if tensors.is_float(x) else R.astype(x, "float32")))
    if low == high:
        least, most = cx.emit(R.min(y)), cx.emit(R.max(y))
        same = R.equal(least, most)
        first = R.where(same, least - 1, least)
        last = R.where(same, most + 1, most)
    else:
        first, last = tensors.scalar(float(low), y), tensors.scalar(float(high), y)
    part = (y - first) / (last - first)
    place = R.astype(R.floor(part * tensors.scalar(float(bins), y)), "int64")
    inside = R.logical_and(first <= y, y <= last)
    place = R.where(inside, R.minimum(place, _whole(bins - 1)), _whole(bins))
    return _tallied(cx, bins, cx.emit(place), tensors.dtype_of(y))


def _edges(cx: Context, x: Expr, bins: int, low: float | None, high: float | None) -> Expr:
    """The edges of bins of one width, from the minimum to the maximum by default."""
    dtype = tensors.dtype_of(x)
    if low is None or high is None:
        known = 0 in tensors.shape_of(x)
        least, most = (0.0, 1.0) if known else (R.min(x), R.max(x))
        first, last = (cx.emit(cx.tensor(value, dtype)) for value in (least, most))
    else:
        first, last = (cx.emit(cx.tensor(float(value), dtype)) for value in (low, high))
    half = R.where(R.equal(first, last), const(0.5, dtype), const(0.0, dtype))
    first, last = cx.emit(first - half), cx.emit(last + half)
    numbers = R.arange(0, bins + 1, 1, "int64")
    step = cx.emit((last - first) / const(float(bins), dtype))
    ahead = first + R.astype(numbers, dtype) * step
    back = R.astype(_whole(bins) - numbers, dtype)
    behind = last - back * step
    return cx.emit(R.where(numbers < _whole((bins + 1) // 2), ahead, behind))


def _columns(cx: Context, x: Expr, count: int) -> list[Expr]:
    if count == 1:
        return [cx.emit(_flat(x))]
    rows = cx.emit(tensors.reshaped(x, [tensors.product(tensors.shape_of(x)[:-1]), count]))
    return [cx.emit(R.take(rows, const(k, "int64"), 1)) for k in range(count)]


def _histogram(
    cx: Context, columns: list[Expr], edges: Sequence[Expr], weight: Expr | None, density: bool
) -> Expr:
    """How many rows are in each bin; the last bin has its upper edge, too."""
    dtype = tensors.dtype_of(columns[0])
    bins = [cx.simplify(tensors.as_size(tensors.shape_of(edge)[0]) - 1) for edge in edges]
    place: Any = _whole(0)
    inside: Any = const(True, "bool")
    for x, edge, count in zip(columns, edges, bins, strict=True):
        ends = [R.take(edge, cx.tensor(end, "int64"), 0) for end in (0, count)]
        within = R.logical_and(ends[0] <= x, x <= ends[1])
        found = R.astype(R.bucketize(x, edge, right=True), "int64") - _whole(1)
        last = cx.tensor(cx.simplify(tensors.as_size(count) - 1), "int64")
        place = place * cx.tensor(count, "int64") + R.minimum(found, last)
        inside = R.logical_and(inside, within)
    total = tensors.product(bins)
    place = cx.emit(R.where(inside, place, cx.tensor(total, "int64")))
    amounts = None if weight is None else cx.emit(_flat(cx.tensor(weight, dtype)))
    counted = cx.emit(tensors.reshaped(_tallied(cx, total, place, dtype, amounts), bins))
    if density:
        counted = counted / R.sum(counted)
        for k, (edge, count) in enumerate(zip(edges, bins, strict=True)):
            widths = R.strided_slice(
                edge, [0], [1], [cx.simplify(tensors.as_size(count) + 1)]
            ) - R.strided_slice(edge, [0], [0], [count])
            shape = [count if axis == k else 1 for axis in range(len(bins))]
            counted = counted / tensors.reshaped(widths, shape)
    return counted


@converter("histogram")
def histogram(
    cx: Context,
    x: Expr,
    bins: Expr | int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Expr | None = None,
    density: bool = False,
) -> tuple[Expr, Expr]:
    columns = _columns(cx, x, 1)
    low, high = range or (None, None)
    edges = _edges(cx, columns[0], bins, low, high) if isinstance(bins, int) else bins
    return _histogram(cx, columns, [edges], weight, density), edges


@converter("_histogramdd_bin_edges")
def histogram_edges(
    cx: Context,
    x: Expr,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Expr | None = None,
    density: bool = False,
) -> list[Expr]:
    columns = _columns(cx, x, len(bins))
    ends: Sequence[float | None] = range or [None] * (2 * len(bins))
    pairs = zip(columns, bins, ends[::2], ends[1::2], strict=True)
    return [_edges(cx, *pair) for pair in pairs]


@converter("_histogramdd_from_bin_cts")
def histogram_of_bins(
    cx: Context,
    x: Expr,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Expr | None = None,
    density: bool = False,
) -> Expr:
    edges = histogram_edges(cx, x, bins, range=range)
    return _histogram(cx, _columns(cx, x, len(bins)), edges, weight, density)


@converter("_histogramdd_from_bin_tensors")
def histogram_of_edges(
    cx: Context, x: Expr, bins: Sequence[Expr], *, weight: Expr | None = None, density: bool = False
) -> Expr:
    return _histogram(cx, _columns(cx, x, len(bins)), bins, weight, density)


@converter("bincount")
def bincount(cx: Context, x: Expr, weights: Expr | None = None, least: int = 0) -> Expr:
    if tensors.shape_of(x) == [0]:
        return R.zeros((least,), cx.result_dtype())
    needed = R.maximum(R.astype(R.max(x), "int64") + _whole(1), _whole(least))
    bins = cx.number_of(cx.emit(needed), "bins")
    return _tallied(cx, bins, x, cx.result_dtype(), weights)


@converter("_unique2")
def unique(
    cx: Context, x: Expr, is_sorted: bool = True, inverse: bool = False, counts: bool = False
) -> tuple[Expr, ...]:
    values, places, numbers = _distinct(cx, _flat(x), 0, inverse, counts)
    return values, tensors.reshaped(places, tensors.shape_of(x)) if inverse else places, numbers


@converter("unique_dim")
def unique_along(
    cx: Context,
    x: Expr,
    axis: int,
    is_sorted: bool = True,
    inverse: bool = False,
    counts: bool = False,
) -> tuple[Expr, ...]:
    return _distinct(cx, x, cx.axis(axis, x), inverse, counts)


def _distinct(cx: Context, x: Expr, axis: int, inverse: bool, counts: bool) -> tuple[Expr, ...]:
    """Distinct parts along an axis and, if requested, the place of each part, and their counts."""
    found = cx.emit(R.unique(x, True, False, inverse, counts, axis))
    if not (inverse or counts):
        return found, *[R.zeros((0,), "int64")] * 2
    fields = iter(range(3))
    parts = (cx.builder.emit(found[next(fields)]) if k else None for k in (True, inverse, counts))
    return tuple(R.zeros((0,), "int64") if part is None else part for part in parts)


@converter("unique_consecutive")
def unique_consecutive(
    cx: Context, x: Expr, inverse: bool = False, counts: bool = False, axis: int | None = None
) -> tuple[Expr, ...]:
    y = cx.emit(_flat(x)) if axis is None or not tensors.rank_of(x) else x
    at = 0 if axis is None else cx.axis(axis, y)
    whole = tensors.shape_of(x) if axis is None else [tensors.shape_of(y)[at]]
    size = tensors.shape_of(y)[at]
    if size == 0:
        empty = R.zeros((0,), "int64")
        return y, tensors.reshaped(empty, whole), empty
    others = [k for k in range(tensors.rank_of(y)) if k != at]
    ahead = R.strided_slice(y, [at], [1], [size])
    behind = R.strided_slice(y, [at], [0], [cx.simplify(tensors.as_size(size) - 1)])
    differs = R.astype(R.not_equal(ahead, behind), "int64")
    if others:
        differs = R.minimum(R.sum(differs, others), _whole(1))
    steps = R.concat([R.zeros((1,), "int64"), differs], 0)
    place = cx.emit(R.cumsum(steps, 0))
    last = R.strided_slice(place, [0], [cx.simplify(tensors.as_size(size) - 1)], [size])
    count = cx.number_of(cx.emit(tensors.reshaped(last, []) + _whole(1)), "count")
    numbers = R.arange(0, size, 1, "int64")
    beyond = R.full((count,), cx.tensor(size, "int64"), "int64")
    first = R.scatter_elements(beyond, place, numbers, 0, "min")
    ones = R.ones((size,), "int64")
    often = R.scatter_elements(R.zeros((count,), "int64"), place, ones, 0, "add")
    return R.take(y, first, at), tensors.reshaped(place, whole), often


@converter("nonzero_static")
def nonzero_static(cx: Context, x: Expr, *, size: int, fill_value: int = -1) -> Expr:
    rank = tensors.rank_of(x)
    if not rank:
        return R.zeros((size, 0), "int64")
    mask = cx.emit(_flat(truth(cx, x)))
    (total,) = tensors.shape_of(mask)
    order = R.cumsum(R.astype(mask, "int64"), 0) - _whole(1)
    place = R.where(mask, R.minimum(order, _whole(size)), _whole(size))
    numbers = R.arange(0, total, 1, "int64")
    empty = R.full((size + 1,), _whole(-1), "int64")
    flat = cx.emit(R.strided_slice(R.scatter_elements(empty, place, numbers, 0), [0], [0], [size]))
    columns: list[Expr] = []
    rest: Any = flat
    for extent in reversed(tensors.shape_of(x)):
        whole = R.maximum(cx.tensor(extent, "int64"), _whole(1))
        columns.append(R.floor_mod(rest, whole))
        rest = rest // whole
    rows = R.stack(columns[::-1], 1)
    missing = R.expand_dims(flat, 1) < _whole(0)
    return R.where(missing, _whole(fill_value), rows)


@converter("repeat_interleave.Tensor")
def repeat_interleave(cx: Context, repeats: Expr, *, output_size: Any = None) -> Expr:
    ends = cx.emit(R.cumsum(R.astype(repeats, "int64"), 0))
    total = output_size
    if total is None:
        total = cx.number_of(cx.emit(R.sum(R.astype(repeats, "int64"))), "total")
    places = R.arange(0, total, 1, "int64")
    found = R.bucketize(places, ends, right=True)
    return R.astype(found, cx.result_dtype())
