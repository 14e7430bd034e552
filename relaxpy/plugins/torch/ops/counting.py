"""Operators that count: histograms, unique elements, nonzero positions, repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.elementwise import truth
from relaxpy.plugins.torch.ops.indexing import from_front
from relaxpy.plugins.torch.registry import converter


def _whole(value: int) -> Expr:
    return const(value, "int64")


def _flat(x: Expr) -> Expr:
    return tensors.reshaped(x, [tensors.product(tensors.shape_of(x))])


def _tallied(cx: Context, bins: tensors.Size, places: Expr, amounts: Expr) -> Expr:
    """The sums of the amounts in each bin; places beyond the last bin count nowhere."""
    empty = R.zeros((cx.simplify(tensors.as_size(bins) + 1),), tensors.dtype_of(amounts))
    kept = R.minimum(places, cx.tensor(bins, "int64"))
    return R.strided_slice(R.scatter_elements(empty, kept, amounts, 0, "add"), [0], [0], [bins])


@converter("histc")
def histc(cx: Context, x: Expr, bins: int = 100, low: float = 0, high: float = 0) -> Expr:
    y = cx.emit(_flat(x if tensors.is_float(x) else R.astype(x, "float32")))
    if low == high:
        least, most = cx.emit(R.min(y)), cx.emit(R.max(y))
        same = R.equal(least, most)
        first = R.where(same, R.subtract(least, tensors.scalar(1.0, y)), least)
        last = R.where(same, R.add(most, tensors.scalar(1.0, y)), most)
    else:
        first, last = tensors.scalar(float(low), y), tensors.scalar(float(high), y)
    part = R.divide(R.subtract(y, first), R.subtract(last, first))
    place = R.astype(R.floor(R.multiply(part, tensors.scalar(float(bins), y))), "int64")
    inside = R.logical_and(R.less_equal(first, y), R.less_equal(y, last))
    place = R.where(inside, R.minimum(place, _whole(bins - 1)), _whole(bins))
    return _tallied(cx, bins, place, R.ones(tuple(tensors.shape_of(y)), tensors.dtype_of(y)))


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
    first, last = cx.emit(R.subtract(first, half)), cx.emit(R.add(last, half))
    numbers = R.arange(0, bins + 1, 1, "int64")
    step = cx.emit(R.divide(R.subtract(last, first), const(float(bins), dtype)))
    ahead = R.add(first, R.multiply(R.astype(numbers, dtype), step))
    back = R.astype(R.subtract(_whole(bins), numbers), dtype)
    behind = R.subtract(last, R.multiply(back, step))
    return cx.emit(R.where(R.less(numbers, _whole((bins + 1) // 2)), ahead, behind))


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
        within = R.logical_and(R.less_equal(ends[0], x), R.less_equal(x, ends[1]))
        found = R.subtract(R.astype(R.bucketize(x, edge, right=True), "int64"), _whole(1))
        last = cx.tensor(cx.simplify(tensors.as_size(count) - 1), "int64")
        place = R.add(R.multiply(place, cx.tensor(count, "int64")), R.minimum(found, last))
        inside = R.logical_and(inside, within)
    total = tensors.product(bins)
    place = cx.emit(R.where(inside, place, cx.tensor(total, "int64")))
    rows = tuple(tensors.shape_of(columns[0]))
    amounts = R.ones(rows, dtype) if weight is None else _flat(cx.tensor(weight, dtype))
    counted = cx.emit(tensors.reshaped(_tallied(cx, total, place, amounts), bins))
    if density:
        counted = R.divide(counted, R.sum(counted))
        for k, (edge, count) in enumerate(zip(edges, bins, strict=True)):
            widths = R.subtract(
                R.strided_slice(edge, [0], [1], [cx.simplify(tensors.as_size(count) + 1)]),
                R.strided_slice(edge, [0], [0], [count]),
            )
            shape = [count if axis == k else 1 for axis in range(len(bins))]
            counted = R.divide(counted, tensors.reshaped(widths, shape))
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
    places = R.astype(x, "int64")
    if tensors.shape_of(x) == [0]:
        return R.zeros((least,), cx.result_dtype())
    needed = R.maximum(R.add(R.max(places), _whole(1)), _whole(least))
    bins = cx.number_of(cx.emit(needed), "bins")
    dtype = cx.result_dtype()
    amounts = (
        R.ones(tuple(tensors.shape_of(x)), dtype) if weights is None else R.astype(weights, dtype)
    )
    return _tallied(cx, bins, from_front(cx, cx.emit(places), bins), amounts)


@converter("_unique2")
def unique(
    cx: Context, x: Expr, is_sorted: bool = True, inverse: bool = False, counts: bool = False
) -> tuple[Expr, ...]:
    values, places, numbers = _distinct(cx, _flat(x), 0)
    return values, tensors.reshaped(places, tensors.shape_of(x)), numbers


@converter("unique_dim")
def unique_along(
    cx: Context,
    x: Expr,
    axis: int,
    is_sorted: bool = True,
    inverse: bool = False,
    counts: bool = False,
) -> tuple[Expr, ...]:
    return _distinct(cx, x, cx.axis(axis, x))


def _distinct(cx: Context, x: Expr, axis: int) -> tuple[Expr, ...]:
    """Distinct parts along an axis, where each part is among them, and how often each occurs."""
    found = cx.emit(R.unique(x, True, False, True, True, axis))
    parts = [cx.builder.emit(found[k]) for k in range(3)]
    return tuple(R.astype(part, "int64") if k else part for k, part in enumerate(parts))


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
    count = cx.number_of(cx.emit(R.add(tensors.reshaped(last, []), _whole(1))), "count")
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
    order = R.subtract(R.cumsum(R.astype(mask, "int64"), 0), _whole(1))
    place = R.where(mask, R.minimum(order, _whole(size)), _whole(size))
    numbers = R.arange(0, total, 1, "int64")
    empty = R.full((size + 1,), _whole(-1), "int64")
    flat = cx.emit(R.strided_slice(R.scatter_elements(empty, place, numbers, 0), [0], [0], [size]))
    columns: list[Expr] = []
    rest: Any = flat
    for extent in reversed(tensors.shape_of(x)):
        whole = R.maximum(cx.tensor(extent, "int64"), _whole(1))
        columns.append(R.floor_mod(rest, whole))
        rest = R.floor_divide(rest, whole)
    rows = R.stack(columns[::-1], 1)
    missing = R.less(R.expand_dims(flat, 1), _whole(0))
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
