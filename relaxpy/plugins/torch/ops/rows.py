"""Choices among the elements along an axis, and sums of elements by places."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, TupleGetItem, const
from relaxpy.ir.te.text import T, kernel_text, variable
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.intrin import isnan
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import Number, kernel
from relaxpy.plugins.torch.complexes import Complex, complex_converter
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.indexing import along_axis, scattered
from relaxpy.plugins.torch.registry import converter


@converter("cummax", "cummin")
def cummax(cx: Context, x: Expr, axis: int) -> tuple[Expr, Expr]:
    if not tensors.rank_of(x):
        return x, const(0, "int64")
    greatest = "cummax" in str(cx.node.target)
    at = cx.axis(axis, x)
    y = cx.tensor(x, "int8") if tensors.dtype_of(x) == "bool" else x
    outputs = {"values": (tensors.shape_of(x), tensors.dtype_of(y))}
    outputs["places"] = tensors.shape_of(x), "int64"
    name = "cummax" if greatest else "cummin"
    values, places = kernel(cx, name, outputs, {"x": y}, _scan, at=at, greatest=greatest)
    return cx.tensor(values, tensors.dtype_of(x)), places


@kernel_text
def _scan(x: Any, values: Any, places: Any, at: int, greatest: bool) -> None:
    """Two scans: a place is the last one so far at which the value was replaced."""
    extreme = T.max if greatest else T.min
    for (*index,) in T.grid(*x.shape):
        before = T.meta_var((*index[:at], index[at] - 1, *index[at + 1 :]))
        value = T.meta_var(extreme(values[before], x[*index]))
        values[*index] = T.if_then_else(index[at] == 0, x[*index], value)
    for (*index,) in T.grid(*x.shape):
        before = T.meta_var((*index[:at], index[at] - 1, *index[at + 1 :]))
        new, old = T.meta_var((x[*index], values[before]))
        is_better = T.meta_var(new >= old if greatest else new <= old)
        is_new = T.meta_var(is_better | T.isnan(new) if x.dtype.is_float else is_better)
        place = T.meta_var(T.max(places[before], T.Select(is_new, index[at], T.int64(0))))
        places[*index] = T.if_then_else(index[at] == 0, T.int64(0), place)


@converter("logcumsumexp")
def logcumsumexp(cx: Context, x: Expr, axis: int) -> Expr:
    if not tensors.rank_of(x):
        return x
    at = cx.axis(axis, x)
    sizes = tensors.shape_of(x)
    shape = [tensors.product(sizes[:at]), sizes[at], tensors.product(sizes[at + 1 :])]
    blocks = cx.emit(tensors.reshaped(cx.tensor(x, "float64"), shape))
    outputs = {"out": (shape, "float64")}
    (found,) = kernel(cx, "logcumsumexp", outputs, {"x": blocks}, _logcumsumexp)
    return R.astype(tensors.reshaped(found, sizes), tensors.dtype_of(x))


@kernel_text
def _logcumsumexp(x: Any, out: Any) -> None:
    for a, b in T.grid(x.shape[0], x.shape[2]):
        top, total = variable(T.float64(-math.inf)), variable(T.float64(0))
        for i in T.serial(x.shape[1]):
            value = x[a, i, b]
            if value > top[0]:
                total[0] = total[0] * T.exp(top[0] - value) + 1.0
                top[0] = value
            # The sum of infinities is infinite: their difference is none.
            elif (value != -math.inf) & (value != math.inf):
                total[0] += T.exp(value - top[0])
            out[a, i, b] = top[0] + T.log(total[0])


@complex_converter("logcumsumexp")
def complex_logcumsumexp(cx: Context, z: Complex, axis: int) -> Complex:
    """log(cumsum(exp(z))) in float64; each step factors out the operand of greater real part."""
    if not tensors.rank_of(z.re):
        return z
    at = cx.axis(axis, z.re)
    sizes = tensors.shape_of(z.re)
    shape = [tensors.product(sizes[:at]), sizes[at], tensors.product(sizes[at + 1 :])]
    parts = [cx.emit(tensors.reshaped(cx.tensor(part, "float64"), shape)) for part in (z.re, z.im)]
    inputs = dict(zip(("x", "y"), parts, strict=True))
    outputs = dict.fromkeys(("re", "im"), (shape, "float64"))
    found = kernel(cx, "logcumsumexp", outputs, inputs, _complex_logcumsumexp)
    return Complex(
        *(R.astype(tensors.reshaped(part, sizes), tensors.dtype_of(z.re)) for part in found)
    )


@kernel_text
def _complex_logcumsumexp(x: Any, y: Any, re: Any, im: Any) -> None:
    for a, b in T.grid(x.shape[0], x.shape[2]):
        size, angle = variable(T.float64(-math.inf)), variable(T.float64(0))
        for i in T.serial(x.shape[1]):
            new, old = (x[a, i, b], y[a, i, b]), (size[0], angle[0])
            is_less = new[0] < old[0]
            low, low_angle = T.Select(is_less, new[0], old[0]), T.Select(is_less, new[1], old[1])
            high, high_angle = T.Select(is_less, old[0], new[0]), T.Select(is_less, old[1], new[1])
            ratio, turned = T.exp(low - high), low_angle - high_angle
            one, other = ratio * T.cos(turned) + 1.0, ratio * T.sin(turned)
            added = T.log(one * one + other * other) * 0.5
            both = (low == high) & (low == -math.inf)
            size[0] = T.Select(both, low, high + added)
            angle[0] = T.Select(both, low_angle, high_angle + T.atan2(other, one))
            re[a, i, b] = size[0]
            im[a, i, b] = angle[0]


def _nth(cx: Context, x: Expr, axis: int, keepdim: bool, n: Expr) -> tuple[Expr, Expr]:
    """The element at a position in order along an axis, and its index."""
    y = cx.tensor(x, "int8") if tensors.dtype_of(x) == "bool" else x
    return _at(x, axis, keepdim, cx.emit(R.nth_index(y, n, axis)))


def _at(x: Expr, axis: int, keepdim: bool, index: Expr) -> tuple[Expr, Expr]:
    """The element at an index along an axis, which alone has the gradient, and this index."""
    value = R.gather_elements(x, index, axis)
    return (value, index) if keepdim else (R.squeeze(value, [axis]), R.squeeze(index, [axis]))


@converter("kthvalue")
def kthvalue(
    cx: Context, x: Expr, k: Any, axis: int = -1, keepdim: bool = False
) -> tuple[Expr, Expr]:
    if not tensors.rank_of(x):
        return x, const(0, "int64")
    return _nth(cx, x, cx.axis(axis, x), keepdim, cx.tensor(k - 1, "int64"))


@converter("median.dim")
def median(cx: Context, x: Expr, axis: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    if not tensors.rank_of(x):
        return x, const(0, "int64")
    at = cx.axis(axis, x)
    index = cx.emit(TupleGetItem(cx.emit(R.median(x, [at], True)), 1))
    return _at(x, at, keepdim, index)


@converter("nanmedian.dim")
def nanmedian(cx: Context, x: Expr, axis: int, keepdim: bool = False) -> tuple[Expr, Expr]:
    if not tensors.is_float(x) or not tensors.rank_of(x):
        return median(cx, x, axis, keepdim)
    at = cx.axis(axis, x)
    known = R.sum(R.astype(R.equal(x, x), "int64"), [at], True)
    below = (known - const(1, "int64")) // const(2, "int64")
    return _nth(cx, x, at, keepdim, cx.emit(below))


@converter("median")
def median_of_all(cx: Context, x: Expr) -> Expr:
    return median(cx, _flat(cx, x), 0)[0]


@converter("nanmedian")
def nanmedian_of_all(cx: Context, x: Expr) -> Expr:
    return nanmedian(cx, _flat(cx, x), 0)[0]


def _flat(cx: Context, x: Expr) -> Expr:
    return cx.emit(tensors.reshaped(x, [tensors.product(tensors.shape_of(x))]))


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "mean"}


def _least(cx: Context, x: Expr, reduction: str) -> Expr:
    """The initial value of a reduction, as a tensor like `x`."""
    dtype = tensors.dtype_of(x)
    if reduction in ("sum", "mean", "prod"):
        return R.full_like(x, cx.tensor(1 if reduction == "prod" else 0, dtype))
    if "float" in dtype:
        return R.full_like(x, const(math.inf if reduction == "amin" else -math.inf, dtype))
    whole = ops.int_range(DataType(dtype)) if dtype != "bool" else (0, 1)
    return R.full_like(x, cx.tensor(whole[reduction == "amin"], dtype))


@converter("scatter_reduce.two")
def scatter_reduce(
    cx: Context,
    x: Expr,
    axis: int,
    indices: Expr,
    source: Expr,
    reduce: str,
    *,
    include_self: bool = True,
) -> Expr:
    """`x` with the source scattered into it by a reduction, including the old elements or not."""
    name = "add" if reduce == "mean" else _REDUCTIONS[reduce]
    begin = x if include_self else cx.emit(_least(cx, x, reduce))
    found = cx.emit(scattered(cx, begin, axis, indices, source, name))
    if include_self and reduce != "mean":
        return found
    zeros = cx.emit(R.zeros(tuple(tensors.shape_of(x)), "int64"))
    ones = cx.emit(R.ones(tuple(tensors.shape_of(source)), "int64"))
    count = cx.emit(scattered(cx, zeros, axis, indices, ones, "add"))
    hit = count > const(0, "int64")
    if reduce == "mean":
        parts = count + const(1, "int64") if include_self else R.maximum(count, const(1, "int64"))
        divisor = R.astype(parts, tensors.dtype_of(x))
        quotient = R.divide if tensors.is_float(x) else R.floor_divide
        found = quotient(found, divisor)
    return R.where(hit, found, x)


@converter("index_reduce")
def index_reduce(
    cx: Context,
    x: Expr,
    axis: int,
    indices: Expr,
    source: Expr,
    reduce: str,
    *,
    include_self: bool = True,
) -> Expr:
    places = cx.emit(along_axis(cx, x, axis, indices, source))
    return scatter_reduce(cx, x, axis, places, source, reduce, include_self=include_self)


@converter("put")
def put(cx: Context, x: Expr, indices: Expr, source: Expr, accumulate: bool = False) -> Expr:
    total, count = tensors.product(tensors.shape_of(x)), tensors.product(tensors.shape_of(indices))
    flat = cx.emit(tensors.reshaped(x, [total]))
    places = cx.emit(tensors.reshaped(indices, [count]))
    values = cx.emit(tensors.reshaped(source, [count]))
    kind = "add" if accumulate else "update"
    return tensors.reshaped(R.scatter_elements(flat, places, values, 0, kind), tensors.shape_of(x))


@converter("masked_scatter")
def masked_scatter(cx: Context, x: Expr, mask: Expr, source: Expr) -> Expr:
    sizes = cx.result_shape()
    total = tensors.product(sizes)
    where = cx.emit(tensors.reshaped(R.broadcast_to(mask, tuple(sizes)), [total]))
    old = cx.emit(tensors.reshaped(R.broadcast_to(x, tuple(sizes)), [total]))
    new = cx.emit(tensors.reshaped(source, [tensors.product(tensors.shape_of(source))]))
    inputs = {"mask": where, "old": old, "new": new}
    outputs = {"out": ([total], tensors.dtype_of(x))}
    (found,) = kernel(cx, "masked_scatter", outputs, inputs, _scatter_by_mask)
    return tensors.reshaped(found, sizes)


@kernel_text
def _scatter_by_mask(mask: Any, old: Any, new: Any, out: Any) -> None:
    used = variable(T.int64(0))
    for i in T.serial(out.shape[0]):
        out[i] = old[i]
        if mask[i]:
            out[i] = new[used[0]]
            used[0] += 1


@converter("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    cx: Context,
    edges: Expr,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Expr | None = None,
) -> Expr:
    after = right or side == "right"
    if sorter is not None:
        edges = cx.emit(R.gather_elements(edges, sorter, tensors.rank_of(edges) - 1))
    x = cx.tensor(values)
    if tensors.rank_of(edges) == 1:
        return R.bucketize(x, edges, cx.result_dtype() == "int32", after)
    size = tensors.shape_of(edges)[-1]
    rows, count = tensors.product(tensors.shape_of(edges)[:-1]), tensors.shape_of(x)[-1]
    bounds = cx.emit(tensors.reshaped(edges, [rows, size]))
    asked = cx.emit(tensors.reshaped(x, [rows, count]))
    inputs, outputs = {"edges": bounds, "x": asked}, {"out": ([rows, count], "int64")}
    (found,) = kernel(cx, "searchsorted", outputs, inputs, _bisect, after=after)
    return cx.tensor(tensors.reshaped(found, tensors.shape_of(x)), cx.result_dtype())


@kernel_text
def _bisect(edges: Any, x: Any, out: Any, after: bool) -> None:
    """By bisection: each step decides whether to skip a part of what is left."""
    for r, i in T.grid(*out.shape):
        found, left = variable(T.int64(0)), variable(edges.shape[1])
        while left[0] > 0:
            step = (left[0] + 1) // 2
            edge, value = edges[r, found[0] + step - 1], x[r, i]
            found[0] += T.Select(_is_below(edge, value, after), step, T.int64(0))
            left[0] -= step
        out[r, i] = found[0]


def _is_below(edge: Number, value: Number, after: bool) -> Number:
    """True if a value comes after an edge: NaN after all numbers, equal ones as `after` says."""
    below = edge <= value if after else edge < value
    if value.dtype.is_float:
        return below | (isnan(value) if after else isnan(value) & ~isnan(edge))
    return below


@converter("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    cx: Context, values: Any, edges: Expr, *, out_int32: bool = False, right: bool = False
) -> Expr:
    return searchsorted(cx, edges, values, right=right)


@converter("mode")
def mode(cx: Context, x: Expr, axis: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    """The least of the most frequent values, and its last index."""
    if not tensors.rank_of(x):
        return x, const(0, "int64")
    at, sizes = cx.axis(axis, x), tensors.shape_of(x)
    y = cx.tensor(x, "int8") if tensors.dtype_of(x) == "bool" else x
    shape = [tensors.product(sizes[:at]), sizes[at], tensors.product(sizes[at + 1 :])]
    both = {"ordered": cx.emit(R.sort(y, at)), "x": y}
    inputs = {name: cx.emit(tensors.reshaped(v, shape)) for name, v in both.items()}
    outputs = {"out": ([shape[0], 1, shape[2]], "int64")}
    (found,) = kernel(cx, "mode", outputs, inputs, _most_frequent)
    sizes[at] = 1
    return _at(x, at, keepdim, cx.emit(tensors.reshaped(found, sizes)))


@kernel_text
def _most_frequent(ordered: Any, x: Any, out: Any) -> None:
    for a, b in T.grid(x.shape[0], x.shape[2]):
        run, best, found = [variable(T.int64(0)) for _ in range(3)]
        value = variable(x[a, 0, b])
        for i in T.serial(x.shape[1]):
            new, before = ordered[a, i, b], ordered[a, T.Select(i > 0, i - 1, i), b]
            run[0] = T.Select(new == before, run[0] + 1, T.int64(1))
            if run[0] > best[0]:
                best[0] = run[0]
                value[0] = new
        for i in T.serial(x.shape[1]):
            found[0] = T.Select(x[a, i, b] == value[0], i, found[0])
        out[a, 0, b] = found[0]
