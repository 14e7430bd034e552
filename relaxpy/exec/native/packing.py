"""Constant operands of contractions, copied once into the order in which tiles read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from relaxpy.dataclass import dataclass

_ALIGNMENT = 64
MARK = 1
"""What is added to the address of an operand that is packed: no element is at an odd address."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Blocks of `width` columns, and in each the products of the sum in order.

    The axes of the sum and the columns are the extents and strides in the operand as it is. The
    last block is filled up with zeros.

    Units: elements
    """

    width: int
    over: tuple[tuple[int, int], ...]
    columns: tuple[int, int]

    def packed(self, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A copy of the elements of `data`, which is contiguous, in this order."""
        axes = (*self.over, self.columns)
        extents = [extent for extent, _ in axes]
        strides = [stride * data.itemsize for _, stride in axes]
        source = as_strided(data.reshape(-1), extents, strides, writeable=False)
        count, width = self.columns[0], self.width
        shape = (-(-count // width), *extents[:-1], width)
        size = int(np.prod(shape)) * data.itemsize
        memory = np.zeros(size + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        target: np.ndarray[Any, Any] = memory[start : start + size].view(data.dtype).reshape(shape)
        for block, first in enumerate(range(0, count, width)):
            part = source[..., first : first + width]
            target[block, ..., : part.shape[-1]] = part
        return target
