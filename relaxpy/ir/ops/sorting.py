"""Operators that sort, select or search elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import INT32, INT64, Array, DataType
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.axis_rules import BROADCASTING, along, extremum_layout, same_layout
from relaxpy.ir.ops.definition.gradients import (
    gradient_in_float32,
    no_gradient,
    of_operand,
    tuple_fields,
)
from relaxpy.ir.ops.definition.registry import R, family, register, rows
from relaxpy.ir.ops.elementwise import fit_numbers
from relaxpy.ir.ops.reduction import extremum_gradient, reduced
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, TupleStructInfo, Var
from relaxpy.ir.te import tensor as te, topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def comparable(data: Array) -> Array:
    """The elements in a datatype that NumPy orders: floats of 8 and 16 bits as float32.

    For floats of a datatype that NumPy does not define, NaN equals any number in its order. On some
    CPUs it sorts more than 4096 elements of float16 wrongly if there is a NaN.
    """
    is_narrow = data.dtype.isbuiltin == 2 or data.dtype == np.float16
    return data.astype(np.float32) if is_narrow else data


def order(data: Array, axis: int, *, descending: bool) -> Array:
    """The indices that sort data along an axis stably; NaN compares as the largest."""
    data = comparable(data)
    if data.size > _FEW and (data.itemsize > 2 or data.shape[axis] <= _SHORT):
        return _order_of_keys(_keys(data, descending=descending), axis)
    if not descending:
        return np.argsort(data, axis, kind="stable")
    mirrored = np.argsort(_mirrored(data, axis), axis, kind="stable")
    indices: Array = data.shape[axis] - 1 - _mirrored(mirrored, axis)
    return indices


def _keys(data: Array, *, descending: bool) -> Array:
    """Signed integers of 32 or 64 bits in the order of numbers; those of equal numbers are equal.

    Those of floats are their bits, all but the sign inverted if it is set.
    """
    if data.itemsize <= 2:
        data = data.astype(np.int32)
    signed = np.dtype(f"i{data.dtype.itemsize}")
    most = np.iinfo(signed).max
    keys = data
    if data.dtype.kind == "u":
        is_short = data.itemsize == 8 and data.max() < 1 << 31
        keys = (
            data.astype(np.int32) if is_short else (data ^ data.dtype.type(most + 1)).view(signed)
        )
    elif data.dtype.kind == "f":
        keys = data.view(signed) >> 8 * signed.itemsize - 1
        keys &= most
        keys ^= data.view(signed)
        keys[data == 0] = 0
        keys[np.isnan(data)] = most
    return ~keys if descending else keys


def _order_of_keys(keys: Array, axis: int) -> Array:
    """As a stable `np.argsort`, which uses a radix sort for at most 16 bits only."""
    size = keys.shape[axis]
    keys, _ = _narrowed(keys, axis)
    if keys.itemsize == 2:
        return np.argsort(keys, axis, kind="stable")
    if keys.itemsize == 8 and keys.min() >= -(1 << 31) and keys.max() < 1 << 31:
        keys = keys.astype(np.int32)
    if keys.itemsize == 4 and size < _LONG:
        # NumPy sorts numbers faster than it finds their indices, which are the low digits here.
        shape = [1] * keys.ndim
        shape[axis] = size
        both = keys.astype(np.int64)
        both <<= 32
        both |= np.arange(size).reshape(shape)
        both.sort(axis)
        both &= 0xFFFFFFFF
        return both
    if (keys.itemsize == 8 and size < _LONG_WIDE) or _is_in_runs(keys, axis):
        return np.argsort(keys, axis, kind="stable")
    digits = [(keys >> shift).astype(np.uint16) for shift in range(0, 8 * keys.itemsize, 16)]
    digits[-1] = digits[-1].view(np.int16)
    del keys
    found = np.argsort(digits.pop(0), axis, kind="stable")
    while digits:
        step = np.argsort(_elements(digits.pop(0), found, axis), axis, kind="stable")
        found = _elements(found, step, axis)
    return found


def _is_in_runs(keys: Array, axis: int) -> bool:
    """True if most elements follow a smaller or an equal one, or most a greater one.

    NumPy merges such runs, which takes less time than a radix sort of more than 16 bits.
    """
    lines = np.moveaxis(keys, axis, -1)
    falls = np.count_nonzero(lines[..., 1:] < lines[..., :-1])
    return bool(min(falls, keys.size - falls) * _RUN <= keys.size)


def _narrowed(data: Array, axis: int) -> tuple[Array, Any]:
    """Integers less the least one, if 16 bits hold these, and this number; or unchanged, and 0.

    NumPy uses a radix sort for stable sorts of at most 16 bits.
    """
    is_wide = data.dtype.kind in "iu" and data.itemsize > 2
    if is_wide and data.size > SMALL and data.shape[axis] >= _LONG:
        least = data.min()
        if int(data.max()) - int(least) <= np.iinfo(np.uint16).max:
            return (data - least).astype(np.uint16), least
    return data, 0


def _mirrored(data: Array, axis: int) -> Array:
    """As `np.flip`, which takes longer than to sort a few elements."""
    return data[..., ::-1] if axis in (-1, data.ndim - 1) else np.flip(data, axis)


def _elements(data: Array, positions: Array, axis: int) -> Array:
    """As `np.take_along_axis`, which is slow for small arrays."""
    if axis not in (-1, data.ndim - 1) or not data.flags.c_contiguous or not data.size:
        return np.take_along_axis(data, positions, axis)
    starts: Any = 0
    if data.size > data.shape[-1]:
        starts = np.arange(0, data.size, data.shape[-1] or 1).reshape(*data.shape[:-1], 1)
    found: Array = data.reshape(-1)[positions + starts]
    return found


def _sorted(data: Array, axis: int = -1, descending: bool = False) -> Array:
    narrow, least = _narrowed(data, axis)
    is_radix = narrow.dtype.kind in "iu" and narrow.itemsize <= 2 and narrow.shape[axis] > _SHORT
    kind: Literal["stable"] | None = "stable" if is_radix else None
    ordered: Array = np.sort(comparable(narrow), axis, kind)
    if descending:
        ordered = np.flip(ordered, axis)
    ordered = ordered.astype(data.dtype, copy=descending)
    if least:
        ordered += least
    return ordered


def _gradient_sort(g: Any, x: Any, y: Any, call: Call) -> Any:
    axis = call.attrs["axis"]
    indices = R.argsort(x, axis=axis, descending=call.attrs["descending"], dtype="int64")
    return R.scatter_elements(R.zeros_like(x), indices, g, axis=axis)


@register(
    "relax.sort",
    layout=along("axis"),
    pure=True,
    runtime=_sorted,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:ordered"),
    gradient=of_operand(_gradient_sort),
)
def sort(x: TensorStructInfo, axis: int = -1, descending: bool = False) -> TensorStructInfo:
    """The elements of x in order along an axis; NaN counts as greater than any number.

    Shapes:
        x       rank at least 1
        result  as x
    Errors:
        StructInfoError: the axis is out of range.
    """
    if x.ndim >= 0:
        rules.normal_axis(axis, x.ndim)
    return x


def _argsorted(
    data: Array, axis: int = -1, descending: bool = False, dtype: DataType = INT32
) -> Array:
    return order(data, axis, descending=descending).astype(str(dtype), copy=False)


@register(
    "relax.argsort",
    layout=along("axis"),
    pure=True,
    runtime=_argsorted,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:ordered"),
    gradient=no_gradient,
)
def argsort(
    data: TensorStructInfo, axis: int = -1, descending: bool = False, dtype: DataType = INT32
) -> TensorStructInfo:
    """The indices that sort data along an axis; equal elements keep their order.

    Shapes:
        data    rank at least 1
        result  as data, in `dtype`
    Errors:
        StructInfoError: the axis is out of range.
    """
    if data.ndim >= 0:
        rules.normal_axis(axis, data.ndim)
    return rules.with_dtype(data, data.dtype if dtype.is_void else dtype)


def _nth_indices(data: Array, n: Array, axis: int = -1) -> Array:
    size, axis = data.shape[axis], rules.normal_axis(axis, data.ndim)
    if not size:
        raise RuntimeCheckError("data has an element along the axis, found none", rule="DER-36")
    shape = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
    if n.ndim and n.shape != shape:
        raise RuntimeCheckError(
            f"n is a scalar or has shape {shape}, found {n.shape}", rule="DER-36"
        )
    if n.ndim == 0 and data.size > SMALL and data.dtype.isbuiltin == 1:
        rows = np.moveaxis(data, axis, -1)
        place = int(np.clip(n, 0, size - 1))
        found = _at_rank(np.ascontiguousarray(rows).reshape(-1, size), place)
        return found.astype(np.int64).reshape(shape)
    places = np.broadcast_to(np.clip(n, 0, size - 1), shape)
    found = np.take_along_axis(order(data, axis, descending=False), places, axis)
    return found.astype(np.int64, copy=False)


@register(
    "relax.nth_index",
    pure=True,
    runtime=_nth_indices,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:nth_index"),
    gradient=no_gradient,
)
def nth_index(data: TensorStructInfo, n: TensorStructInfo, axis: int = -1) -> TensorStructInfo:
    """The index that `argsort` of data has at position n along an axis.

    A position before the first or after the last element is that of this element.

    Shapes:
        data    rank at least 1, with an element along the axis
        n       a scalar, or as the result
        result  as data, with size 1 along the axis, in int64
    Errors:
        StructInfoError: the axis is out of range, or n has another shape, or not integers.
    """
    rules.require_integer(n.dtype, "n", n)
    found = rules.with_dtype(reduced(data, (axis,), keepdims=True), INT64)
    if n.ndim > 0:
        rules.common_rank((found, n), "nth_index")
        rules.unified_shapes((found, n), "shapes of the result and n")
    return found


FEW = 4
"""The minimum ratio of elements to k for selection without a full sort."""


SMALL = 4096
"""The maximum size for which a full sort is faster than the calls of NumPy for selection."""
_FEW = 500
"""The maximum size for which NumPy's stable sort is as fast as any."""
_SHORT = 32
"""The maximum axis length for which a radix sort of integers of at most 16 bits is slower."""
_LONG = 512
"""The minimum size for which a radix sort of 32-bit integers is faster."""
_LONG_WIDE = 4096
"""The same for 64-bit integers."""
_RUN = 4096
"""The minimum mean length of ascending or descending runs that are merged."""
_SPARSE = 4
"""The maximum ratio of places to integers that mark those that are there."""
_GROUP = 64
"""The maximum size of a group whose best element is compared with those of other groups."""
_IN_TURN = 8
"""The maximum k for selection one after the other, in rows that stay in the cache."""


