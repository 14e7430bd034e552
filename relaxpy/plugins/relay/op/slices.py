"""Operators that slice, select, gather and scatter, also where shapes are operands."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from relaxpy.ir import ops as R  # noqa: N812
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.expr import IntImm
from relaxpy.plugins.relay.op.define import (
    Args,
    axes_of,
    define,
    define_all,
    dims,
    dtype_of,
    fields_of,
    listed,
    number,
    results_of_topk,
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
    batch = int(batch_dims) + (len(positions) if int(batch_dims) < 0 else 0)
    if not 0 <= batch <= min(axis, len(positions)):
        raise RelationError(
            f"batch_dims is at most axis and the rank of indices, found {batch_dims}, {axis} and "
            f"{len(positions)}"
        )
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


_INDEX: Final = "int64"


def _ints(*values: int) -> rx.Expr:
    return rx.Constant(np.array(values, _INDEX))


def _number(value: int) -> rx.Expr:
    return rx.Constant(np.array(value, _INDEX))


def _count(vector: rx.Expr) -> int:
    """The number of elements of a vector that describes a shape."""
    shape = dims(vector)
    try:
        return int(shape[0]) if len(shape) == 1 else 1 // len(shape)
    except (TypeError, ValueError, ZeroDivisionError):
        raise RelationError("the rank of the result is not known") from None


def _sizes(data: rx.Expr) -> rx.Expr:
    """The shape of a tensor as a vector."""
    return R.shape_to_tensor(R.shape_of(data))


def _shape(vector: rx.Expr) -> rx.Expr:
    """A vector as a shape."""
    _count(vector)
    return R.tensor_to_shape(R.astype(vector, _INDEX))


def _vector(scalar: rx.Expr) -> rx.Expr:
    return R.reshape(R.astype(scalar, _INDEX), (1,))


def _positions(count: rx.Expr) -> rx.Expr:
    """0, 1, … up to a count, which is a vector of one element."""
    return R.cumsum(R.ones(R.tensor_to_shape(count), _INDEX), 0, exclusive=True)


def _arange(start: rx.Expr, stop: rx.Expr, step: rx.Expr, *, dtype: Any = "float32") -> rx.Expr:
    bounds = start, stop, step
    wide = "float64" if any("float" in dtype_of(bound) for bound in bounds) else _INDEX
    start, stop, step = (R.astype(bound, wide) for bound in bounds)
    if wide == _INDEX:
        count = R.negative(R.floor_divide(R.subtract(start, stop), step))
    else:
        count = R.astype(R.ceil(R.divide(R.subtract(stop, start), step)), _INDEX)
    positions = R.astype(_positions(_vector(R.maximum(count, _number(0)))), wide)
    return R.astype(R.add(start, R.multiply(positions, step)), dtype)


def _reshape(data: rx.Expr, newshape: rx.Expr, *, allowzero: Any = False) -> rx.Expr:
    target = R.astype(newshape, _INDEX)
    count, sizes = _count(newshape), _sizes(data)
    if not allowzero:
        rank = len(dims(data))
        padded = R.concat([sizes, _ints(*[1] * max(count - rank, 0))], 0)
        copied = R.take(padded, _ints(*range(count)), 0)
        target = R.where(R.equal(target, _number(0)), copied, target)
    inferred = R.equal(target, _number(-1))
    known = R.prod(R.where(inferred, _number(1), target))
    size = R.floor_divide(R.prod(sizes), R.maximum(known, _number(1)))
    return R.reshape(data, _shape(R.where(inferred, size, target)))


def _tile(data: rx.Expr, reps: rx.Expr) -> rx.Expr:
    rank, count = len(dims(data)), _count(reps)
    width = max(rank, count)
    sizes = R.concat([_ints(*[1] * (width - rank)), _sizes(data)], 0)
    reps = R.concat([_ints(*[1] * (width - count)), R.astype(reps, _INDEX)], 0)
    ones = _ints(*[1] * width)

    def between(vector: rx.Expr) -> rx.Expr:
        return _shape(R.reshape(R.stack([vector, sizes], 1), (2 * width,)))

    repeated = R.broadcast_to(R.reshape(data, between(ones)), between(reps))
    return R.reshape(repeated, _shape(R.multiply(reps, sizes)))


@signature("indices on_value off_value depth", axis=-1, dtype="float32")
def _dynamic_one_hot(o: Any) -> rx.Expr:
    rank = len(dims(o.indices))
    o.axis = int(o.axis) % (rank + 1)
    positions = R.expand_dims(
        _positions(_vector(o.depth)), [i for i in range(rank + 1) if i != o.axis]
    )
    equal = R.equal(R.expand_dims(R.astype(o.indices, _INDEX), o.axis), positions)
    return R.where(equal, R.astype(o.on_value, o.dtype), R.astype(o.off_value, o.dtype))


def _one_hot_dims(args: Args, attrs: Any) -> list[list[object]]:
    shape: list[object] = list(dims(args[0]))
    shape.insert(int(attrs["axis"]) % (len(shape) + 1), None)
    return [shape]


@signature("data begin end strides", slice_mode="end", axes=None)
def _slice(o: Any) -> rx.Expr:
    rank, count = len(dims(o.data)), _count(o.begin)
    if o.slice_mode != "end":
        raise RelationError(f"slice_mode is 'end', found {o.slice_mode!r}")
    defaults = _ints(*[0] * rank), _sizes(o.data), _ints(*[1] * rank)
    whole = [
        R.concat([R.astype(bound, _INDEX), R.strided_slice(default, [0], [count], [rank], [1])], 0)
        if count < rank
        else R.astype(bound, _INDEX)
        for bound, default in zip((o.begin, o.end, o.strides), defaults, strict=True)
    ]
    return R.dynamic_strided_slice(o.data, *whole)


@signature("data k", axis=-1, ret_type="both", is_ascend=False, dtype="int32")
def _topk(o: Any) -> rx.Expr:
    rank, sizes = len(dims(o.data)), _sizes(o.data)
    o.axis = int(o.axis) % rank
    end = R.where(rx.Constant(np.arange(rank) == o.axis), R.minimum(_vector(o.k), sizes), sizes)

    def first(ordered: rx.Expr) -> rx.Expr:
        return R.dynamic_strided_slice(ordered, _ints(*[0] * rank), end, _ints(*[1] * rank))

    values = first(R.sort(o.data, o.axis, not o.is_ascend))
    indices = first(R.argsort(o.data, o.axis, not o.is_ascend, o.dtype))
    if o.ret_type == "both":
        return rx.Tuple((values, indices))
    return values if o.ret_type == "values" else indices


def _topk_dims(args: Args, attrs: Any) -> list[list[object]]:
    shape: list[object] = list(dims(args[0]))
    shape[int(attrs["axis"])] = None
    return [shape, shape]


def _pad(
    data: rx.Expr, pad_width: rx.Expr, pad_value: rx.Expr, *, pad_mode: Any = "constant"
) -> rx.Expr:
    if pad_mode != "constant":
        raise RelationError(f"pad_mode is 'constant', found {pad_mode!r}")
    before, after = (
        R.reshape(R.strided_slice(R.astype(pad_width, _INDEX), [1], [i], [i + 1], [1]), (-1,))
        for i in (0, 1)
    )
    rank = len(dims(data))
    size = R.add(R.add(_sizes(data), R.reshape(before, (rank,))), R.reshape(after, (rank,)))
    whole = R.full(_shape(size), pad_value, dtype_of(data))
    positions = R.permute_dims(R.nonzero(R.ones_like(data, "int8")))
    return R.scatter_nd(whole, R.add(positions, before), R.reshape(data, (-1,)))


def _expand_dims(data: rx.Expr, axis: rx.Expr, *, num_newaxis: Any = 1) -> rx.Expr:
    rank, count = len(dims(data)), int(num_newaxis)
    axis = _vector(axis)
    axis = R.where(R.less(axis, _number(0)), R.add(axis, _number(rank + 1)), axis)
    place = _ints(*range(rank + count))
    source = R.where(R.less(place, axis), place, R.subtract(place, _number(count)))
    sizes = R.take(_sizes(data), R.maximum(source, _number(0)), 0, mode="clip")
    is_new = R.logical_and(R.greater_equal(place, axis), R.less(place, R.add(axis, _number(count))))
    return R.reshape(data, _shape(R.where(is_new, _number(1), sizes)))


def _squeeze(data: rx.Expr, axis: rx.Expr) -> rx.Expr:
    axes, rank, count = R.astype(axis, _INDEX), len(dims(data)), _count(axis)
    axes = R.where(R.less(axes, _number(0)), R.add(axes, _number(rank)), axes)
    equal = R.equal(R.reshape(_ints(*range(rank)), (rank, 1)), R.reshape(axes, (1, count)))
    dropped = R.max(R.astype(equal, "int32"), [1])
    kept = R.strided_slice(R.argsort(dropped, 0, False, _INDEX), [0], [0], [rank - count], [1])
    return R.reshape(data, _shape(R.take(_sizes(data), R.sort(kept, 0), 0)))


define_all(
    {
        "arange": _arange,
        "dyn.reshape": _reshape,
        "dyn.broadcast_to": lambda data, shape, *, dtype="": R.broadcast_to(data, _shape(shape)),
        "dyn.tile": _tile,
        "dyn.full": lambda fill_value, shape, *, dtype="": R.full(
            _shape(shape), fill_value, dtype or dtype_of(fill_value)
        ),
        "dyn.zeros": lambda shape, *, dtype="float32": R.zeros(_shape(shape), dtype),
        "dyn.ones": lambda shape, *, dtype="float32": R.ones(_shape(shape), dtype),
        "dyn.strided_slice": _slice,
        "dyn.nn.pad": _pad,
        "dyn.expand_dims": _expand_dims,
        "dyn.squeeze": _squeeze,
    }
)
define("dyn.one_hot", _dynamic_one_hot, known_dims=_one_hot_dims)
define("dyn.topk", _topk, results=results_of_topk, known_dims=_topk_dims)
