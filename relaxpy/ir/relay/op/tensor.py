"""Operators that reduce, create, reshape, convert and sort tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.expr import Call, Tuple
from relaxpy.ir.relay.op.define import (
    Args,
    axes_of,
    define,
    dims,
    dtype_of,
    fields_of,
    listed,
    number,
    results_of_topk,
)
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.tir.expr import IntImm

# Unary operators that Relax has by composition


define("copy", "data", lambda args, attrs: args[0], relation="Identity")
define(
    "log2",
    "data",
    lambda args, attrs: R.divide(R.log(args[0]), number(math.log(2), dtype_of(args[0]))),
    relation="Identity",
)
define(
    "log10",
    "data",
    lambda args, attrs: R.divide(R.log(args[0]), number(math.log(10), dtype_of(args[0]))),
    relation="Identity",
)
define("fast_exp", "data", lambda args, attrs: R.exp(args[0]), relation="Identity")
define("fast_erf", "data", lambda args, attrs: R.erf(args[0]), relation="Identity")
define("fast_tanh", "data", lambda args, attrs: R.tanh(args[0]), relation="Identity")
define("isnan", "data", lambda args, attrs: R.isnan(args[0]))
define("isfinite", "data", lambda args, attrs: R.isfinite(args[0]))
define("isinf", "data", lambda args, attrs: R.isinf(args[0]))
define(
    "clip",
    "a",
    lambda args, attrs: R.clip(args[0], attrs["a_min"], attrs["a_max"]),
    {"a_min": REQUIRED, "a_max": REQUIRED},
    relation="Identity",
)
define("trunc_divide", "lhs rhs", lambda args, attrs: R.divide(*args), relation="Broadcast")
define("trunc_mod", "lhs rhs", lambda args, attrs: R.mod(*args), relation="Broadcast")


def _fixed_point_multiply(args: Args, attrs: Any) -> rx.Expr:
    """Data times multiplier / 2**31, times 2**shift, rounded to the nearest, upwards of two."""
    shift = int(attrs["shift"])
    right = 31 - min(shift, 0)
    wide = R.left_shift(R.astype(args[0], "int64"), number(max(shift, 0), "int64"))
    product = R.multiply(wide, number(int(attrs["multiplier"]), "int64"))
    nudged = R.add(product, number(1 << (right - 1), "int64"))
    return R.astype(R.right_shift(nudged, number(right, "int64")), dtype_of(args[0]))


define(
    "fixed_point_multiply",
    "data",
    _fixed_point_multiply,
    {"multiplier": REQUIRED, "shift": REQUIRED},
    relation="Identity",
)


def _fixed_point_multiply_per_axis(args: Args, attrs: Any) -> rx.Expr:
    """As above, with a multiplier and shifts to the left and to the right along some axes."""
    data, *parameters = args
    rank, axes = len(dims(data)), axes_of(attrs["axes"], len(dims(data)))
    shape = [dims(data)[axis] if axis in axes else 1 for axis in range(rank)]
    multiplier, left, right = (R.reshape(R.astype(p, "int64"), shape) for p in parameters)
    wide = R.astype(data, "int64")
    if attrs["is_lshift_required"]:
        wide = R.left_shift(wide, left)
    right = R.add(right, number(31, "int64"))
    half = R.left_shift(number(1, "int64"), R.subtract(right, number(1, "int64")))
    product = R.add(R.multiply(wide, multiplier), half)
    return R.astype(R.right_shift(product, right), dtype_of(data))


define(
    "fixed_point_multiply_per_axis",
    "x y lshift rshift",
    _fixed_point_multiply_per_axis,
    {"is_lshift_required": False, "is_rshift_required": False, "axes": ()},
)


# Reductions


_REDUCTION = {"axis": None, "keepdims": False, "exclude": False}


def _axes(args: Args, attrs: Any) -> dict[str, Any]:
    rank = len(dims(args[0]))
    axes = axes_of(attrs["axis"], rank, exclude=bool(attrs["exclude"]))
    return {"axis": axes, "keepdims": bool(attrs["keepdims"])}


def _reduction(name: str) -> Any:
    function = getattr(R, name)
    return lambda args, attrs: function(args[0], **_axes(args, attrs))


for _name in ("sum", "max", "min", "mean", "prod"):
    define(_name, "data", _reduction(_name), _REDUCTION)


def _all_or_any(function: Any) -> Any:
    def translate(args: Args, attrs: Any) -> rx.Expr:
        numbers = R.astype(args[0], "int8")
        reduced = function(numbers, **_axes(args, attrs))
        return R.astype(reduced, "bool")

    return translate


define("all", "data", _all_or_any(R.min), _REDUCTION)
define("any", "data", _all_or_any(R.max), _REDUCTION)


def _position(function: Any) -> Any:
    """The position of an extremum along one axis, or in the flattened tensor, as int32."""

    def translate(args: Args, attrs: Any) -> rx.Expr:
        data = args[0]
        rank = len(dims(data))
        axes = _axes(args, attrs)["axis"]
        keepdims = bool(attrs["keepdims"])
        if len(axes) == rank and rank != 1:
            data, axis = R.reshape(data, (-1,)), 0
        elif len(axes) == 1:
            axis = axes[0]
        else:
            raise RelationError(f"expected one axis or all, found {axes}")
        last = bool(attrs["select_last_index"])
        found = function(R.flip(data, axis) if last else data, axis, keepdims)
        found = R.astype(found, "int32")
        if last:
            size = dims(data)[axis]
            found = R.subtract(number(int(size) - 1, "int32"), found)
        return R.reshape(found, [1] * rank) if keepdims and data is not args[0] else found

    return translate


define("argmax", "data", _position(R.argmax), {**_REDUCTION, "select_last_index": False})
define("argmin", "data", _position(R.argmin), {**_REDUCTION, "select_last_index": False})


def _variance(args: Args, attrs: Any) -> rx.Expr:
    data, mean = args
    options = _axes(args, attrs)
    deviation = R.subtract(data, mean)
    total = R.sum(R.multiply(deviation, deviation), **options)
    sizes = dims(data)
    count = math.prod(int(sizes[axis]) for axis in options["axis"]) - bool(attrs["unbiased"])
    return R.divide(total, number(count, dtype_of(data)))


define("variance", "data mean", _variance, {**_REDUCTION, "unbiased": False})


# Creation


define(
    "zeros",
    "",
    lambda args, attrs: R.zeros(listed(attrs["shape"]), attrs["dtype"]),
    {"shape": REQUIRED, "dtype": "float32"},
)
define(
    "ones",
    "",
    lambda args, attrs: R.ones(listed(attrs["shape"]), attrs["dtype"]),
    {"shape": REQUIRED, "dtype": "float32"},
)
define(
    "full",
    "fill_value",
    lambda args, attrs: R.full(
        listed(attrs["shape"]), args[0], attrs["dtype"] or dtype_of(args[0])
    ),
    {"shape": REQUIRED, "dtype": ""},
    makers={"shape": ()},
)
define("full_like", "data fill_value", lambda args, attrs: R.full_like(args[0], args[1]))


# Shapes


def _reshape(args: Args, attrs: Any) -> rx.Expr:
    return R.reshape(args[0], _new_shape(dims(args[0]), listed(attrs["newshape"]), attrs))


def _new_shape(old: tuple[Any, ...], codes: list[Any], attrs: Any) -> list[Any]:
    """The shape that TVM's codes describe: 0 copies a dimension, -1 is inferred.

    -2 copies the rest, -3 is the product of two, and -4 splits one in the next two codes.
    """
    new: list[Any] = []
    position = index = 0
    while index < len(codes):
        code = int(codes[index])
        index += 1
        if code > 0 or (code == 0 and attrs["allowzero"]):
            new.append(code)
            position += 1
        elif code == -1:
            new.append(-1)
            position += 1
        elif code == 0:
            new.append(_at(old, position))
            position += 1
        elif code == -2:
            new += old[position:]
            position = len(old)
        elif code == -3:
            new.append(_at(old, position) * _at(old, position + 1))
            position += 2
        elif code == -4 and index + 1 < len(codes):
            one, other = int(codes[index]), int(codes[index + 1])
            size = _at(old, position)
            new += [
                size // other if one == -1 else one,
                size // one if other == -1 else other,
            ]
            position, index = position + 1, index + 2
        else:
            raise RelationError(f"newshape has no code {code} here")
    return new


def _at(old: tuple[Any, ...], position: int) -> Any:
    if position >= len(old):
        raise RelationError(f"newshape refers to dimension {position} of a tensor of {len(old)}")
    return old[position]


define("reshape", "data", _reshape, {"newshape": REQUIRED, "allowzero": False})


def _reverse_reshape(args: Args, attrs: Any) -> rx.Expr:
    codes = listed(attrs["newshape"])[::-1]
    return R.reshape(args[0], _new_shape(dims(args[0])[::-1], codes, attrs)[::-1])


define(
    "contrib_reverse_reshape", "data", _reverse_reshape, {"newshape": REQUIRED, "allowzero": False}
)


def _reshape_like(args: Args, attrs: Any) -> rx.Expr:
    """The data with some dimensions replaced by some of another tensor."""
    old, like = dims(args[0]), dims(args[1])
    begin, end, _ = slice(attrs["lhs_begin"], attrs["lhs_end"]).indices(len(old))
    new = like[attrs["rhs_begin"] : attrs["rhs_end"]]
    return R.reshape(args[0], (*old[:begin], *new, *old[end:]))


define(
    "reshape_like",
    "data shape_like",
    _reshape_like,
    {"lhs_begin": 0, "lhs_end": None, "rhs_begin": 0, "rhs_end": None},
)
define(
    "expand_dims",
    "data",
    lambda args, attrs: R.expand_dims(args[0], _new_axes(args[0], attrs)),
    {"axis": REQUIRED, "num_newaxis": 1},
)


def _new_axes(data: rx.Expr, attrs: Any) -> list[int]:
    """The positions of new axes in the result."""
    count, rank = int(attrs["num_newaxis"]), len(dims(data))
    axis = int(attrs["axis"])
    first = axis if axis >= 0 else axis + rank + 1
    if not 0 <= first <= rank:
        raise RelationError(f"axis {axis} is out of range for rank {rank}")
    return [first + i for i in range(count)]


define(
    "squeeze",
    "data",
    lambda args, attrs: R.squeeze(
        args[0], None if attrs["axis"] is None else listed(attrs["axis"])
    ),
    {"axis": None},
)
define(
    "transpose",
    "data",
    lambda args, attrs: R.permute_dims(
        args[0], None if attrs["axes"] is None else listed(attrs["axes"])
    ),
    {"axes": None},
)
define(
    "concatenate",
    "data",
    lambda args, attrs: R.concat(fields_of(args[0]), attrs["axis"]),
    {"axis": 0},
)
define(
    "stack",
    "data",
    lambda args, attrs: R.stack(fields_of(args[0]), attrs["axis"]),
    {"axis": 0},
)


def _split(args: Args, attrs: Any) -> rx.Expr:
    where = attrs["indices_or_sections"]
    if isinstance(where, int):
        size = dims(args[0])[axes_of(attrs["axis"], len(dims(args[0])))[0]]
        if isinstance(size, IntImm) and size.value % max(where, 1):
            raise RelationError(f"{size.value} elements are not divided into {where} equal parts")
    return R.split(args[0], listed(where) if isinstance(where, tuple) else where, attrs["axis"])


def _number_of_sections(call: Call, attrs: Mapping[str, Any]) -> int:
    where = attrs["indices_or_sections"]
    return len(where) + 1 if isinstance(where, tuple) else int(where)


define(
    "split",
    "data",
    _split,
    {"indices_or_sections": REQUIRED, "axis": 0},
    results=_number_of_sections,
)
define(
    "tile", "data", lambda args, attrs: R.tile(args[0], listed(attrs["reps"])), {"reps": REQUIRED}
)
define(
    "repeat",
    "data",
    lambda args, attrs: R.repeat(args[0], attrs["repeats"], attrs["axis"]),
    {"repeats": REQUIRED, "axis": REQUIRED},
)
define(
    "broadcast_to",
    "data",
    lambda args, attrs: R.broadcast_to(args[0], listed(attrs["shape"])),
    {"shape": REQUIRED, "dtype": ""},
)
define(
    "broadcast_to_like", "data broadcast_type", lambda a, attrs: R.broadcast_to(a[0], dims(a[1]))
)
define(
    "collapse_sum_to",
    "data",
    lambda args, attrs: R.collapse_sum_to(args[0], listed(attrs["shape"])),
    {"shape": REQUIRED},
)
define("collapse_sum_like", "data collapse_type", lambda a, attrs: R.collapse_sum_like(a[0], a[1]))
define("reverse", "data", lambda args, attrs: R.flip(args[0], attrs["axis"]), {"axis": REQUIRED})
define(
    "meshgrid",
    "data",
    lambda args, attrs: R.meshgrid(fields_of(args[0]), attrs["indexing"]),
    {"indexing": "ij"},
    results=lambda call, _: len(call.args[0]) if isinstance(call.args[0], (Tuple, Call)) else 1,
)
define("nn.batch_flatten", "data", lambda args, attrs: R.reshape(args[0], (dims(args[0])[0], -1)))


# Datatypes and sizes


define("cast", "data", lambda args, attrs: R.astype(args[0], attrs["dtype"]), {"dtype": REQUIRED})
define("cast_like", "data dtype_like", lambda a, attrs: R.astype(a[0], dtype_of(a[1])))
define(
    "shape_of vm.shape_of",
    "data",
    lambda args, attrs: R.astype(R.shape_to_tensor(R.shape_of(args[0])), attrs["dtype"]),
    {"dtype": "int32"},
)


def _ndarray_size(args: Args, attrs: Any) -> rx.Expr:
    sizes = R.shape_to_tensor(R.shape_of(args[0]))
    return R.astype(R.prod(sizes), attrs["dtype"])


define("ndarray_size", "data", _ndarray_size, {"dtype": "int32"})


# Sorting and scans


define(
    "sort",
    "data",
    lambda args, attrs: R.sort(args[0], attrs["axis"], not attrs["is_ascend"]),
    {"axis": -1, "is_ascend": True},
)
define(
    "argsort",
    "data",
    lambda args, attrs: R.argsort(args[0], attrs["axis"], not attrs["is_ascend"], attrs["dtype"]),
    {"axis": -1, "is_ascend": True, "dtype": "int32"},
)
define(
    "topk",
    "data",
    lambda args, attrs: R.topk(
        args[0],
        attrs["k"],
        attrs["axis"],
        attrs["ret_type"],
        not attrs["is_ascend"],
        attrs["dtype"],
    ),
    {"k": 1, "axis": -1, "ret_type": "both", "is_ascend": False, "dtype": "int32"},
    results=results_of_topk,
)
for _name, _function in (("cumsum", R.cumsum), ("cumprod", R.cumprod)):
    define(
        _name,
        "data",
        lambda args, attrs, function=_function: function(  # type: ignore[misc]
            args[0], attrs["axis"], attrs["dtype"] or None, bool(attrs["exclusive"])
        ),
        {"axis": None, "dtype": "", "exclusive": False},
    )
define(
    "einsum",
    "data",
    lambda args, attrs: R.einsum(fields_of(args[0]), attrs["equation"]),
    {"equation": REQUIRED},
)
