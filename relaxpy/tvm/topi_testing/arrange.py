"""Functions that select and rearrange elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """The elements at indices along an axis, at their positions along the other axes."""
    return np.take_along_axis(data, indices.astype(np.int64), axis)


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """The slices at indices whose first axis has the components."""
    return a_np[tuple(indices_np.astype(np.int64))]  # type: ignore[no-any-return]


def _slices(
    ndim: int, begin: Sequence[int], end: Sequence[int], strides: Sequence[int], axes: Sequence[int]
) -> tuple[slice, ...]:
    """The slices along some axes; a missing slice is the whole axis."""
    result = [slice(None)] * ndim
    for i, axis in enumerate(axes):
        first, last, step = (part[i] if i < len(part) else None for part in (begin, end, strides))
        result[axis] = slice(first, last, step)
    return tuple(result)


def strided_slice_python(
    data: Array,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None,
    slice_mode: Literal["end", "size"] = "end",
    axes: Sequence[int] | None = None,
) -> Array:
    """Slices along some axes, or the first ones.

    In mode "size", `end` has the numbers of elements, -1 for all, and strides do not count.
    """
    steps: Sequence[Any] = strides or ()
    last: Sequence[Any] = end
    if slice_mode == "size":
        pairs = zip(begin, end, strict=True)
        steps, last = (), [None if size < 0 else first + size for first, size in pairs]
    chosen = range(data.ndim) if axes is None else axes
    return data[_slices(data.ndim, begin, last, steps, chosen)]


def strided_set_python(
    data: Array, v: Array, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None
) -> Array:
    """A copy of the array with other elements in slices along the first axes."""
    result = data.copy()
    result[_slices(data.ndim, begin, end, strides or (), range(data.ndim))] = v
    return result


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """A slice along one axis; an `end` of 0 is that of the axis."""
    return data[_slices(data.ndim, [begin], [end or data.shape[axis]], (), [axis])]


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """The array with another value after the first elements of each sequence along axis 0 or 1."""
    positions = np.arange(data.shape[axis])
    mask = positions >= valid_length[:, None]
    mask = mask if axis == 1 else mask.T
    return np.where(mask.reshape(*mask.shape, *(1,) * (data.ndim - 2)), mask_value, data)


def one_hot(
    indices: Array, on_value: float, off_value: float, depth: int, axis: int, dtype: Any
) -> Array:
    """One-hot: one value where a new axis of size `depth` has the index, another one elsewhere."""
    place = indices.ndim if axis == -1 else axis
    classes = np.arange(depth).reshape([-1 if i == place else 1 for i in range(indices.ndim + 1)])
    hot = np.expand_dims(indices, place) == classes
    return np.where(hot, on_value, off_value).astype(dtype)


def depth_to_space_python(
    data: Array, block_size: int, mode: Literal["DCR", "CRD"] = "DCR"
) -> Array:
    """Channels as blocks of pixels: the position in a block varies first or last in channels."""
    n, channels, height, width = data.shape
    outputs, blocks = channels // block_size**2, (block_size, block_size)
    if mode == "DCR":
        split = data.reshape(n, *blocks, outputs, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = data.reshape(n, outputs, *blocks, height, width).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(n, outputs, height * block_size, width * block_size)


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Blocks of pixels as channels."""
    n, channels, height, width = data.shape
    rows, columns = height // block_size, width // block_size
    split = data.reshape(n, channels, rows, block_size, columns, block_size)
    moved = split.transpose(0, 3, 5, 1, 2, 4)
    return moved.reshape(n, channels * block_size**2, rows, columns)


def space_to_batch_nd_python(
    data: Array,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0,
) -> Array:
    """Blocks along the axes after the first one, as items of the batch."""
    count = len(block_shape)
    pads = [(0, 0), *zip(pad_before, pad_after, strict=True), *[(0, 0)] * (data.ndim - 1 - count)]
    padded = np.pad(data, pads, constant_values=pad_value)
    batch, *sizes = padded.shape
    pairs = [(size // b, b) for size, b in zip(sizes, block_shape, strict=False)]
    split = padded.reshape(batch, *(n for pair in pairs for n in pair), *sizes[count:])
    blocks, positions = range(2, 2 * count + 1, 2), range(1, 2 * count, 2)
    moved = split.transpose(*blocks, 0, *positions, *range(2 * count + 1, split.ndim))
    return moved.reshape(batch * math.prod(block_shape), *moved.shape[count + 1 :])


def batch_to_space_nd_python(
    data: Array,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> Array:
    """Items of the batch as blocks along the axes after the first one, which are then cropped."""
    count = len(block_shape)
    batch = data.shape[0] // math.prod(block_shape)
    split = data.reshape(*block_shape, batch, *data.shape[1:])
    order = [axis for i in range(count) for axis in (count + 1 + i, i)]
    moved = split.transpose(count, *order, *range(2 * count + 1, split.ndim))
    sizes = [size * b for size, b in zip(data.shape[1:], block_shape, strict=False)]
    joined = moved.reshape(batch, *sizes, *data.shape[count + 1 :])
    ends = [size - cut for size, cut in zip(sizes, crop_end_list, strict=True)]
    return joined[_slices(joined.ndim, crop_begin_list, ends, (), range(1, count + 1))]


def matrix_set_diag(
    input_np: Array, diagonal: Array, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> Array:
    """Matrices with other elements on a diagonal, or on all diagonals between two.

    `align` is the side of `diagonal` at which shorter ones above and below the main one are.
    """
    first, last = (k, k) if isinstance(k, int) else (k[0], k[-1])
    values = diagonal if first != last else np.expand_dims(diagonal, -2)
    above, below = align.split("_")
    result = input_np.copy()
    rows, columns = result.shape[-2:]
    for number in range(first, last + 1):
        length = min(columns - max(number, 0), rows + min(number, 0))
        side = above if number >= 0 else below
        start = values.shape[-1] - length if side == "RIGHT" else 0
        i = np.arange(length)
        result[..., i + max(-number, 0), i + max(number, 0)] = values[
            ..., last - number, start : start + length
        ]
    return result


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: Any) -> Array:
    """The positions at which values keep sequences sorted; there may be a sequence for each row."""
    rows = values.reshape(-1, values.shape[-1])
    sequences = np.broadcast_to(
        sorted_sequence.reshape(-1, sorted_sequence.shape[-1]),
        (len(rows), sorted_sequence.shape[-1]),
    )
    side: Literal["left", "right"] = "right" if right else "left"
    found = [np.searchsorted(s, row, side) for s, row in zip(sequences, rows, strict=True)]
    return np.array(found, out_dtype).reshape(values.shape)
