"""Operators that compute elements, reduce, create, reshape, convert and sort tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from relaxpy.ir import ops as R  # noqa: N812
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.te import topi
from relaxpy.ir.tir.expr import IntImm
from relaxpy.plugins.relay.expr import Call, Tuple
from relaxpy.plugins.relay.op.define import (
    axes_of,
    define,
    define_all,
    define_te,
    dims,
    dtype_of,
    fields_of,
    listed,
    number,
    results_of_topk,
    signature,
)
from relaxpy.plugins.relay.op.relations import RelationError

# Elementwise operators, unary and binary (RLY-24, RLY-102)

_SAME_NAMES: Final = {
    ("data", "Identity"): """
        abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log log2 log10 negative
        round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc bitwise_not logical_not
        zeros_like ones_like
    """,
    ("lhs rhs", "Broadcast"): """
        add subtract multiply divide floor_divide power mod floor_mod maximum minimum
        left_shift right_shift logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
    """,
    ("lhs rhs", "BroadcastComp"): "equal not_equal less less_equal greater greater_equal",
}
for (_operands, _relation), _names in _SAME_NAMES.items():
    for _name in _names.split():
        define(_name, getattr(R, _name), _operands, {}, relation=_relation)


define_all(
    {
        "copy": lambda data: data,
        "fast_exp": lambda data: R.exp(data),
        "fast_erf": lambda data: R.erf(data),
        "fast_tanh": lambda data: R.tanh(data),
        "clip": lambda a, *, a_min, a_max: R.clip(a, a_min, a_max),
    },
    "Identity",
)
define_all(
    {
        "trunc_divide": lambda lhs, rhs: R.trunc(R.divide(lhs, rhs)),
        "trunc_mod": lambda lhs, rhs: R.mod(lhs, rhs),
    },
    "Broadcast",
)
define_all(
    {
        "isnan": lambda data: R.isnan(data),
        "isfinite": lambda data: R.isfinite(data),
        "isinf": lambda data: R.isinf(data),
    }
)

# Reductions

_REDUCTION: Final = {"axis": None, "keepdims": False, "exclude": False}


def _reduced(data: rx.Expr, attrs: Any) -> dict[str, Any]:
    """The axes that are reduced, and whether they stay."""
    axes = axes_of(attrs["axis"], len(dims(data)), exclude=bool(attrs["exclude"]))
    return {"axis": axes, "keepdims": bool(attrs["keepdims"])}


def _reduction(function: Any) -> Any:
    return lambda data, **attrs: function(data, **_reduced(data, attrs))


def _of_booleans(function: Any) -> Any:
    return lambda data, **attrs: R.astype(
        function(R.astype(data, "int8"), **_reduced(data, attrs)), "bool"
    )


def _position(function: Any) -> Any:
    """The position of an extremum along one axis, or in the flattened tensor, as int32."""

    def translate(data: rx.Expr, *, select_last_index: Any, **attrs: Any) -> rx.Expr:
        whole, rank = data, len(dims(data))
        axes, keepdims = _reduced(data, attrs).values()
        if len(axes) == rank and rank != 1:
            data, axis = R.reshape(data, (-1,)), 0
        elif len(axes) == 1:
            axis = axes[0]
        else:
            raise RelationError(f"expected one axis or all, found {axes}")
        found = function(R.flip(data, axis) if select_last_index else data, axis, keepdims)
        found = R.astype(found, "int32")
        if select_last_index:
            size = dims(data)[axis]
            found = R.subtract(number(int(size) - 1, "int32"), found)
        return R.reshape(found, [1] * rank) if keepdims and data is not whole else found

    return translate


def _variance(data: rx.Expr, mean: rx.Expr, *, unbiased: Any, **attrs: Any) -> rx.Expr:
    options, sizes = _reduced(data, attrs), dims(data)
    deviation = R.subtract(data, mean)
    total = R.sum(R.multiply(deviation, deviation), **options)
    count = math.prod(int(sizes[axis]) for axis in options["axis"]) - bool(unbiased)
    return R.divide(total, number(count, dtype_of(data)))


for _name in ("sum", "max", "min", "mean", "prod"):
    define(_name, _reduction(getattr(R, _name)), attributes=_REDUCTION)
for _name, _function in (("all", R.min), ("any", R.max)):
    define(_name, _of_booleans(_function), attributes=_REDUCTION)
for _name in ("argmax", "argmin"):
    _of_position = {**_REDUCTION, "select_last_index": False}
    define(_name, _position(getattr(R, _name)), attributes=_of_position)
define("variance", _variance, attributes={**_REDUCTION, "unbiased": False})

# Creation

define_all(
    {
        "zeros": lambda *, shape, dtype="float32": R.zeros(listed(shape), dtype),
        "ones": lambda *, shape, dtype="float32": R.ones(listed(shape), dtype),
        "full_like": lambda data, fill_value: R.full_like(data, fill_value),
    }
)
define(
    "full",
    lambda fill_value, *, shape, dtype="": R.full(
        listed(shape), fill_value, dtype or dtype_of(fill_value)
    ),
    makers={"shape": ()},
)

# Shapes


def _new_shape(old: tuple[Any, ...], codes: list[Any], allowzero: object) -> list[Any]:
    """The shape that TVM's codes describe: 0 copies a dimension, -1 is inferred.

    -2 copies the rest, -3 is the product of two, and -4 splits one in the next two codes.
    """
    new: list[Any] = []
    position = index = 0
    while index < len(codes):
        code = int(codes[index])
        index += 1
        if code > 0 or code == -1 or (code == 0 and allowzero):
            new.append(code)
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
            new += [size // other if one == -1 else one, size // one if other == -1 else other]
            position, index = position + 1, index + 2
        else:
            raise RelationError(f"newshape has no code {code} here")
    return new


def _at(old: tuple[Any, ...], position: int) -> Any:
    if position >= len(old):
        raise RelationError(f"newshape refers to dimension {position} of a tensor of {len(old)}")
    return old[position]


@signature("data shape_like", lhs_begin=0, lhs_end=None, rhs_begin=0, rhs_end=None)
def _reshape_like(o: Any) -> rx.Expr:
    """The data with some dimensions replaced by some of another tensor."""
    old, like = dims(o.data), dims(o.shape_like)
    begin, end, _ = slice(o.lhs_begin, o.lhs_end).indices(len(old))
    return R.reshape(o.data, (*old[:begin], *like[o.rhs_begin : o.rhs_end], *old[end:]))


def _expand_dims(data: rx.Expr, *, axis: Any, num_newaxis: Any = 1) -> rx.Expr:
    rank = len(dims(data))
    first = axis if axis >= 0 else axis + rank + 1
    if not 0 <= first <= rank:
        raise RelationError(f"axis {axis} is out of range for rank {rank}")
    return R.expand_dims(data, [first + i for i in range(num_newaxis)])


def _split(data: rx.Expr, *, indices_or_sections: Any, axis: Any = 0) -> rx.Expr:
    where = indices_or_sections
    if isinstance(where, int):
        size = dims(data)[axes_of(axis, len(dims(data)))[0]]
        if isinstance(size, IntImm) and size.value % max(where, 1):
            raise RelationError(f"{size.value} elements are not divided into {where} equal parts")
    return R.split(data, listed(where) if isinstance(where, tuple) else where, axis)


def _number_of_sections(call: Call, attrs: Mapping[str, Any]) -> int:
    where = attrs["indices_or_sections"]
    return len(where) + 1 if isinstance(where, tuple) else int(where)


define("split", _split, results=_number_of_sections)
define(
    "meshgrid",
    lambda data, *, indexing="ij": R.meshgrid(fields_of(data), indexing),
    results=lambda call, _: len(call.args[0]) if isinstance(call.args[0], (Tuple, Call)) else 1,
)
define_all(
    {
        "reshape": lambda data, *, newshape, allowzero=False: R.reshape(
            data, _new_shape(dims(data), listed(newshape), allowzero)
        ),
        "reshape_like": _reshape_like,
        "expand_dims": _expand_dims,
        "squeeze": lambda data, *, axis=None: R.squeeze(
            data, None if axis is None else listed(axis)
        ),
        "transpose": lambda data, *, axes=None: R.permute_dims(
            data, None if axes is None else listed(axes)
        ),
        "concatenate": lambda data, *, axis=0: R.concat(fields_of(data), axis),
        "stack": lambda data, *, axis=0: R.stack(fields_of(data), axis),
        "tile": lambda data, *, reps: R.tile(data, listed(reps)),
        "repeat": lambda data, *, repeats, axis: R.repeat(data, repeats, axis),
        "broadcast_to": lambda data, *, shape, dtype="": R.broadcast_to(data, listed(shape)),
        "broadcast_to_like": lambda data, broadcast_type: R.broadcast_to(
            data, dims(broadcast_type)
        ),
        "collapse_sum_to": lambda data, *, shape: R.collapse_sum_to(data, listed(shape)),
        "collapse_sum_like": lambda data, collapse_type: R.collapse_sum_like(data, collapse_type),
        "reverse": lambda data, *, axis: R.flip(data, axis),
        "reverse_sequence": lambda data, seq_lengths, *, seq_axis=1, batch_axis=0: (
            R.reverse_sequence(data, seq_lengths, seq_axis, batch_axis)
        ),
        "nn.batch_flatten": lambda data: R.reshape(data, (dims(data)[0], -1)),
        "cast": lambda data, *, dtype: R.astype(data, dtype),
        "cast_like": lambda data, dtype_like: R.astype(data, dtype_of(dtype_like)),
        "shape_of": lambda data, *, dtype="int32": R.astype(
            R.shape_to_tensor(R.shape_of(data)), dtype
        ),
        "ndarray_size": lambda data, *, dtype="int32": R.astype(
            R.prod(R.shape_to_tensor(R.shape_of(data))), dtype
        ),
        "einsum": lambda data, *, equation: R.einsum(fields_of(data), equation),
    }
)
define_te(
    {
        "reinterpret": lambda data, *, dtype: topi.reinterpret(data, dtype),
        "layout_transform": lambda data, *, src_layout, dst_layout: topi.layout_transform(
            data, src_layout, dst_layout
        ),
        "searchsorted": lambda sorted_sequence, values, *, right=False, dtype="int32": (
            topi.searchsorted(sorted_sequence, values, right, dtype)
        ),
    }
)

# Sorting and scans


@signature("data", k=1, axis=-1, ret_type="both", is_ascend=False, dtype="int32")
def _topk(o: Any) -> rx.Expr:
    return R.topk(o.data, o.k, o.axis, o.ret_type, not o.is_ascend, o.dtype)


def _scan(function: Any) -> Any:
    return lambda data, *, axis=None, dtype="", exclusive=False: function(
        data, axis, dtype or None, bool(exclusive)
    )


define("topk", _topk, results=results_of_topk)
define_all(
    {
        "sort": lambda data, *, axis=-1, is_ascend=True: R.sort(data, axis, not is_ascend),
        "argsort": lambda data, *, axis=-1, is_ascend=True, dtype="int32": R.argsort(
            data, axis, not is_ascend, dtype
        ),
        "cumsum": _scan(R.cumsum),
        "cumprod": _scan(R.cumprod),
    }
)
