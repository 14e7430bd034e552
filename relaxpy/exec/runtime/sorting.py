"""Packed functions that kernels of topi call to order elements."""

from __future__ import annotations

import numpy as np

from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import Array
from relaxpy.ir.relax.op.sorting import order


def _places(data: Array, axis: int, is_ascend: int, count: int) -> Array:
    return np.take(order(data, axis, descending=not is_ascend), np.arange(count), axis)


@provided("tvm.contrib.sort.sort", pure=True)
def sort(data: Array, out: Array, axis: int, is_ascend: int) -> None:
    """Store the elements in order along an axis."""
    if is_ascend:
        out[...] = data
        out.sort(axis, kind="stable")
        return
    out[...] = np.take_along_axis(data, order(data, axis, descending=True), axis)


@provided("tvm.contrib.sort.argsort", pure=True)
def argsort(data: Array, out: Array, axis: int, is_ascend: int) -> None:
    """Store the indices that sort the elements along an axis."""
    out[...] = order(data, axis, descending=not is_ascend)


@provided("tvm.contrib.sort.argsort_nms", pure=True)
def argsort_valid(data: Array, valid: Array, out: Array, axis: int, is_ascend: int) -> None:
    """Store the indices that sort the first elements of each line, then the other indices."""
    lines, found = np.moveaxis(data, axis, -1), np.moveaxis(out, axis, -1)
    found[...] = np.arange(lines.shape[-1])
    for place, count in np.ndenumerate(valid.reshape(lines.shape[:-1])):
        found[place][:count] = order(lines[place][:count], 0, descending=not is_ascend)


@provided("tvm.contrib.sort.topk", pure=True)
def topk(data: Array, values: Array, indices: Array, axis: int, is_ascend: int) -> None:
    """Store the first elements in order along an axis, and their indices."""
    places = _places(data, axis, is_ascend, values.shape[axis])
    values[...] = np.take_along_axis(data, places, axis)
    indices[...] = places


@provided("tvm.contrib.sort.topk_values", pure=True)
def topk_values(data: Array, values: Array, axis: int, is_ascend: int) -> None:
    """Store the first elements in order along an axis."""
    places = _places(data, axis, is_ascend, values.shape[axis])
    values[...] = np.take_along_axis(data, places, axis)


@provided("tvm.contrib.sort.topk_indices", pure=True)
def topk_indices(data: Array, indices: Array, axis: int, is_ascend: int) -> None:
    """Store the indices of the first elements in order along an axis."""
    indices[...] = _places(data, axis, is_ascend, indices.shape[axis])


@provided("tvm.contrib.sort.searchsorted", pure=True)
def searchsorted(sequence: Array, values: Array, out: Array, right: int) -> None:
    """Store the number of elements of an ascending sequence below each value, or not above it."""
    side = "right" if right else "left"
    if sequence.ndim == 1:
        out[...] = np.searchsorted(sequence, values, side)  # type: ignore[call-overload]
        return
    for line in np.ndindex(*values.shape[:-1]):
        out[line] = np.searchsorted(sequence[line], values[line], side)  # type: ignore[call-overload]
