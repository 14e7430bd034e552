"""Choices among the elements along an axis, and sums of elements by places."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, TupleGetItem, const
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import atan2, cos, exp, if_then_else, isnan, log, sin
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import Loops, Number, kernel, whole
from relaxpy.plugins.torch.complexes import Complex, complex_converter
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.indexing import along_axis, scattered
from relaxpy.plugins.torch.registry import converter


@converter("cummax", "cummin")
def cummax(cx: Context, x: Expr, axis: int) -> tuple[Expr, Expr]:
    if not tensors.rank_of(x):
        return x, const(0, "int64")
    greatest = "cummax" in str(cx.node.target)
    extreme = ops.maximum if greatest else ops.minimum
    at = cx.axis(axis, x)
    y = cx.tensor(x, "int8") if tensors.dtype_of(x) == "bool" else x

    def write(k: Loops, x: Any, values: Any, places: Any) -> None:
        """Two scans: a place is the last one so far at which the value was replaced."""

        def before(index: tuple[Any, ...]) -> tuple[Any, ...]:
            return *index[:at], index[at] - 1, *index[at + 1 :]

        def replaced(index: tuple[Any, ...]) -> Number:
            new, old = x[index], values[before(index)]
            found: Number = new >= old if greatest else new <= old
            return found | isnan(new) if tensors.is_float(y) else found

        with k.every(x.shape) as index:
            value = extreme(values[before(index)], x[index])
            k.store(values, index, if_then_else(index[at] == 0, x[index], value))
        with k.every(x.shape) as index:
            place = ops.maximum(places[before(index)], Select(replaced(index), index[at], whole(0)))
            k.store(places, index, if_then_else(index[at] == 0, whole(0), place))

    outputs = [(tensors.shape_of(x), dtype) for dtype in (tensors.dtype_of(y), "int64")]
    values, places = kernel(cx, "cummax" if greatest else "cummin", outputs, [y], write)
    return cx.tensor(values, tensors.dtype_of(x)), places


@converter("logcumsumexp")
def logcumsumexp(cx: Context, x: Expr, axis: int) -> Expr:
    if not tensors.rank_of(x):
        return x
    at = cx.axis(axis, x)
    sizes = tensors.shape_of(x)
    shape = [tensors.product(sizes[:at]), sizes[at], tensors.product(sizes[at + 1 :])]
    blocks = cx.emit(tensors.reshaped(cx.tensor(x, "float64"), shape))

    def write(k: Loops, x: Any, out: Any) -> None:
        with k.every((x.shape[0], x.shape[2])) as (a, b):
            top = k.local(ops.const(-math.inf, "float64"))
            total = k.local(ops.const(0.0, "float64"))
            with k.loop(x.shape[1]) as i:
                value = k.local(x[a, i, b])
                with k.when(value[0] > top[0]):
                    k.store(total, 0, total[0] * exp(top[0] - value[0]) + 1.0)
                    k.store(top, 0, value[0])
                # The sum of infinities is infinite: their difference is none.
                with k.otherwise(), k.when((value[0] != -math.inf) & (value[0] != math.inf)):
                    k.store(total, 0, total[0] + exp(value[0] - top[0]))
                k.store(out, (a, i, b), top[0] + log(total[0]))

    (found,) = kernel(cx, "logcumsumexp", [(shape, "float64")], [blocks], write)
    return R.astype(tensors.reshaped(found, sizes), tensors.dtype_of(x))


@complex_converter("logcumsumexp")
def complex_logcumsumexp(cx: Context, z: Complex, axis: int) -> Complex:
    """log(cumsum(exp(z))) in float64; each step factors out the operand of greater real part."""
    if not tensors.rank_of(z.re):
        return z
    at = cx.axis(axis, z.re)
    sizes = tensors.shape_of(z.re)
    shape = [tensors.product(sizes[:at]), sizes[at], tensors.product(sizes[at + 1 :])]
    parts = [cx.emit(tensors.reshaped(cx.tensor(part, "float64"), shape)) for part in (z.re, z.im)]

    def write(k: Loops, x: Any, y: Any, re: Any, im: Any) -> None:
        with k.every((x.shape[0], x.shape[2])) as (a, b):
            size = k.local(ops.const(-math.inf, "float64"))
            angle = k.local(ops.const(0.0, "float64"))
            with k.loop(x.shape[1]) as i:
                new, old = (x[a, i, b], y[a, i, b]), (size[0], angle[0])
                is_less = new[0] < old[0]
                low = [k.local(Select(is_less, n, o)) for n, o in zip(new, old, strict=True)]
                high = [k.local(Select(is_less, o, n)) for n, o in zip(new, old, strict=True)]
                ratio = k.local(exp(low[0][0] - high[0][0]))
                turned = low[1][0] - high[1][0]
                one = k.local(ratio[0] * cos(turned) + 1.0)
                other = k.local(ratio[0] * sin(turned))
                added = log(one[0] * one[0] + other[0] * other[0]) * 0.5
                both = (low[0][0] == high[0][0]) & (low[0][0] == -math.inf)
                k.store(size, 0, Select(both, low[0][0], high[0][0] + added))
                k.store(angle, 0, Select(both, low[1][0], high[1][0] + atan2(other[0], one[0])))
                k.store(re, (a, i, b), size[0])
                k.store(im, (a, i, b), angle[0])

    outputs = [(shape, "float64")] * 2
    found = kernel(cx, "logcumsumexp", outputs, parts, write)
    return Complex(
        *(R.astype(tensors.reshaped(part, sizes), tensors.dtype_of(z.re)) for part in found)
    )


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


def reduced_into(
    cx: Context, x: Expr, axis: int, indices: Expr, source: Expr, reduction: str, own: bool
) -> Expr:
    """`x` with the source scattered into it by a reduction, including the old elements or not."""
    name = "add" if reduction == "mean" else _REDUCTIONS[reduction]
    begin = x if own else cx.emit(_least(cx, x, reduction))
    found = cx.emit(scattered(cx, begin, axis, indices, source, name))
    if own and reduction != "mean":
        return found
    zeros = cx.emit(R.zeros(tuple(tensors.shape_of(x)), "int64"))
    ones = cx.emit(R.ones(tuple(tensors.shape_of(source)), "int64"))
    count = cx.emit(scattered(cx, zeros, axis, indices, ones, "add"))
    hit = count > const(0, "int64")
    if reduction == "mean":
        parts = count + const(1, "int64") if own else R.maximum(count, const(1, "int64"))
        divisor = R.astype(parts, tensors.dtype_of(x))
        quotient = R.divide if tensors.is_float(x) else R.floor_divide
        found = quotient(found, divisor)
    return R.where(hit, found, x)


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
    return reduced_into(cx, x, axis, indices, source, reduce, include_self)


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
    return reduced_into(cx, x, axis, places, source, reduce, include_self)


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

    def write(k: Loops, mask: Any, old: Any, new: Any, out: Any) -> None:
        used = k.local(0, "int64")
        with k.loop(out.shape[0]) as i:
            k.store(out, i, old[i])
            with k.when(mask[i]):
                k.store(out, i, new[used[0]])
                k.store(used, 0, used[0] + 1)

    outputs = [([total], tensors.dtype_of(x))]
    (found,) = kernel(cx, "masked_scatter", outputs, [where, old, new], write)
    return tensors.reshaped(found, sizes)


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
    has_nan = tensors.is_float(x)

    def write(k: Loops, edges: Any, x: Any, out: Any) -> None:
        """By bisection: each step decides whether to skip a part of what is left."""
        with k.every(out.shape) as (r, i):
            found, left = k.local(0, "int64"), k.local(edges.shape[1], "int64")
            with k.repeat(left[0] > 0):
                step = k.local((left[0] + 1) // 2)
                edge = k.local(edges[r, found[0] + step[0] - 1])
                edge, value = edge[0], x[r, i]
                below: Number = edge <= value if after else edge < value
                if has_nan:
                    below = below | isnan(value) if after else below | (isnan(value) & ~isnan(edge))
                k.store(found, 0, found[0] + Select(below, step[0], ops.const(0, "int64")))
                k.store(left, 0, left[0] - step[0])
            k.store(out, (r, i), found[0])

    (found,) = kernel(cx, "searchsorted", [([rows, count], "int64")], [bounds, asked], write)
    return cx.tensor(tensors.reshaped(found, tensors.shape_of(x)), cx.result_dtype())


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
    both = [cx.emit(tensors.reshaped(v, shape)) for v in (cx.emit(R.sort(y, at)), y)]

    def write(k: Loops, ordered: Any, x: Any, out: Any) -> None:
        with k.every((x.shape[0], x.shape[2])) as (a, b):
            run, best, value = k.local(0, "int64"), k.local(0, "int64"), k.local(x[a, 0, b])
            found = k.local(0, "int64")
            with k.loop(x.shape[1]) as i:
                new, before = ordered[a, i, b], ordered[a, Select(i > 0, i - 1, i), b]
                k.store(run, 0, Select(new == before, run[0] + 1, ops.const(1, "int64")))
                with k.when(run[0] > best[0]):
                    k.store(best, 0, run[0])
                    k.store(value, 0, new)
            with k.loop(x.shape[1]) as i:
                k.store(found, 0, Select(x[a, i, b] == value[0], i, found[0]))
            k.store(out, (a, whole(0), b), found[0])

    (found,) = kernel(cx, "mode", [([shape[0], 1, shape[2]], "int64")], both, write)
    sizes[at] = 1
    return _at(x, at, keepdim, cx.emit(tensors.reshaped(found, sizes)))
