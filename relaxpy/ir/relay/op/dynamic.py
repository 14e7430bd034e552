"""Operators whose shapes are operands: the family `dyn`, `arange`, and positions of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import (
    Args,
    define,
    dims,
    dtype_of,
    fields_of,
    resized_dims,
    results_of_topk,
)
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.tir.expr import IntImm

_INDEX = "int64"


def _ints(*values: int) -> rx.Expr:
    return rx.Constant(np.array(values, _INDEX))


def _number(value: int) -> rx.Expr:
    return rx.Constant(np.array(value, _INDEX))


def _count(vector: rx.Expr) -> int:
    """Return the number of elements of a vector that describes a shape.

    Errors:
        RelationError: the operand is not a vector of known size, so that no rank is known.
    """
    shape = dims(vector)
    try:
        return int(shape[0]) if len(shape) == 1 else 1 // len(shape)
    except (TypeError, ValueError, ZeroDivisionError):
        raise RelationError("the rank of the result is not known") from None


def _sizes(data: rx.Expr) -> rx.Expr:
    """Return the shape of a tensor as a vector."""
    return R.shape_to_tensor(R.shape_of(data))


def _shape(vector: rx.Expr) -> rx.Expr:
    """Return a vector as a shape."""
    _count(vector)
    return R.tensor_to_shape(R.astype(vector, _INDEX))


def _vector(scalar: rx.Expr) -> rx.Expr:
    return R.reshape(R.astype(scalar, _INDEX), (1,))


def _positions(count: rx.Expr) -> rx.Expr:
    """Return 0, 1, … up to a count, which is a vector of one element."""
    return R.cumsum(R.ones(R.tensor_to_shape(count), _INDEX), 0, exclusive=True)


def _arange(args: Args, attrs: Any) -> rx.Expr:
    start, stop, step = (R.astype(arg, "float64") for arg in args)
    count = R.astype(R.ceil(R.divide(R.subtract(stop, start), step)), _INDEX)
    positions = R.astype(_positions(_vector(R.maximum(count, _number(0)))), "float64")
    return R.astype(R.add(start, R.multiply(positions, step)), attrs["dtype"])


define(
    "arange",
    "start stop step",
    _arange,
    {"dtype": "float32"},
)


def _reshape(args: Args, attrs: Any) -> rx.Expr:
    data, target = args[0], R.astype(args[1], _INDEX)
    count, sizes = _count(args[1]), _sizes(data)
    if not attrs["allowzero"]:
        rank = len(dims(data))
        padded = R.concat([sizes, _ints(*[1] * max(count - rank, 0))], 0)
        copied = R.take(padded, _ints(*range(count)), 0)
        target = R.where(R.equal(target, _number(0)), copied, target)
    inferred = R.equal(target, _number(-1))
    known = R.prod(R.where(inferred, _number(1), target))
    size = R.floor_divide(R.prod(sizes), R.maximum(known, _number(1)))
    return R.reshape(data, _shape(R.where(inferred, size, target)))


define("dyn.reshape", "data newshape", _reshape, {"allowzero": False})
define(
    "vm.reshape_tensor",
    "data shape",
    lambda args, attrs: R.reshape(args[0], _shape(args[1])),
    {"newshape": ()},
)
define(
    "dyn.broadcast_to",
    "data shape",
    lambda args, attrs: R.broadcast_to(args[0], _shape(args[1])),
    {"dtype": ""},
)


def _tile(args: Args, attrs: Any) -> rx.Expr:
    data, reps = args[0], R.astype(args[1], _INDEX)
    rank, count = len(dims(data)), _count(args[1])
    width = max(rank, count)
    sizes = R.concat([_ints(*[1] * (width - rank)), _sizes(data)], 0)
    reps = R.concat([_ints(*[1] * (width - count)), reps], 0)
    ones = _ints(*[1] * width)

    def between(vector: rx.Expr) -> rx.Expr:
        return _shape(R.reshape(R.stack([vector, sizes], 1), (2 * width,)))

    repeated = R.broadcast_to(R.reshape(data, between(ones)), between(reps))
    return R.reshape(repeated, _shape(R.multiply(reps, sizes)))


define("dyn.tile", "data reps", _tile)
define(
    "dyn.full",
    "fill_value shape",
    lambda args, attrs: R.full(_shape(args[1]), args[0], attrs["dtype"] or dtype_of(args[0])),
    {"dtype": ""},
)
for _name, _function in (("dyn.zeros", R.zeros), ("dyn.ones", R.ones)):
    define(
        _name,
        "shape",
        lambda args, attrs, function=_function: function(_shape(args[0]), attrs["dtype"]),  # type: ignore[misc]
        {"dtype": "float32"},
    )


def _one_hot(args: Args, attrs: Any) -> rx.Expr:
    indices, on_value, off_value, depth = args
    rank, dtype = len(dims(indices)), attrs["dtype"]
    axis = int(attrs["axis"]) % (rank + 1)
    positions = R.expand_dims(_positions(_vector(depth)), [i for i in range(rank + 1) if i != axis])
    equal = R.equal(R.expand_dims(R.astype(indices, _INDEX), axis), positions)
    return R.where(equal, R.astype(on_value, dtype), R.astype(off_value, dtype))


def _one_hot_dims(args: Args, attrs: Any) -> list[list[object]]:
    shape: list[object] = list(dims(args[0]))
    shape.insert(int(attrs["axis"]) % (len(shape) + 1), None)
    return [shape]


define(
    "dyn.one_hot",
    "indices on_value off_value depth",
    _one_hot,
    {"axis": -1, "dtype": "float32"},
    known_dims=_one_hot_dims,
)


def _slice(args: Args, attrs: Any) -> rx.Expr:
    data, *bounds = args
    rank, count = len(dims(data)), _count(args[1])
    if attrs["slice_mode"] != "end":
        raise RelationError(f"slice_mode is 'end', found {attrs['slice_mode']!r}")
    rest = _sizes(data)
    defaults = _ints(*[0] * rank), rest, _ints(*[1] * rank)
    whole = [
        R.concat([R.astype(bound, _INDEX), R.strided_slice(default, [0], [count], [rank], [1])], 0)
        if count < rank
        else R.astype(bound, _INDEX)
        for bound, default in zip(bounds, defaults, strict=True)
    ]
    return R.dynamic_strided_slice(data, *whole)


define(
    "dyn.strided_slice",
    "data begin end strides",
    _slice,
    {"slice_mode": "end", "axes": None},
)


def _topk(args: Args, attrs: Any) -> rx.Expr:
    data, k = args
    rank, ret_type = len(dims(data)), attrs["ret_type"]
    axis = int(attrs["axis"]) % rank
    descending = not attrs["is_ascend"]
    sizes = _sizes(data)
    is_axis = rx.Constant(np.arange(rank) == axis)
    end = R.where(is_axis, R.minimum(_vector(k), sizes), sizes)
    begin, strides = _ints(*[0] * rank), _ints(*[1] * rank)

    def first(sorted_: rx.Expr) -> rx.Expr:
        return R.dynamic_strided_slice(sorted_, begin, end, strides)

    values = first(R.sort(data, axis, descending))
    indices = first(R.argsort(data, axis, descending, attrs["dtype"]))
    if ret_type == "both":
        return rx.Tuple((values, indices))
    return values if ret_type == "values" else indices


def _topk_dims(args: Args, attrs: Any) -> list[list[object]]:
    shape: list[object] = list(dims(args[0]))
    shape[int(attrs["axis"])] = None
    return [shape, shape]


define(
    "dyn.topk",
    "data k",
    _topk,
    {"axis": -1, "ret_type": "both", "is_ascend": False, "dtype": "int32"},
    results=results_of_topk,
    known_dims=_topk_dims,
)


def _pad(args: Args, attrs: Any) -> rx.Expr:
    data, width, value = args
    if attrs["pad_mode"] != "constant":
        raise RelationError(f"pad_mode is 'constant', found {attrs['pad_mode']!r}")
    before, after = (
        R.reshape(R.strided_slice(R.astype(width, _INDEX), [1], [i], [i + 1], [1]), (-1,))
        for i in (0, 1)
    )
    rank = len(dims(data))
    size = R.add(R.add(_sizes(data), R.reshape(before, (rank,))), R.reshape(after, (rank,)))
    whole = R.full(_shape(size), value, dtype_of(data))
    positions = R.permute_dims(R.nonzero(R.ones_like(data, "int8")))
    return R.scatter_nd(whole, R.add(positions, before), R.reshape(data, (-1,)))


define("dyn.nn.pad", "data pad_width pad_value", _pad, {"pad_mode": "constant"})


def _expand_dims(args: Args, attrs: Any) -> rx.Expr:
    data, axis = args[0], _vector(args[1])
    rank = len(dims(data))
    number = int(attrs["num_newaxis"])
    axis = R.where(R.less(axis, _number(0)), R.add(axis, _number(rank + 1)), axis)
    place = _ints(*range(rank + number))
    source = R.where(R.less(place, axis), place, R.subtract(place, _number(number)))
    sizes = R.take(_sizes(data), R.maximum(source, _number(0)), 0, mode="clip")
    is_new = R.logical_and(
        R.greater_equal(place, axis), R.less(place, R.add(axis, _number(number)))
    )
    return R.reshape(data, _shape(R.where(is_new, _number(1), sizes)))


define("dyn.expand_dims", "data axis", _expand_dims, {"num_newaxis": 1})


def _squeeze(args: Args, attrs: Any) -> rx.Expr:
    data, axes = args[0], R.astype(args[1], _INDEX)
    rank, count = len(dims(data)), _count(args[1])
    axes = R.where(R.less(axes, _number(0)), R.add(axes, _number(rank)), axes)
    equal = R.equal(R.reshape(_ints(*range(rank)), (rank, 1)), R.reshape(axes, (1, count)))
    dropped = R.max(R.astype(equal, "int32"), [1])
    kept = R.strided_slice(R.argsort(dropped, 0, False, _INDEX), [0], [0], [rank - count], [1])
    kept = R.sort(kept, 0)
    return R.reshape(data, _shape(R.take(_sizes(data), kept, 0)))


define("dyn.squeeze", "data axis", _squeeze)


# Positions of elements

define(
    "argwhere",
    "condition",
    lambda args, attrs: R.permute_dims(R.nonzero(args[0])),
    known_dims=lambda args, attrs: [[None, IntImm("int64", len(dims(args[0])))]],
)
define(
    "adv_index", "inputs", lambda args, attrs: R.index_tensor(fields_of(args[0])[0], _tuple(args))
)


def _tuple(args: Args) -> rx.Expr:
    return rx.Tuple(tuple(fields_of(args[0])[1:]))


def _upsampling3d(args: Args, attrs: Any) -> rx.Expr:
    """Images of three dimensions of another size: first of the height and width, then the depth."""
    data, *scales = args
    methods = {"nearest_neighbor": "nearest_neighbor", "trilinear": "linear"}
    layout, method = attrs["layout"], attrs["method"]
    if sorted(layout) != sorted("NCDHW") or method not in methods:
        raise RelationError(
            f"the layout is an order of NCDHW, and the method {' or '.join(methods)}, "
            f"found {layout!r} and {method!r}"
        )
    order = [layout.index(axis) for axis in "NCDHW"]
    data = R.permute_dims(data, order)
    sizes = _sizes(data)
    floats = [R.astype(R.reshape(scale, (1,)), "float32") for scale in scales]
    scaled = R.multiply(_part(R.astype(sizes, "float32"), 2, 5), R.concat(floats, 0))
    new = R.astype(scaled, _INDEX)
    outer, depth, inner = _part(sizes, 0, 2), _part(sizes, 2, 3), _part(sizes, 3, 5)
    options = {
        "layout": "NCHW",
        "method": methods[method],
        "coordinate_transformation_mode": attrs["coordinate_transformation_mode"],
        "rounding_method": "floor",
    }

    def whole(vector: rx.Expr) -> rx.Expr:
        return R.prod(vector, [0], True)

    images = R.concat([whole(_part(sizes, 0, 3)), _ints(1), inner], 0)
    plane = _part(new, 1, 3)
    wide = R.image.resize2d(R.reshape(data, _shape(images)), R.tensor_to_shape(plane), **options)
    columns = R.concat([whole(outer), _ints(1), depth, whole(plane)], 0)
    size = R.concat([_part(new, 0, 1), whole(plane)], 0)
    deep = R.image.resize2d(R.reshape(wide, _shape(columns)), R.tensor_to_shape(size), **options)
    result = R.reshape(deep, _shape(R.concat([outer, new], 0)))
    return R.permute_dims(result, ["NCDHW".index(axis) for axis in layout])


def _part(vector: rx.Expr, begin: int, end: int) -> rx.Expr:
    return R.strided_slice(vector, [0], [begin], [end], [1])


define(
    "dyn.nn.upsampling3d",
    "data scale_d scale_h scale_w",
    _upsampling3d,
    {
        "layout": "NCDHW",
        "method": "nearest_neighbor",
        "coordinate_transformation_mode": "asymmetric",
    },
    known_dims=resized_dims,
)