def _select_in_turn(rows: Array, k: int, *, largest: bool) -> Array | None:
    """The first k positions of each row, one after the other.

    None if one of them is a NaN that does not come first, or equals the sentinel of selected
    elements.
    """
    worst: Any
    if rows.dtype.kind == "f":
        worst = -np.inf if largest else np.inf
    else:
        limits = np.iinfo(rows.dtype)
        worst = limits.min if largest else limits.max
    left, starts = rows.copy(), np.arange(0, rows.size, rows.shape[1])
    places = np.empty((k, len(rows)), np.intp)
    for place in places:
        np.add(left.argmax(1) if largest else left.argmin(1), starts, out=place)
        left.put(place, worst)
    values = rows.take(places)
    if (values == worst).any() or (not largest and (values != values).any()):
        return None
    found: Array = (places - starts).T
    return found


def _select_first(data: Array, k: int, axis: int, *, largest: bool) -> Array:
    """The first k indices of `order`, for k less than the number of elements."""
    if axis not in (-1, data.ndim - 1):
        first = _select_first(np.moveaxis(data, axis, -1), k, -1, largest=largest)
        return np.moveaxis(first, -1, axis)
    keys = comparable(data)
    rows = keys.reshape(-1, keys.shape[-1])
    if k <= _IN_TURN and rows.shape[1] <= SMALL and rows.dtype.kind in "fiu":
        found = _select_in_turn(np.ascontiguousarray(rows), k, largest=largest)
        if found is not None:
            return found.reshape(*keys.shape[:-1], k)
    # What is found in several rows is sorted twice, so groups have to be larger.
    size = min(_GROUP, rows.shape[1] // ((8 if len(rows) > 1 else 4) * k))
    if size >= FEW and len(rows):
        found = _select_beyond(rows, k, size, largest=largest)
        if found is not None:
            return found.reshape(*keys.shape[:-1], k)
    if rows.dtype.kind == "f" and np.isnan(rows).any():
        return np.take(order(data, axis, descending=largest), np.arange(k), axis)
    pivot = rows.shape[1] - k if largest else k - 1
    pivot_value = np.partition(rows, pivot, 1)[:, pivot, None]
    is_selected = rows >= pivot_value if largest else rows <= pivot_value
    # Of the elements equal to the pivot, the first ones fill up to k.
    [full] = np.nonzero(np.count_nonzero(is_selected, 1) > k)
    if full.size:
        is_equal = rows[full] == pivot_value[full]
        missing = k - np.count_nonzero(is_selected[full] & ~is_equal, 1)[:, None]
        is_selected[full] &= ~is_equal | (np.cumsum(is_equal, 1) <= missing)
    columns = (np.flatnonzero(is_selected) % rows.shape[1]).reshape(-1, k)
    sorting = order(np.take_along_axis(rows, columns, 1), 1, descending=largest)
    return np.take_along_axis(columns, sorting, 1).reshape(*keys.shape[:-1], k)


def _select_beyond(rows: Array, k: int, size: int, *, largest: bool) -> Array | None:
    """The first k positions of each row; None if there is a NaN.

    Of groups of `size` elements, k have a best element at least as good as the k-th best of all;
    only elements as good as the worst of these are sorted.
    """
    count = rows.shape[1] // size
    groups = rows[:, : size * count].reshape(len(rows), size, count)
    extremes, rest = groups.max(1) if largest else groups.min(1), rows[:, size * count :]
    if rows.dtype.kind == "f" and any(x.size and np.isnan(x.max()) for x in (extremes, rest)):
        return None
    pivot = count - k if largest else k - 1
    limit = np.partition(extremes, pivot, 1)[:, pivot, None]
    [places] = (rows >= limit if largest else rows <= limit).reshape(-1).nonzero()
    if len(rows) == 1:
        values = rows.reshape(-1)[places]
        if rows.dtype.kind == "f" and largest:
            return places[np.argsort(-values, kind="stable")[:k]].reshape(1, k)
        return places[order(values, 0, descending=largest)[:k]].reshape(1, k)
    lines, columns = np.divmod(places, rows.shape[1])
    sorting = order(rows.reshape(-1)[places], 0, descending=largest)
    sorting = sorting[np.argsort(lines[sorting], kind="stable")]
    starts = np.searchsorted(lines, np.arange(len(rows)))
    first: Array = columns[sorting[starts[:, None] + np.arange(k)]]
    return first


def _top(
    data: Array,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: DataType = INT32,
) -> Any:
    size = data.shape[axis]
    if 0 < k <= size // FEW and data.size > SMALL:
        positions = _select_first(data, k, axis, largest=largest)
    else:
        positions = order(data, axis, descending=largest)
        if 0 < k < size:
            is_last = axis in (-1, data.ndim - 1)
            positions = positions[..., :k] if is_last else np.take(positions, np.arange(k), axis)
    indices = np.array(positions, str(dtype))
    if ret_type == "indices":
        return indices
    values = _elements(data, positions, axis)
    return values if ret_type == "values" else (values, indices)


def _gradient_topk(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    [data] = call.args
    kind = call.attrs["ret_type"]
    if kind == "indices":
        return no_gradient(var, call, gradient, builder)
    values = tuple_fields(gradient, 2)[0] if kind == "both" else gradient
    attrs = {**call.attrs, "ret_type": "indices", "dtype": "int64"}
    indices = topk(data, **attrs)
    axis = call.attrs["axis"]
    return [R.scatter_elements(R.zeros_like(data), indices, values, axis=axis)]


@register(
    "relax.topk",
    layout=along("axis"),
    pure=True,
    runtime=_top,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:topk"),
    gradient=_gradient_topk,
)
def topk(
    data: TensorStructInfo,
    k: int = 1,
    axis: int = -1,
    ret_type: Literal["both", "values", "indices"] = "both",
    largest: bool = True,
    dtype: DataType = INT32,
) -> TensorStructInfo | TupleStructInfo:
    """The k largest elements along an axis in descending order, and their indices.

    With `largest` unset, the k smallest in ascending order; all elements if k is not positive. NaN
    counts as greater than any number, and equal elements keep their order.

    Shapes:
        data    rank at least 1
        result  values as data and indices in `dtype`, both of size k along the axis, or of the size
                of the axis if that is less; one of them if `ret_type` names it
    Errors:
        StructInfoError: the axis is out of range.
    """
    position = rules.normal_axis(axis, data.ndim) if data.ndim >= 0 else None
    shape = literal_shape(data)
    values = data
    if k > 0:
        values = rules.tensor(None, data.dtype, data.vdevice, data.ndim)
        if shape is not None and position is not None:
            size, count = shape[position], ops.const(k, "int64")
            limit = min(size.value, k) if isinstance(size, IntImm) else None
            extent = ops.minimum(size, count) if limit is None else ops.const(limit, "int64")
            values = rules.tensor(
                (*shape[:position], extent, *shape[position + 1 :]), data.dtype, data.vdevice
            )
    indices = rules.with_dtype(values, dtype)
    if ret_type == "both":
        return TupleStructInfo((values, indices))
    return values if ret_type == "values" else indices


def _bucketized(
    input_tensor: Array, boundaries: Array, out_int32: bool = False, right: bool = False
) -> Array:
    side: Literal["left", "right"] = "right" if right else "left"
    buckets = np.searchsorted(comparable(boundaries), comparable(input_tensor), side=side)
    return np.asarray(buckets, np.int32 if out_int32 else np.int64)


def _searched(values: Tensor, boundaries: Tensor, dtype: DataType, right: bool) -> Tensor:
    """`bucketize` by bisection: each step decides for all values whether to skip a half."""
    [size] = boundaries.shape
    assert isinstance(size, IntImm)
    last = ops.const(size.value - 1, dtype)
    left, found = size.value, None
    while left:
        step = max(left // 2, 1)
        found = _skipped(values, boundaries, found, step, last, right)
        left = left - step if left > 1 else 0
    assert found is not None
    return found


def _skipped(
    values: Tensor, boundaries: Tensor, found: Tensor | None, step: int, last: PrimExpr, right: bool
) -> Tensor:
    """The boundaries passed so far, and `step` more where the last one of these is passed, too."""
    width, zero = ops.const(step, last.dtype), ops.const(0, last.dtype)
    kind = _order_type(values.dtype, boundaries.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        start = zero if found is None else found(*index)
        place = ops.maximum(ops.minimum(start + ops.const(step - 1, last.dtype), last), zero)
        boundary, value = boundaries(place).astype(kind), values(*index).astype(kind)
        if right:
            passes = ops.any_of(value >= boundary, intrin.isnan(value))
        else:
            above = ops.logical_not(boundary >= value)
            passes = ops.all_of(above, ops.logical_not(intrin.isnan(boundary)))
        return start + tir.Select(passes, width, zero)

    result: Tensor = te.compute(values.shape, element, name="buckets")
    return result


def _order_type(*dtypes: DataType) -> DataType:
    """The datatype in which `comparable` elements of several datatypes are ordered."""
    common = np.result_type(*(comparable(np.empty(0, dtype.numpy())).dtype for dtype in dtypes))
    return DataType("uint8" if common == np.bool_ else common)


def _legalize_bucketize(builder: BlockBuilder, call: Call) -> Expr:
    values, boundaries = map(builder.struct_info_of, call.args)
    assert isinstance(values, TensorStructInfo)
    assert isinstance(boundaries, TensorStructInfo)
    [size] = literal_shape(boundaries) or [None]
    if not isinstance(size, IntImm) or not size.value:
        return call
    result = INT32 if call.attrs["out_int32"] else INT64
    return rules.te_kernel(builder, _searched, "bucketize", *call.args, result, call.attrs["right"])


@register(
    "relax.bucketize",
    layout=same_layout,
    pure=True,
    runtime=_bucketized,
    legalize=_legalize_bucketize,
    gradient=no_gradient,
)
def bucketize(
    input_tensor: TensorStructInfo,
    boundaries: TensorStructInfo,
    out_int32: bool = False,
    right: bool = False,
) -> TensorStructInfo:
    """For each element, the number of boundaries below it; with `right`, not above it.

    Shapes:
        input_tensor  any
        boundaries    (n,), in ascending order
        result        as input_tensor, int64, or int32 with `out_int32`
    Errors:
        StructInfoError: the boundaries are known to have another rank than 1.
    """
    if boundaries.ndim not in (-1, 1):
        raise rules.refuse(f"boundaries is a vector, found {boundaries}", boundaries)
    return rules.with_dtype(input_tensor, INT32 if out_int32 else INT64)


def _unique(
    x: Array,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    flags = (return_index or not sorted, return_inverse, return_counts)
    ordered = x.view(np.int8) if x.dtype == np.bool_ else comparable(x)
    if axis is None or x.ndim == 1:
        values, *extras = _distinct(ordered.reshape(-1), *flags)
    else:
        results: Any = np.unique(ordered, *flags, axis)  # type: ignore[call-overload]
        values, *extras = results if any(flags) else (results,)
    values, extras = values.astype(x.dtype), [np.asarray(e, np.int64).reshape(-1) for e in extras]
    if not sorted:
        order = np.argsort(extras[0])
        values = np.take(values, order, 0 if axis is None else axis)
        inverse = [np.argsort(order).astype(np.int64)[extras[1]]] if return_inverse else []
        counts = [extras[-1][order]] if return_counts else []
        extras = [*([extras[0][order]] if return_index else []), *inverse, *counts]
    return (values, *extras) if extras else values


def _distinct(x: Array, index: bool, inverse: bool, counts: bool) -> list[Array]:
    """As `np.unique` of a vector, which takes up to 50 times as long: it has a hash table."""
    if x.dtype.kind in "iu" and x.size:
        least = x.min()
        extent = int(x.max()) - int(least) + 1
        if extent <= x.size * (1 if index or inverse or counts else _SPARSE):
            return _marked(x, least, extent, index, inverse, counts)
    if index or inverse:
        # Without indices, equal elements may be in any order.
        is_any = not index and x.size <= SMALL
        places = np.argsort(x) if is_any else order(x, 0, descending=False)
        values = x[places]
    else:
        places = values = _sorted(x)
    is_first = np.ones(values.size, bool)
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    if x.dtype.kind == "f":
        is_first[1:] &= ~np.isnan(values[:-1])
    [starts] = is_first.nonzero()
    found = [values[starts]]
    if index:
        found.append(places[starts])
    if inverse:
        found.append(np.empty(x.size, np.int64))
        found[-1][places] = np.cumsum(is_first) - 1
    if counts:
        found.append(np.concatenate((starts[1:], [x.size])) - starts)
    return found


def _marked(
    x: Array, least: Any, extent: int, index: bool, inverse: bool, counts: bool
) -> list[Array]:
    """`_distinct` of integers that mark their places in a short range."""
    wide = x if x.itemsize == 8 else x.astype(np.int64)
    places = (wide - wide.dtype.type(least)).view(np.int64)
    if counts:
        marks = np.bincount(places.astype(np.intp, copy=False))
    else:
        marks = np.zeros(extent, bool)
        marks[places] = True
    distinct = np.flatnonzero(marks)
    found = [distinct.astype(x.dtype) + least]
    if index:
        first = np.empty(extent, np.int64)
        first[places[::-1]] = np.arange(x.size)[::-1]
        found.append(first[distinct])
    if inverse:
        found.append((np.cumsum(marks != 0) - 1)[places])
    if counts:
        found.append(marks[distinct])
    return found


@register("relax.unique", pure=True, data_dependent=True, runtime=_unique, gradient=no_gradient)
def unique(
    x: TensorStructInfo,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> TensorStructInfo | TupleStructInfo:
    """The distinct elements of x in ascending order, or its distinct slices along an axis.

    Without `sorted`, they have the order in which they occur first.

    Beside them, if requested: the index of the first occurrence of each, for each element or slice
    the position of its value, and how often each occurs.

    Shapes:
        x       any
        result  the values, of rank 1 without an axis; the others are vectors of int64
    Errors:
        StructInfoError: the axis is out of range.
    """
    if axis is not None and x.ndim >= 0:
        rules.normal_axis(axis, x.ndim)
    one = (ops.const(1, INT64),) if axis is None and x.ndim == 0 else None
    values = rules.tensor(one, x.dtype, x.vdevice, 1 if axis is None else x.ndim)
    extras = [return_index, return_inverse, return_counts].count(True)
    if not extras:
        return values
    vector = rules.tensor(one, INT64, x.vdevice, 1)
    return TupleStructInfo((values, *(vector,) * extras))


def _places(x: Array) -> Array:
    """`nonzero` of an array; NumPy is fast at finding True in a vector only."""
    found = np.flatnonzero(x if x.dtype == np.bool_ else x != 0)
    places = np.empty((max(x.ndim, 1), found.size), np.int64)
    for axis in range(x.ndim - 1, 0, -1):
        rows = found // x.shape[axis]
        np.subtract(found, rows * x.shape[axis], out=places[axis])
        found = rows
    places[0] = found
    return places


@register("relax.nonzero", pure=True, data_dependent=True, runtime=_places, gradient=no_gradient)
def nonzero(x: TensorStructInfo) -> TensorStructInfo:
    """The indices of the elements other than 0, in row-major order: one column for each.

    Shapes:
        x       any; a scalar counts as a vector of one element
        result  (rank of x, number of elements other than 0), int64
    """
    return rules.tensor(None, INT64, x.vdevice, 2)


def sampled(
    prob: Array, uniform_sample: Array, sample_indices: Array, dtype: DataType = INT64
) -> Array:
    """`multinomial_from_uniform` of arrays.

    Errors:
        RuntimeCheckError: a shape is another one, there is no category, or an index is out of the
            range of rows.
    """
    for name, samples in (("uniform_sample", uniform_sample), ("sample_indices", sample_indices)):
        if samples.shape != (len(sample_indices), 1):
            raise RuntimeCheckError(
                f"{name} has shape ({len(sample_indices)}, 1), found {samples.shape}", rule="DER-36"
            )
    if not prob.shape[1]:
        raise RuntimeCheckError("prob has at least one category, found none", rule="DER-36")
    outside = sample_indices[(sample_indices < 0) | (sample_indices >= len(prob))]
    if outside.size:
        raise RuntimeCheckError(
            f"sample_indices are rows of prob, from 0 to {len(prob) - 1}, found {outside[0]}",
            rule="DER-36",
        )
    rows = prob[sample_indices[:, 0]].astype(np.float64)
    exceeds = np.cumsum(rows, 1) > uniform_sample.astype(np.float64)
    categories = np.where(exceeds.any(1), exceeds.argmax(1), prob.shape[1] - 1)
    column: Array = categories[:, None].astype(str(dtype))
    return column


@register("relax.multinomial_from_uniform", pure=True, runtime=sampled, gradient=no_gradient)
def multinomial_from_uniform(
    prob: TensorStructInfo,
    uniform_sample: TensorStructInfo,
    sample_indices: TensorStructInfo,
    dtype: DataType = INT64,
) -> TensorStructInfo:
    """For each sample, the first category at which the summed probabilities exceed it.

    If there is none, it is the last category.

    Shapes:
        prob            (batch, categories), floats: the probabilities of each row
        uniform_sample  (n, 1), floats in [0, 1)
        sample_indices  (n, 1), integers: the row of each sample
        result          (n, 1), in `dtype`
    Errors:
        StructInfoError: an operand is known to have another rank than 2, `prob` or the samples hold
            no floats or the indices no integers, a known size is another one.
    """
    named = {"prob": prob, "uniform_sample": uniform_sample, "sample_indices": sample_indices}
    for name, sinfo in named.items():
        if sinfo.ndim not in (-1, 2):
            raise rules.refuse(f"{name} has rank 2, found {sinfo}", sinfo)
        kind = sinfo.dtype
        fits = kind.is_int and not kind.is_bool if name == "sample_indices" else kind.is_float
        if not kind.is_void and not fits:
            wanted = "integers" if name == "sample_indices" else "floats"
            raise rules.refuse_type(f"{name} holds {wanted}, found {sinfo}", sinfo)
    rows = []
    for name in ("uniform_sample", "sample_indices"):
        shape = literal_shape(named[name])
        if shape is not None:
            rows.append(shape[0])
            if isinstance(shape[1], IntImm) and shape[1].value != 1:
                raise rules.refuse(f"{name} has one column, found {named[name]}", named[name])
    if len(rows) == 2 and rules.differ(*rows):
        raise rules.refuse(
            f"uniform_sample {uniform_sample} and sample_indices {sample_indices} have as many "
            "rows",
            sample_indices,
        )
    if len(rows) < 2:
        rank = min(sinfo.ndim for sinfo in named.values())
        return rules.tensor(None, dtype, prob.vdevice, rank)
    return rules.tensor((rows[0], ops.const(1, INT64)), dtype, prob.vdevice)


def _where(condition: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    result: Tensor = topi.where(condition, x1, as_dtype(x2, x1.dtype))
    return result


_where_gradient = gradients.elementwise(
    None,
    lambda g, condition, x1, x2, y: gradients.masked(g, condition),
    lambda g, condition, x1, x2, y: gradients.masked(g, R.logical_not(condition)),
    exact=True,
)


@register(
    "relax.where",
    **BROADCASTING,
    pure=True,
    legalize=rules.by_te(_where, "where"),
    adapt=fit_numbers,
    gradient=_where_gradient,
)
def where(
    condition: TensorStructInfo, x1: TensorStructInfo, x2: TensorStructInfo
) -> TensorStructInfo:
    """x1 where the condition is true, else x2.

    Shapes:
        condition  Bool
        x1, x2     of one datatype (or one Bool); all three broadcast; a number takes the datatype
                   of the other one
        result     what they broadcast to, in the datatype of x1
    Errors:
        StructInfoError: the condition is not known to be Bool, the datatypes differ, or known sizes
            do not broadcast.
    """
    if not condition.dtype.is_bool:
        hint = "compare it, as in R.not_equal(condition, R.const(0, ...))"
        raise rules.refuse_type(
            f"condition holds Booleans, found {condition}",
            condition,
            hint=None if condition.dtype.is_void else hint,
        )
    sinfos = (condition, x1, x2)
    shape, ndim = rules.broadcast(sinfos, ("condition", "x1", "x2"))
    dtype = rules.joint_dtype(x1, x2, ("x1", "x2"))
    return rules.tensor(shape, dtype, rules.joint_vdevice(sinfos, strict=False), ndim)


def _legalize_arg(name: str) -> rules.Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        result, kernel = builder.struct_info_of(call), getattr(topi, name)
        assert isinstance(result, TensorStructInfo)
        return rules.te_kernel(
            builder, kernel, name, *call.args, dtype=str(result.dtype), **call.attrs
        )

    return legalize


def _infer_arg(
    x: TensorStructInfo, axis: int | None = None, keepdims: bool = False
) -> TensorStructInfo:
    shape = literal_shape(x)
    result = reduced(x, None if axis is None else (axis,), keepdims=keepdims)
    return rules.with_dtype(result, shape[0].dtype if shape else INT64)


_ARG_DOC = """The position of the {} element along an axis: the first one, NaN first, -1 if none.

Shapes:
    x       any
    result  without the axis, or with size 1 there under `keepdims`; without an axis, the position
            in row-major order; in int64
Errors:
    StructInfoError: the axis is out of range.
"""


_arg = rows(
    _infer_arg, _ARG_DOC, _legalize_arg, gradient=gradients.no_gradient, layout=extremum_layout
)
ARG_REDUCTIONS = family(_arg("argmax", "largest"), _arg("argmin", "smallest"))


def _middle(
    x: Array, axis: tuple[int, ...] | None = None, keepdims: bool = False
) -> Array | tuple[Array, Array]:
    """`median` of an array."""
    axes = tuple(range(x.ndim)) if axis is None else rules.normal_axes(axis, x.ndim)
    kept = [size for k, size in enumerate(x.shape) if k not in axes]
    shape = [1 if k in axes else size for k, size in enumerate(x.shape)] if keepdims else kept
    count = math.prod(x.shape[k] for k in axes)
    if not count:
        raise RuntimeCheckError("x has an element along the axes, found none", rule="DER-36")
    last = range(x.ndim - len(axes), x.ndim)
    rows = comparable(np.moveaxis(x, axes, tuple(last)).reshape(-1, count))
    has_index = axis is not None and len(axis) == 1
    value, index = _middle_of_rows(rows, (count - 1) // 2, has_index=has_index)
    value = value.astype(x.dtype).reshape(shape)
    return value if index is None else (value, index.astype(np.int64).reshape(shape))


def _at_rank(rows: Array, rank: int, value: Array | None = None) -> Array:
    """The index of the element of each row that a stable sort puts at `rank`, its `value`."""
    if value is None:
        value = np.partition(rows, rank, 1)[:, rank]
    equal, less = rows == value[:, None], rows < value[:, None]
    if rows.dtype.kind == "f":
        is_nan = np.isnan(value)
        equal[is_nan] = np.isnan(rows[is_nan])
        less[is_nan] = ~equal[is_nan]
    before = rank - np.count_nonzero(less, 1)
    index: Array = equal.argmax(1)
    [later] = np.nonzero(before)
    index[later] = (np.cumsum(equal[later], 1) > before[later, None]).argmax(1)
    return index


def _middle_of_rows(rows: Array, middle: int, *, has_index: bool) -> tuple[Array, Array | None]:
    """The element of each row that a stable sort puts at `middle`, or the first NaN; its index."""
    is_float = rows.dtype.kind == "f"
    if rows.size <= SMALL:
        index = order(rows, 1, descending=False)[:, middle]
    else:
        value = np.partition(rows, middle, 1)[:, middle]
        # Zeros of both signs are equal: the index decides which of them it is.
        if not has_index and not (is_float and (value == 0).any()):
            return np.where(np.isnan(rows.max(1)), np.nan, value) if is_float else value, None
        index = _at_rank(rows, middle, value)
    if is_float:
        is_nan = np.isnan(rows)
        index = np.where(is_nan.any(1), is_nan.argmax(1), index)
    return rows[np.arange(len(rows)), index], index if has_index else None


def _gradient_median(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> Sequence[Expr]:
    """Elements that equal the median share the gradient."""
    [x] = call.args
    if not gradients.is_differentiable(x):
        return gradients.no_gradient(var, call, gradient, builder)
    axis = call.attrs["axis"]
    has_index = axis is not None and len(cast("tuple[int, ...]", axis)) == 1
    y, g = (gradients.tuple_fields(v, 2)[0] if has_index else v for v in (var, gradient))
    return [extremum_gradient(g, x, y, call)]


@register(
    "relax.median",
    pure=True,
    runtime=_middle,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:median"),
    gradient=gradient_in_float32(_gradient_median),
)
def median(
    x: TensorStructInfo, axis: tuple[int, ...] | None = None, keepdims: bool = False
) -> TensorStructInfo | TupleStructInfo:
    """The median of the elements along axes: the lower of two middle ones; NaN where there is one.

    Along one axis, also its index as a stable sort orders equal elements; that of the first NaN.

    Shapes:
        x       any, with an element along the axes
        result  without the axes (all of them by default), or with size 1 there under `keepdims`;
                with one axis, a tuple of this and of the indices, in int64
    Errors:
        StructInfoError: an axis is out of range or occurs twice, or the list of them is empty.
    """
    if axis is not None and not axis:
        raise rules.refuse("axis is None or has at least one axis, found an empty list", axis)
    value = reduced(x, axis, keepdims=keepdims)
    if axis is None or len(axis) > 1:
        return value
    return TupleStructInfo((value, rules.with_dtype(value, INT64)))
