"""Operators that slice tensors, and select, gather and scatter their elements."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import (
    Args,
    axes_of,
    define,
    dims,
    dtype_of,
    listed,
    number,
    options,
)
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.tir.expr import IntImm


def _fifo_buffer(args: Args, attrs: Any) -> rx.Expr:
    """The last elements of a buffer followed by new data, as many as the buffer has."""
    data, buffer = args
    axis = axes_of(attrs["axis"], len(dims(data)))[0]
    first, size = dims(data)[axis], dims(buffer)[axis]
    joined = R.concat([buffer, data], axis)
    return R.strided_slice(joined, [axis], [first], [first + size], [1])


define("nn.fifo_buffer", "data buffer", _fifo_buffer, {"axis": 0})


def _strided_set(args: Args, attrs: Any) -> rx.Expr:
    data, value, begin, _, strides = args
    sizes, shape = dims(data), dims(value)
    rank, count = len(shape), int(dims(begin)[0])
    grids = []
    for axis in range(rank):
        places = R.arange(0, shape[axis], 1, "int64")
        if axis < count:
            start, step = (
                R.strided_slice(R.astype(bound, "int64"), [0], [axis], [axis + 1], [1])
                for bound in (begin, strides)
            )
            size = R.shape_to_tensor(rx.ShapeExpr((sizes[axis],)))
            start = R.where(R.less(start, number(0, "int64")), R.add(start, size), start)
            places = R.add(start, R.multiply(places, step))
        along = [shape[axis] if i == axis else 1 for i in range(rank)]
        grids.append(R.broadcast_to(R.reshape(places, along), shape))
    return R.scatter_nd(data, R.stack(grids, rank), value)


define("strided_set", "data v begin end strides", _strided_set)


def _strided_slice(args: Args, attrs: Any) -> rx.Expr:
    begin, end = listed(attrs["begin"]), listed(attrs["end"])
    strides = listed(attrs["strides"] if attrs["strides"] is not None else (1,))
    axes = list(range(len(begin))) if attrs["axes"] is None else listed(attrs["axes"])
    strides += [strides[-1]] * (len(begin) - len(strides))
    if attrs["slice_mode"] == "size":
        sizes = dims(args[0])
        end = [
            sizes[axis] if int(size) < 0 else int(first) + int(size)
            for axis, first, size in zip(axes, begin, end, strict=True)
        ]
        strides = [1] * len(begin)
    return R.strided_slice(args[0], axes, begin, end, strides)


define(
    "strided_slice",
    "data",
    _strided_slice,
    {"begin": REQUIRED, "end": REQUIRED, "strides": (1,), "axes": None, "slice_mode": "end"},
)


def _slice_like(args: Args, attrs: Any) -> rx.Expr:
    data, like = args
    axes = axes_of(attrs["axes"] or None, len(dims(data)))
    sizes = [dims(like)[axis] for axis in axes]
    return R.strided_slice(data, axes, [0] * len(axes), sizes, [1] * len(axes))


define("slice_like", "data shape_like", _slice_like, {"axes": None})


def _take(args: Args, attrs: Any) -> rx.Expr:
    data, indices = args
    if attrs["axis"] is None:
        return R.take(R.reshape(data, (-1,)), indices, 0, attrs["mode"])
    if attrs["batch_dims"]:
        return _take_in_batches(data, indices, attrs)
    return R.take(data, indices, attrs["axis"], attrs["mode"])


def _take_in_batches(data: rx.Expr, indices: rx.Expr, attrs: Any) -> rx.Expr:
    """The elements of each batch at its own indices."""
    shape, positions = dims(data), dims(indices)
    axis = axes_of(attrs["axis"], len(shape))[0]
    batch = int(attrs["batch_dims"]) % len(positions)
    if batch > axis:
        raise RelationError(f"batch_dims is at most axis, found {batch} and {axis}")
    groups = shape[:batch], shape[batch:axis], shape[axis + 1 :]
    batches, middle, rest = (math.prod(group, start=IntImm("int64", 1)) for group in groups)
    count, size = math.prod(positions[batch:], start=IntImm("int64", 1)), shape[axis]
    limit = R.astype(R.shape_to_tensor(rx.ShapeExpr((size,))), dtype_of(indices))
    if attrs["mode"] == "clip":
        one, zero = (number(value, dtype_of(indices)) for value in (1, 0))
        indices = R.minimum(R.maximum(indices, zero), R.subtract(limit, one))
    elif attrs["mode"] == "wrap":
        indices = R.floor_mod(indices, limit)
    rows = R.reshape(indices, (batches, 1, count, 1))
    found = R.gather_elements(
        R.reshape(data, (batches, middle, size, rest)),
        R.broadcast_to(rows, (batches, middle, count, rest)),
        2,
    )
    return R.reshape(found, (*shape[:axis], *positions[batch:], *shape[axis + 1 :]))


define(
    "take",
    "data indices",
    _take,
    {"axis": None, "batch_dims": 0, "mode": "clip"},
)
define(
    "gather",
    "data indices",
    lambda args, attrs: R.gather_elements(args[0], args[1], attrs["axis"]),
    {"axis": REQUIRED},
)


def _gather_nd(args: Args, attrs: Any) -> rx.Expr:
    rank = len(dims(args[1]))
    indices = R.permute_dims(args[1], [*range(1, rank), 0])
    return R.gather_nd(args[0], indices, attrs["batch_dims"])


define("gather_nd", "data indices", _gather_nd, {"batch_dims": 0, "index_rank": None})
define(
    "scatter_elements",
    "data indices updates",
    lambda args, attrs: R.scatter_elements(*args, **options(attrs, "axis reduction")),
    {"axis": 0, "reduction": "update"},
)


def _scatter_nd(args: Args, attrs: Any) -> rx.Expr:
    data, indices, updates = args
    rank = len(dims(indices))
    indices = R.permute_dims(indices, [*range(1, rank), 0])
    return R.scatter_nd(data, indices, updates, attrs["mode"])


define("scatter_nd", "data indices updates", _scatter_nd, {"mode": "update"})


def _where(args: Args, attrs: Any) -> rx.Expr:
    chosen = [dtype_of(arg) for arg in args[1:]]
    if chosen[0] != chosen[1]:
        raise RelationError(f"x and y have one datatype, found {chosen[0]} and {chosen[1]}")
    return R.where(*args)


define("where", "condition x y", _where)


def _one_hot(args: Args, attrs: Any) -> rx.Expr:
    indices, on_value, off_value = args
    rank, depth = len(dims(indices)), int(attrs["depth"])
    axis = int(attrs["axis"]) % (rank + 1)
    positions = R.arange(0, depth, 1, dtype_of(indices))
    shape = [depth if i == axis else 1 for i in range(rank + 1)]
    equal = R.equal(R.expand_dims(indices, axis), R.reshape(positions, shape))
    dtype = attrs["dtype"]
    return R.where(equal, R.astype(on_value, dtype), R.astype(off_value, dtype))


define(
    "one_hot",
    "indices on_value off_value",
    _one_hot,
    {"depth": REQUIRED, "axis": -1, "dtype": "float32"},
)
define(
    "trilu",
    "data k",
    lambda args, attrs: _trilu(args[0], args[1], upper=bool(attrs["upper"])),
    {"upper": True},
)


def _trilu(data: rx.Expr, k: rx.Expr, *, upper: bool) -> rx.Expr:
    """The elements on one side of diagonal `k`, which is a tensor, and zeros elsewhere."""
    *_, rows, columns = dims(data)
    row = R.reshape(R.arange(0, rows, 1, "int64"), (rows, 1))
    column = R.reshape(R.arange(0, columns, 1, "int64"), (1, columns))
    offset = R.subtract(column, row)
    diagonal = R.astype(k, "int64")
    kept = R.greater_equal(offset, diagonal) if upper else R.less_equal(offset, diagonal)
    return R.where(kept, data, R.zeros_like(data))
