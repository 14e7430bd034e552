"""How NumPy sorts and selects elements of arrays for the operators of `sorting.py`."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import INT32, Array, DataType
from relaxpy.ir.ops.definition import rules

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
_GROUP = 64
"""The maximum size of a group whose best element is compared with those of other groups."""
_IN_TURN = 8
"""The maximum k for selection one after the other, in rows that stay in the cache."""


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


def sorted_elements(data: Array, axis: int = -1, descending: bool = False) -> Array:
    """The elements of arrays along an axis in their order, as a stable sort leaves them."""
    narrow, least = _narrowed(data, axis)
    is_radix = narrow.dtype.kind in "iu" and narrow.itemsize <= 2 and narrow.shape[axis] > _SHORT
    kind: Literal["stable"] | None = "stable" if is_radix else None
    ordered: Array = np.sort(comparable(narrow), axis, kind)
    if descending:
        ordered = np.flip(ordered, axis)
    ordered = ordered.astype(data.dtype, copy=descending)
    if least:
        ordered += least
    own = np.moveaxis(data, axis, -1)
    if data.dtype.kind not in "iub" and (zeros := own == 0).any():
        # Zeros of two signs are equal, and NumPy leaves them in any order.
        rows = np.moveaxis(ordered, axis, -1)
        rows[rows == 0] = own[zeros]
    return ordered


def nth_indices(data: Array, n: Array, axis: int = -1) -> Array:
    """The positions of the elements that a stable sort would move to the ranks `n`."""
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


def top_elements(
    data: Array,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: DataType = INT32,
) -> Any:
    """The first k elements along an axis in their order, with their positions, or one of both."""
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


def middle(
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
