"""Pools of windows and of regions, and images sampled at other places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.topi.pooling import adaptive_pool, adaptive_pool1d, adaptive_pool3d
from relaxpy.ir.tir import intrin, ops
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import Loops, kernel, whole
from relaxpy.plugins.importing.windows import MAXIMA, Windows, max_indices, mean_pooled, pooled
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.linear import each
from relaxpy.plugins.torch.ops.movement import to_shape
from relaxpy.plugins.torch.registry import converter

Ints = int | Sequence[int]


def _spatial(cx: Context) -> int:
    """The number of spatial axes, by the name of the operator."""
    return int(str(cx.node.target).partition("pool")[2][0])


def _batched(x: Expr, count: int) -> Expr:
    """Images with an axis of batches before that of channels."""
    return tensors.reshaped(x, [1, *tensors.shape_of(x)]) if tensors.rank_of(x) == count + 1 else x


def _windows(
    x: Expr, count: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Windows:
    pads = each(padding, count)
    sizes = each(kernel, count)
    strides = each(stride, count) if stride not in ([], ()) else sizes
    return Windows.of(x, sizes, strides, each(dilation, count), [*pads, *pads], "NOTSET")


@converter(
    *("max_pool1d", "max_pool2d", "max_pool3d"),
    *("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"),
)
def max_pool(
    cx: Context,
    x: Expr,
    kernel: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil: bool = False,
) -> Expr | tuple[Expr, Expr]:
    """Max pooling, with indices into each channel if the operator returns them."""
    count = _spatial(cx)
    data = _batched(x, count)
    windows = _windows(data, count, kernel, stride, padding, dilation)
    y = pooled(cx, MAXIMA, data, windows, ceil=ceil, inside=False)
    if "_with_indices" not in str(cx.node.target):
        return to_shape(cx, y, cx.result_shape())
    numbers = R.zeros(tuple(cx.result_shape(1)), "int64")
    if cx.uses(1):
        places = max_indices(cx, data, windows, ceil=ceil, by_columns=False, by_channel=True)
        numbers = to_shape(cx, places, cx.result_shape(1))
    return to_shape(cx, y, cx.result_shape(0)), numbers


@converter("avg_pool1d", "avg_pool2d", "avg_pool3d", wide=True)
def avg_pool(
    cx: Context,
    x: Expr,
    kernel: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    ceil: bool = False,
    inside: bool = True,
    divisor: int | None = None,
) -> Expr:
    count = _spatial(cx)
    data = _batched(x, count)
    windows = _windows(data, count, kernel, stride, padding, 1)
    if divisor is None:
        y = mean_pooled(cx, data, windows, ceil=ceil, inside=inside)
    else:
        wide = data if tensors.is_float(data) else R.astype(data, "float64")
        grown, whole = windows.padded(cx, cx.emit(wide), 0, ceil=ceil)
        means = mean_pooled(cx, grown, whole, ceil=False, inside=True)
        elements = math.prod(windows.kernel)
        if tensors.is_float(data):
            y = R.multiply(means, tensors.scalar(elements / divisor, x))
        else:  # the quotient of the sum, which is a whole number
            total = R.round(R.multiply(means, const(float(elements), "float64")))
            y = R.trunc(R.divide(total, const(float(divisor), "float64")))
    return tensors.reshaped(y, cx.result_shape()) if data is not x else y


_ADAPTIVE = {1: R.nn.adaptive_avg_pool1d, 2: R.nn.adaptive_avg_pool2d, 3: R.nn.adaptive_avg_pool3d}
#: The same for numbers of windows that are not known, which attributes of operators are not.
_MEANS = {1: adaptive_pool1d, 2: adaptive_pool, 3: adaptive_pool3d}


@converter(
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
)
def adaptive_avg_pool(cx: Context, x: Expr, sizes: Sequence[Any]) -> Expr:
    count = _spatial(cx)
    data = _batched(x, count)
    wanted = cx.result_shape()[-count:]
    if all(cx.is_size(size, 1) for size in wanted):
        axes = list(range(tensors.rank_of(x) - count, tensors.rank_of(x)))
        return R.mean(x, axes, True)
    if any(cx.is_size(size, 0) for size in wanted):  # the operator has no such output_size
        return R.zeros(cx.result_shape(), tensors.dtype_of(x))
    if all(isinstance(size, int) for size in wanted):
        y = _ADAPTIVE[count](data, list(wanted))
    else:
        y = cx.te(
            _MEANS[count], data, list(map(tensors.as_size, wanted)), "avg", name="adaptive_avg_pool"
        )
    return tensors.reshaped(y, cx.result_shape()) if data is not x else y


_GRID_METHODS = ("bilinear", "nearest", "bicubic")
_GRID_PADDINGS = ("zeros", "border", "reflection")


def _sampled(
    op: Any, images: Sequence[Expr], grid: Expr, method: int, padding: int, align_corners: bool
) -> Any:
    """An operator of images sampled at a grid, which has coordinates first."""
    rank = tensors.rank_of(grid)
    moved = R.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)])
    layout = "NCHW" if rank == 4 else "NCDHW"
    options = _GRID_METHODS[method], layout, _GRID_PADDINGS[padding], align_corners
    return op(*images, moved, *options)


@converter("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    cx: Context, x: Expr, grid: Expr, method: int, padding: int, align_corners: bool
) -> Expr:
    return _sampled(R.image.grid_sample, [x], grid, method, padding, align_corners)


@converter("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    cx: Context,
    grad: Expr,
    x: Expr,
    grid: Expr,
    method: int,
    padding: int,
    align_corners: bool,
    mask: Sequence[bool],
) -> tuple[Expr | None, Expr]:
    op = R.grad.grid_sample_backward
    both = cx.emit(_sampled(op, [grad, x], grid, method, padding, align_corners))
    of_grid = R.permute_dims(both[1], [0, *range(2, tensors.rank_of(grid)), 1])
    return both[0] if mask[0] else None, of_grid


@converter("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(cx: Context, x: Expr, sizes: Sequence[Any]) -> tuple[Expr, ...]:
    count = _spatial(cx)
    wanted = cx.result_shape(0)[-count:]
    outer = tensors.rank_of(x) - count
    before, inner_sizes = tensors.shape_of(x)[:outer], tensors.shape_of(x)[outer:]
    if all(cx.is_size(size, 1) for size in wanted):
        length = tensors.product(inner_sizes)
        rows = cx.emit(tensors.reshaped(x, [*before, length]))
        places = R.argmax(rows, outer, False)
        if tensors.is_float(x):  # of several NaN the last one
            numbers = R.arange(0, tensors.as_size(length), 1, "int64")
            last = cx.emit(R.max(R.where(R.isnan(rows), numbers, const(-1, "int64")), [outer]))
            places = R.where(R.less(last, const(0, "int64")), places, last)
        results = R.max(rows, [outer]), places
        return tuple(tensors.reshaped(result, [*before, *wanted]) for result in results)

    shape, dtypes = [*before, *wanted], (tensors.dtype_of(x), "int64")
    if any(cx.is_size(size, 0) for size in wanted):
        return tuple(R.zeros(shape, dtype) for dtype in dtypes)
    axes = range(outer, tensors.rank_of(x))

    def write(k: Loops, x: Any, y: Any, places: Any) -> None:
        with k.every(y.shape) as at:
            begins, lengths = [], []
            for j in axes:
                begin = k.local(at[j] * x.shape[j] // y.shape[j])[0]
                end = ops.ceildiv((at[j] + 1) * x.shape[j], y.shape[j])
                begins.append(begin)
                lengths.append(k.local(end - begin)[0])
            k.store(places, at, -1)
            with k.every(lengths) as inside:
                place = [begin + step for begin, step in zip(begins, inside, strict=True)]
                number = whole(0)
                for index, size in zip(place, x.shape[outer:], strict=True):
                    number = number * size + index
                value = k.local(x[(*at[:outer], *place)])[0]
                is_greater = (places[at] < 0) | (value > y[at]) | intrin.isnan(value)
                with k.when(is_greater):
                    k.store(y, at, value)
                    k.store(places, at, number)

    outputs = [(shape, dtype) for dtype in dtypes]
    return tuple(kernel(cx, "adaptive_max_pool", outputs, [x], write))
