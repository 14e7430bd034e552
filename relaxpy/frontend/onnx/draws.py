"""Packed functions of random numbers: those of ONNX's reference, from NumPy's `RandomState`."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from relaxpy.exec.runtime.registry import register_func

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
PREFIX = "relaxpy.onnx."


def uniform(shape: Any, seed: int) -> Array:
    """Numbers from 0 to 1 in float64."""
    return np.random.RandomState(seed).uniform(0.0, 1.0, tuple(map(int, shape)))


def normal(shape: Any, seed: int) -> Array:
    """Numbers of mean 0 and deviation 1 in float64."""
    return np.random.RandomState(seed).normal(0.0, 1.0, tuple(map(int, shape)))


for _function in (uniform, normal):
    register_func(PREFIX + _function.__name__, _function, override=True, pure=True)
