"""Packs constant operands of contractions once, in the order in which tiles read them."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.machine.tuning import Allocations, Kept
from relaxpy.support.dataclass import dataclass

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Joined:
    """The layout for instructions that add `count` products to a lane, such as those of VNNI.

    The elements of a column for `count` successive steps of the sum are adjacent, with the datatype
    `dtype`. Each panel of `depth` steps is padded with zeros to a multiple of `count`. If the other
    operand has the offset `moved`, the panel is followed by its zero-point corrections as int32:
    `moved` times the sum of each column. Of an instruction that `swaps`, the last step is first.
    """

    count: int
    dtype: str
    depth: int
    moved: int
    swaps: bool = False

    def place(self, step: int) -> int:
        """The position of a step among those of an instruction."""
        return self.count - 1 - step if self.swaps else step


@dataclass(frozen=True, slots=True)
class Packing:
    """Panels of `width` columns, each with the steps of the sum in order.

    `over` and `columns` are extents and strides of the unpacked operand. The last panel is padded
    with zeros. If `dtype` is not empty, the elements are converted to it, which keeps their values.

    Units: elements
    """

    width: int
    over: tuple[tuple[int, int], ...]
    columns: tuple[int, int]
    joined: Joined | None = None
    dtype: str = ""

    def nbytes(self, itemsize: int) -> int:
        """The size of a packed copy of elements of this size in bytes."""
        steps = math.prod(extent for extent, _ in self.over)
        blocks = -(-self.columns[0] // self.width)
        if self.joined is None:
            size = np.dtype(self.dtype).itemsize if self.dtype else itemsize
            return blocks * steps * self.width * size
        how = self.joined
        groups = -(-how.depth // how.count) + bool(how.moved)
        lanes = self.width * how.count * np.dtype(how.dtype).itemsize
        return blocks * (steps // how.depth) * groups * lanes

    def shared(self, data: Array) -> Array:
        """A packed copy, shared by equal arrays while it is used."""
        some = data.reshape(-1)[:: max(data.size // Kept.SAMPLES, 1)].tobytes()
        key = data.dtype.name, data.shape, self, some
        number, packed = 0, None
        while True:
            found = _SHARED.get((*key, number))
            if found is None:
                packed = self.packed(data) if packed is None else packed
                found = _SHARED.setdefault((*key, number), packed)
            if found is packed or self._is_copy(found, data):
                return found
            number += 1

    def packed(self, data: Array) -> Array:
        """A copy of the elements of `data`, which is contiguous, in this order."""
        source = self._ordered(data)
        columns, width = self.columns[0], self.width
        dtype = np.dtype(self.dtype or data.dtype)
        target = _zeros((-(-columns // width), *source.shape[:-1], width), dtype)
        whole = columns // width if self.columns[1] == 1 and dtype == data.dtype else 0
        if whole:  # rows of panels, each copied as one element
            row = np.dtype((np.void, width * dtype.itemsize))
            rows = source[..., : whole * width].view(row)
            target[:whole].view(row)[..., 0] = np.moveaxis(rows, -1, 0)
        for block in range(whole, len(target)):
            part = source[..., block * width : (block + 1) * width]
            target[block, ..., : part.shape[-1]] = part
        return target if self.joined is None else _joined(target, self.joined)

    def unpacked(self, packed: Array, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """The contiguous array of this shape and datatype of which `packed` is a copy."""
        data = np.empty(shape, dtype)
        target, width = self._ordered(data), self.width
        if self.joined is not None:
            packed = _separated(packed, self.joined, dtype).reshape(-1, *target.shape[:-1], width)
        for block, first in enumerate(range(0, self.columns[0], width)):
            part = target[..., first : first + width]
            part[...] = packed[block, ..., : part.shape[-1]]
        return data

    def _is_copy(self, packed: Array, data: Array) -> bool:
        """True if `packed` is known to be a copy of `data`, bit for bit."""
        if not self.has_all(data):
            return False
        same = self.unpacked(packed, data.shape, data.dtype)
        return np.array_equal(same.reshape(-1).view(np.uint8), data.reshape(-1).view(np.uint8))

    def has_all(self, data: Array) -> bool:
        """True if a packed copy of `data` has each of its elements exactly once."""
        size = 1
        for extent, stride in sorted((*self.over, self.columns), key=itemgetter(1)):
            if extent != 1 and stride != size:
                return False
            size *= extent
        return size == data.size

    def _ordered(self, data: Array) -> Array:
        """A view of `data`, which is contiguous, with the axes of the sum before the columns."""
        axes = (*self.over, self.columns)
        strides = [stride * data.itemsize for _, stride in axes]
        memory = data.reshape(-1).view(np.uint8)
        return np.ndarray([extent for extent, _ in axes], data.dtype, memory, strides=strides)


_SHARED: Final[WeakValueDictionary[tuple[object, ...], Array]] = WeakValueDictionary()


def _joined(blocks: Array, how: Joined) -> Array:
    """Blocks of columns with their steps joined for dot products."""
    width, count = blocks.shape[-1], how.count
    stretches = blocks.reshape(len(blocks), -1, how.depth, width)
    groups = -(-how.depth // count)
    shape = (*stretches.shape[:2], groups + bool(how.moved), width, count)
    target = _zeros(shape, np.dtype(how.dtype))
    for n in range(count):
        every = stretches[:, :, n::count]
        target[:, :, : every.shape[2], :, how.place(n)] = every
    if how.moved:
        sums = stretches.sum(2, dtype=np.int32) * np.int32(how.moved)
        target[:, :, groups] = sums[..., None].view(target.dtype)
    return target


def _separated(target: Array, how: Joined, dtype: np.dtype[Any]) -> Array:
    """The blocks of columns whose steps `target` has joined (the inverse of `_joined`)."""
    blocks, stretches, _, width, count = target.shape
    plain = np.empty((blocks, stretches, how.depth, width), dtype)
    for n in range(count):
        every = plain[:, :, n::count]
        every[...] = target[:, :, : every.shape[2], :, how.place(n)]
    return plain


def _memory(size: int) -> Array:
    """New bytes of zeros.

    Large memory gets all of its pages at once, which takes a quarter of the time of a page fault
    for each. Very large memory gets huge pages, as arrays of NumPy do: others take twice the time
    to read.
    """
    populate = getattr(mmap, "MAP_POPULATE", 0)
    if size < Allocations.POPULATED or not populate:
        return np.zeros(size, np.uint8)
    is_huge = size >= Allocations.HUGE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0 if is_huge else populate)
    memory = mmap.mmap(-1, size, flags=flags)
    if is_huge:
        with suppress(OSError):  # the system may be built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    pages: Any = (ctypes.c_uint8 * size).from_buffer(memory)
    return np.ndarray((size,), np.uint8, pages)


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of zeros whose address is a multiple of `LINE_BYTES`."""
    size = math.prod(shape) * dtype.itemsize
    memory = _memory(size + LINE_BYTES)
    start = -memory.ctypes.data % LINE_BYTES
    return memory[start : start + size].view(dtype).reshape(shape)
