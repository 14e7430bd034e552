"""Tensors that grow along an axis without copies.

A result is a view of memory with spare capacity. A call that takes it appends in place, if nothing
has been written there yet; otherwise it copies, so that results stay unchanged, however often and
in whichever order a caller passes them.
"""

from __future__ import annotations

import numpy as np

from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.ir.core.dtype import Array


class _Memory(Array):
    """The memory of tensors with the same start and different sizes along `axis`.

    The key of `end` is the size of the longest one, if it exists.
    """

    axis: int
    end: dict[int, None]


@provided("relaxpy.growing.reserve")
def reserve(data: Array, axis: int, count: int) -> Array:
    """Memory that begins with `data`, with room for at least `count` more along an axis.

    It is that of `data` itself if `data` is the longest.
    """
    size = data.shape[axis]
    memory = _memory_of(data)
    if (
        memory is not None
        and (memory.axis, memory.dtype, memory.strides) == (axis, data.dtype, data.strides)
        and memory.ctypes.data == data.ctypes.data
        and _others(memory.shape, axis) == _others(data.shape, axis)
        and size + count <= memory.shape[axis]
        and memory.end.pop(size, False) is None  # no other thread takes it as well
    ):
        return memory.view(np.ndarray)
    capacity = max(size + count, 2 * size)
    shape = (*data.shape[:axis], capacity, *data.shape[axis + 1 :])
    memory = _Memory(shape, data.dtype)
    memory.axis, memory.end = axis, {}
    rows = memory.view(np.ndarray)
    rows[(slice(None),) * axis + (slice(size),)] = data
    return rows


@provided("relaxpy.growing.grown")
def grown(rows: Array, shape: ShapeTuple) -> Array:
    """The first elements of an array that `reserve` returned, read-only."""
    memory = _memory_of(rows)
    assert memory is not None
    memory.end[shape[memory.axis]] = None
    result = np.ndarray(tuple(shape), rows.dtype, memory, strides=rows.strides)
    result.flags.writeable = False
    return result


def _memory_of(data: object) -> _Memory | None:
    while isinstance(data, np.ndarray) and not isinstance(data, _Memory):
        data = data.base
    return data if isinstance(data, _Memory) else None


def _others(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
