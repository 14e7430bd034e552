"""The model of `model.py` straight in NumPy: the measure of relaxpy's answers and times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def main(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> tuple[Array, NDArray[np.int64]]:
    """The probability of each of the ten digits, and the likeliest digit, for every picture.

    Shapes:
        x               (n, 64)
        w1, b1, w2, b2  (64, 32), (32,), (32, 10), (10,)
        result          (n, 10) and (n,)
    """
    hidden = x @ w1
    hidden += b1
    np.maximum(hidden, 0, out=hidden)
    p: Array = np.matmul(hidden, w2)
    p += b2
    p -= p.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    return p, p.argmax(axis=1)
