"""The error function over arrays, which NumPy does not have."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]

_MIDDLE = 2.0
_FAR = 6.0
"""From here on erf is 1 to double precision."""


@cache
def _series() -> tuple[Doubles, Doubles]:
    """Two series: Taylor's of erf(x) / x in x**2, Chebyshev's of erfc(x) * exp(x**2) in 1 / x."""
    near = [(-1) ** n * 2 / math.sqrt(math.pi) / math.factorial(n) / (2 * n + 1) for n in range(40)]
    return np.array(near), _interpolated(_tail, 24)


def _interpolated(function: Callable[[float], float], degree: int) -> Doubles:
    """The Chebyshev coefficients of `function` on [-1, 1]."""
    points = np.polynomial.chebyshev.chebpts1(degree + 1)
    values = np.array([function(float(t)) for t in points])
    basis = np.polynomial.chebyshev.chebvander(points, degree)
    coefficients: Doubles = basis.T @ values * (2 / (degree + 1))
    coefficients[0] /= 2
    return coefficients


def _tail(t: float) -> float:
    x = 1 / ((t + 1) / 2 * (1 / _MIDDLE - 1 / _FAR) + 1 / _FAR)
    return math.erfc(x) * math.exp(x * x)


def erf(x: Any, out: npt.NDArray[Any] | None = None) -> Any:
    """The error function of each element, computed in float64 and rounded to the datatype of x."""
    array = np.asarray(x)
    value = array.astype(np.float64)
    size = np.minimum(np.abs(value), _FAR)
    small, large = _series()
    near = size <= _MIDDLE
    square = np.where(near, size, _MIDDLE) ** 2
    inner = size * np.polynomial.polynomial.polyval(square, small)
    safe = np.where(near, _MIDDLE, size)
    u = (1 / safe - 1 / _FAR) / (1 / _MIDDLE - 1 / _FAR) * 2 - 1
    outer = 1 - np.exp(-safe * safe) * np.polynomial.chebyshev.chebval(u, large)
    result = np.copysign(np.where(near, inner, outer), value).astype(array.dtype)
    if out is None:
        return result[()]
    out[...] = result
    return out
