"""Reductions along axes and of segments: sum, max, min, moments, norms, cumulative sums, bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import reinterpret
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import (
    Loops,
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
    centred = R.subtract(x, R.mean(x, chosen, True) if chosen else x)
    squares = R.multiply(centred, centred)
    above = R.sum(squares, chosen, keepdim) if chosen else squares
    count = cx.tensor(product([sizes[k] for k in chosen]), dtype_of(x))
    below = R.maximum(R.subtract(count, scalar(delta, x)), scalar(0.0, x))
    return R.divide(above, below), R.mean(x, chosen, keepdim) if chosen else x


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
        return R.sqrt(R.sum(R.multiply(y, y), chosen, keepdim))
    powers = R.sum(R.power(y, scalar(float(order), y)), chosen, keepdim)
    return R.power(powers, scalar(1.0 / float(order), y))


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

    def write(k: Loops, x: Any, bounds: Any, out: Any) -> None:
        with k.every(out.shape) as (a, s, b):
            begin, end = k.local(bounds[a, s])[0], k.local(bounds[a, s + 1])[0]
            total = k.local(ops.const(first, x.dtype))
            with k.loop(end - begin, start=begin) as i:
                value = k.local(x[a, i, b])[0]
                match reduction:
                    case "sum" | "mean":
                        k.store(total, 0, total[0] + value)
                    case "prod":
                        k.store(total, 0, total[0] * value)
                    case _:
                        better = value > total[0] if reduction == "max" else value < total[0]
                        k.store(total, 0, Select(better | (value != value), value, total[0]))
            if reduction == "mean" and initial is None:
                k.store(total, 0, total[0] / ops.cast_to(end - begin, x.dtype))
            elif reduction == "mean":
                divisor = Select(end > begin, end - begin, ops.const(1, "int64"))
                k.store(total, 0, total[0] / ops.cast_to(divisor, x.dtype))
            k.store(out, (a, s, b), total[0])

    shape = [outer, count, inner]
    (out,) = kernel(cx, "segment_reduce", [(shape, tensors.dtype_of(x))], [data, bounds], write)
    return tensors.reshaped(out, cx.result_shape())


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

    def write(k: Loops, x: Any, out: Any) -> None:
        with k.loop(x.shape[0]) as a:
            k.store(out, a, 0)
            with k.loop(x.shape[1]) as i:
                k.store(out, a, out[a] ^ reinterpret("uint64", x[a, i]))

    (out,) = kernel(cx, "hash_tensor", [(shape[:1], "uint64")], [rows], write)
    return tensors.reshaped(out, cx.result_shape())
