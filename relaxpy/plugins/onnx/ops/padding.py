"""Tile and Pad: amounts are numbers, sizes, or known when the program runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.windows import padded
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.ops.movement import integer, wrapped
from relaxpy.plugins.onnx.registry import Value, converter


@converter("Tile", since=6, strings=True)
def tile(cx: Context, x: Expr, repeats: Value) -> Expr:
    counts = cx.sizes(repeats, "repeat", tensors.rank_of(x))
    tensors.require_count("repeats", counts, tensors.rank_of(x))
    if all(isinstance(count, int) for count in counts):
        return R.tile(x, counts)
    for axis, count in enumerate(counts):
        if not tensors.is_size(count, 1):
            sizes = tensors.shape_of(x)
            wide = [*sizes[:axis], count, *sizes[axis:]]
            flat = [*sizes[:axis], tensors.product([count, sizes[axis]]), *sizes[axis + 1 :]]
            x = tensors.reshaped(R.broadcast_to(R.expand_dims(x, [axis]), tuple(wide)), tuple(flat))
    return x


@converter("Tile", strings=True)
def tile_1(cx: Context, x: Expr, tiles: Value, axis: Value) -> Expr:
    repeats = [1] * tensors.rank_of(x)
    repeats[cx.numbers(axis, "axis")[0]] = cx.numbers(tiles, "tiles")[0]
    return R.tile(x, repeats)


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@converter("Pad", admitted={"mode": _MODES}, strings=True)
def pad_1(
    cx: Context,
    x: Expr,
    *,
    pads: Sequence[int] | None = None,
    paddings: Sequence[int] | None = None,
    mode: str = "constant",
    value: float = 0.0,
) -> Expr:
    amounts = pads or paddings or ()
    tensors.require_count("pads", amounts, 2 * tensors.rank_of(x))
    return padded(cx, x, amounts, _MODES[mode], value)


@converter("Pad", domain="com.microsoft", admitted={"mode": _MODES})
@converter("Pad", since=11, admitted={"mode": _MODES}, strings=True)
def pad(
    cx: Context,
    x: Expr,
    pads: Value,
    constant_value: Value = None,
    axes: Value = None,
    *,
    mode: str = "constant",
) -> Expr:
    rank = tensors.rank_of(x)
    chosen = list(range(rank))
    if axes is not None and cx.array(axes) is None:
        among = wrapped(R.astype(cx.tensor(axes), "int64"), rank)
        every = tensors.literal(np.zeros(2 * rank, np.int64))
        places = R.concat([among, R.add(among, integer(rank))])
        both = R.scatter_elements(every, places, cx.tensor(pads))
        amounts = cx.sizes_at_run_time(both, 2 * rank, "pad")
    else:
        if axes is not None:
            chosen = tensors.normal_axes(cx.numbers(axes, "axes"), rank)
        amounts = cx.sizes(pads, "pad", 2 * len(chosen))
    tensors.require_count("pads", amounts, 2 * len(chosen))
    full: list[tensors.Size] = [0] * (2 * rank)
    for k, axis in enumerate(chosen):
        full[axis], full[rank + axis] = amounts[k], amounts[k + len(chosen)]
    value: Expr | float | None = None
    if constant_value is not None:
        array = cx.array(constant_value)
        value = cx.tensor(constant_value) if array is None else array.item()
    return padded(cx, x, full, _MODES[mode], value)
