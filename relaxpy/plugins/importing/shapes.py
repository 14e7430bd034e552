"""Shapes in files, which may say anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_MOST_AXES = 64
_MOST_BYTES = (1 << 63) - 1


def has_arrays(shape: Sequence[object], dtype: np.dtype[Any]) -> bool:
    """True if NumPy can represent an array of a shape, even an empty one, given the memory."""
    if len(shape) > _MOST_AXES:
        return False
    sizes = [size for size in shape if type(size) is int and size >= 0]
    whole = math.prod(max(size, 1) for size in sizes) * max(dtype.itemsize, 1)
    return len(sizes) == len(shape) and whole <= _MOST_BYTES
