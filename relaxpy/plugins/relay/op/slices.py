"""Operators that slice tensors, and select, gather and scatter their elements."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.tir.expr import IntImm
from relaxpy.plugins.relay.op.define import (
    axes_of,
    define,
    define_all,
    dims,
    dtype_of,
    fields_of,
    listed,
    number,
    signature,
)
from relaxpy.plugins.relay.op.registry import REQUIRED
from relaxpy.plugins.relay.op.relations import RelationError


def _strided_set(
    data: rx.Expr, v: rx.Expr, begin: rx.Expr, end: rx.Expr, strides: rx.Expr
) -> rx.Expr:
    sizes, shape = dims(data), dims(v)
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
    return R.scatter_nd(data, R.stack(grids, rank), v)


@signature("data", begin=REQUIRED, end=REQUIRED, strides=(1,), axes=None, slice_mode="end")
def _strided_slice(o: Any) -> rx.Expr:
    o.begin, o.end = listed(o.begin), listed(o.end)
    o.strides = [1] if o.strides is None else listed(o.strides)
    o.axes = list(range(len(o.begin))) if o.axes is None else listed(o.axes)
    o.strides += [o.strides[-1]] * (len(o.begin) - len(o.strides))
    if o.slice_mode == "size":
        sizes = dims(o.data)
        o.end = [
            sizes[axis] if int(size) < 0 else int(first) + int(size)
            for axis, first, size in zip(o.axes, o.begin, o.end, strict=True)
        ]
        o.strides = [1] * len(o.begin)
    return R.strided_slice(o.data, o.axes, o.begin, o.end, o.strides)


def _slice_like(data: rx.Expr, shape_like: rx.Expr, *, axes: Any = None) -> rx.Expr:
    axes = axes_of(axes or None, len(dims(data)))
    sizes = [dims(shape_like)[axis] for axis in axes]
    return R.strided_slice(data, axes, [0] * len(axes), sizes, [1] * len(axes))


def _take(
    data: rx.Expr, indices: rx.Expr, *, axis: Any = None, batch_dims: Any = 0, mode: Any = "clip"
) -> rx.Expr:
    if axis is None:
        return R.take(R.reshape(data, (-1,)), indices, 0, mode)
    if batch_dims:
        return _take_in_batches(data, indices, axis, batch_dims, mode)
    return R.take(data, indices, axis, mode)


def _take_in_batches(
    data: rx.Expr, indices: rx.Expr, axis: Any, batch_dims: Any, mode: str
) -> rx.Expr:
    """The elements of each batch at its own indices."""
    shape, positions = dims(data), dims(indices)
    axis = axes_of(axis, len(shape))[0]
    batch = int(batch_dims) % len(positions)
    if batch > axis:
        raise RelationError(f"batch_dims is at most axis, found {batch} and {axis}")
    groups = shape[:batch], shape[batch:axis], shape[axis + 1 :]
    batches, middle, rest = (math.prod(group, start=IntImm("int64", 1)) for group in groups)
    count, size = math.prod(positions[batch:], start=IntImm("int64", 1)), shape[axis]
    limit = R.astype(R.shape_to_tensor(rx.ShapeExpr((size,))), dtype_of(indices))
    if mode == "clip":
        one, zero = (number(value, dtype_of(indices)) for value in (1, 0))
        indices = R.minimum(R.maximum(indices, zero), R.subtract(limit, one))
    elif mode == "wrap":
        indices = R.floor_mod(indices, limit)
    rows = R.reshape(indices, (batches, 1, count, 1))
    found = R.gather_elements(
        R.reshape(data, (batches, middle, size, rest)),
        R.broadcast_to(rows, (batches, middle, count, rest)),
        2,
    )
    return R.reshape(found, (*shape[:axis], *positions[batch:], *shape[axis + 1 :]))


def _indices_last(indices: rx.Expr) -> rx.Expr:
    """Indices whose first axis, that of the coordinates, is the last, as in Relax."""
    return R.permute_dims(indices, [*range(1, len(dims(indices))), 0])


def _where(condition: rx.Expr, x: rx.Expr, y: rx.Expr) -> rx.Expr:
    if dtype_of(x) != dtype_of(y):
        raise RelationError(f"x and y have one datatype, found {dtype_of(x)} and {dtype_of(y)}")
    return R.where(condition, x, y)


@signature("indices on_value off_value", depth=REQUIRED, axis=-1, dtype="float32")
def _one_hot(o: Any) -> rx.Expr:
    rank, o.axis = len(dims(o.indices)), int(o.axis) % (len(dims(o.indices)) + 1)
    positions = R.arange(0, o.depth, 1, dtype_of(o.indices))
    shape = [o.depth if i == o.axis else 1 for i in range(rank + 1)]
    equal = R.equal(R.expand_dims(o.indices, o.axis), R.reshape(positions, shape))
    return R.where(equal, R.astype(o.on_value, o.dtype), R.astype(o.off_value, o.dtype))


def _trilu(data: rx.Expr, k: rx.Expr, *, upper: Any = True) -> rx.Expr:
    """The elements on one side of diagonal `k`, which is a tensor, and zeros elsewhere."""
    *_, rows, columns = dims(data)
    row = R.reshape(R.arange(0, rows, 1, "int64"), (rows, 1))
    column = R.reshape(R.arange(0, columns, 1, "int64"), (1, columns))
    offset, diagonal = R.subtract(column, row), R.astype(k, "int64")
    kept = R.greater_equal(offset, diagonal) if upper else R.less_equal(offset, diagonal)
    return R.where(kept, data, R.zeros_like(data))


def _adv_index(inputs: rx.Expr) -> rx.Expr:
    data, *indices = fields_of(inputs)
    return R.index_tensor(data, rx.Tuple(tuple(indices)))


define_all(
    {
        "strided_set": _strided_set,
        "strided_slice": _strided_slice,
        "slice_like": _slice_like,
        "take": _take,
        "gather": lambda data, indices, *, axis: R.gather_elements(data, indices, axis),
        "gather_nd": lambda data, indices, *, batch_dims=0, index_rank=None: R.gather_nd(
            data, _indices_last(indices), batch_dims
        ),
        "scatter_elements": lambda data, indices, updates, *, axis=0, reduction="update": (
            R.scatter_elements(data, indices, updates, axis, reduction)
        ),
        "scatter_nd": lambda data, indices, updates, *, mode="update": R.scatter_nd(
            data, _indices_last(indices), updates, mode
        ),
        "where": _where,
        "one_hot": _one_hot,
        "trilu": _trilu,
        "adv_index": _adv_index,
    }
)
define(
    "argwhere",
    lambda condition: R.permute_dims(R.nonzero(condition)),
    known_dims=lambda args, attrs: [[None, IntImm("int64", len(dims(args[0])))]],
)
