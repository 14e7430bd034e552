"""Tile and Pad: amounts are numbers, sizes, or known when the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.ops.movement import integer, is_size, wrapped
from relaxpy.frontend.onnx.registry import Value, converter
from relaxpy.frontend.shared.contents import number
from relaxpy.frontend.shared.tensors import (
    Size,
    as_size,
    literal,
    product,
    rank_of,
    reshaped,
    scalar,
    shape_of,
)
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.tensor import compute
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.intrin import if_then_else


@converter("Tile", since=6)
def tile(cx: Context, x: Expr, repeats: Value) -> Expr:
    counts = cx.sizes(repeats, "repeat")
    if all(isinstance(count, int) for count in counts):
        return R.tile(x, counts)
    for axis, count in enumerate(counts):
        if not is_size(count, 1):
            sizes = shape_of(x)
            wide = [*sizes[:axis], count, *sizes[axis:]]
            flat = [*sizes[:axis], product([count, sizes[axis]]), *sizes[axis + 1 :]]
            x = reshaped(R.broadcast_to(R.expand_dims(x, [axis]), tuple(wide)), tuple(flat))
    return x


@converter("Tile")
def tile_1(cx: Context, x: Expr, tiles: Value, axis: Value) -> Expr:
    repeats = [1] * rank_of(x)
    repeats[cx.numbers(axis, "axis")[0]] = cx.numbers(tiles, "tiles")[0]
    return R.tile(x, repeats)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def padded(
    cx: Context, x: Expr, pads: Sequence[Size], mode: str, value: Expr | float | None
) -> Expr:
    """`x` with `pads` (befores, then afters); negative ones crop."""
    rank = rank_of(x)
    sizes = shape_of(x)
    begins, ends = list(pads[:rank]), list(pads[rank:])
    for k, size in enumerate(sizes):
        begins[k], ends[k] = _within(begins[k], ends[k], size)
    crop = [
        k
        for k in range(rank)
        if (_negative(begins[k]) or _negative(ends[k]))
        and (isinstance(sizes[k], int) or all(_crops(item) for item in (begins[k], ends[k])))
    ]
    if crop:
        first = [-begins[k] if _negative(begins[k]) else 0 for k in crop]
        last = [number(sizes[k] + ends[k]) if _negative(ends[k]) else sizes[k] for k in crop]
        x = R.strided_slice(x, crop, first, last)
        for k in crop:
            begins[k], ends[k] = (0 if _negative(item) else item for item in (begins[k], ends[k]))
    if all(is_size(item, 0) for item in (*begins, *ends)):
        return x
    if all(isinstance(item, int) and item >= 0 for item in (*begins, *ends)):
        flat = [item for pair in zip(begins, ends, strict=True) for item in pair]
        if mode != "constant":
            return R.nn.pad(x, flat, _PAD_MODES[mode])
        if isinstance(value, (int, float)) or value is None:
            return R.nn.pad(x, flat, "constant", float(value or 0))
    fill = cx.tensor(value) if isinstance(value, Expr) else scalar(value or 0, x)
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if not (is_size(begin, 0) and is_size(end, 0)):
            x = _padded_axis(cx, x, axis, begin, end, mode, R.reshape(fill, ()))
    return x


def _within(begin: Size, end: Size, size: Size) -> tuple[Size, Size]:
    """The same padding, where what one end crops beyond all elements is not added at the other."""
    if isinstance(begin, int) and isinstance(end, int) and isinstance(size, int):
        if size + end < 0:
            return begin + size + end, -size
        if size + begin < 0:
            return -size, end + size + begin
    return begin, end


def _padded_axis(
    cx: Context, x: Expr, axis: int, begin: Size, end: Size, mode: str, fill: Expr
) -> Expr:
    """`x` with elements before and after along one axis, whose numbers are expressions."""
    size = cast(Any, shape_of(x)[axis])

    def kernel(t: Any, value: Any) -> Any:
        shape = [*t.shape]
        shape[axis] = shape[axis] + begin + end

        def element(*index: Any) -> Any:
            at = index[axis] - begin
            if mode == "edge":
                inner: Any = tir.Max(tir.Min(at, size - 1), tir.IntImm("int64", 0))
            elif mode == "wrap":
                inner = at % size
            elif mode == "reflect":
                period = tir.Max(as_size(2 * size - 2), tir.IntImm("int64", 1))
                turned = at % period
                inner = tir.Min(turned, period - turned)
            else:
                inside = tir.And(at >= 0, at < size)
                place = (*index[:axis], at, *index[axis + 1 :])
                return if_then_else(inside, t(*place), value())
            return t(*index[:axis], inner, *index[axis + 1 :])

        return compute(shape, element, "pad")

    return cx.te(kernel, x, fill, name=f"pad_{mode}")


def _negative(size: Size) -> bool:
    return isinstance(size, int) and size < 0


def _crops(size: Size) -> bool:
    """Whether padding is known to add nothing."""
    return isinstance(size, int) and size <= 0


@converter("Pad")
def pad_1(
    cx: Context,
    x: Expr,
    *,
    pads: Sequence[int] | None = None,
    paddings: Sequence[int] | None = None,
    mode: str = "constant",
    value: float = 0.0,
) -> Expr:
    return padded(cx, x, pads or paddings or (), mode, value)


@converter("Pad", domain="com.microsoft")
@converter("Pad", since=11)
def pad(
    cx: Context,
    x: Expr,
    pads: Value,
    constant_value: Value = None,
    axes: Value = None,
    *,
    mode: str = "constant",
) -> Expr:
    rank = rank_of(x)
    chosen = list(range(rank))
    if axes is not None and cx.array(axes) is None:
        among = wrapped(R.astype(cx.tensor(axes), "int64"), rank)
        every = literal(np.zeros(2 * rank, np.int64))
        places = R.concat([among, R.add(among, integer(rank))])
        both = R.scatter_elements(every, places, cx.tensor(pads))
        amounts = cx.sizes_at_run_time(both, 2 * rank, "pad")
    else:
        if axes is not None:
            chosen = [axis % rank for axis in cx.numbers(axes, "axes")]
        amounts = cx.sizes(pads, "pad")
    full: list[Size] = [0] * (2 * rank)
    for k, axis in enumerate(chosen):
        full[axis], full[rank + axis] = amounts[k], amounts[k + len(chosen)]
    value: Expr | float | None = None
    if constant_value is not None:
        array = cx.array(constant_value)
        value = cx.tensor(constant_value) if array is None else array.item()
    return padded(cx, x, full, mode, value)
