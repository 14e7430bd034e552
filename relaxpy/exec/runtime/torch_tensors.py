"""Conversion between arrays of NumPy and tensors of torch, which is never imported here."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_torch(value: object) -> bool:
    """Whether a value is a tensor of torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def as_numpy(value: Any) -> Any:
    """A tensor of torch as an array, over the same memory if possible; so are those in tuples."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_numpy, value))
    return value.detach().cpu().numpy() if is_torch(value) else value


def as_torch(value: Any) -> Any:
    """An array as a tensor of torch, which has been imported; other values stay."""
    if not isinstance(value, np.ndarray):
        return value
    return sys.modules["torch"].from_numpy(value)
