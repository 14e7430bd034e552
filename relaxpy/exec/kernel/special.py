"""Float functions over arrays that NumPy lacks, or defines differently from C."""

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
"""For larger arguments erf is 1 in double precision."""


@cache
def _series() -> tuple[Doubles, Doubles]:
    """The Taylor series of erf(x) / x in x**2, and the Chebyshev series of erfc(x) * exp(x**2)."""
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


_NUMERATOR = (2.1945832e-06, 0.00028753822, 0.0035613365, 0.052159645, 0.18471454, 1.1283791)
_DENOMINATOR = (3.971173e-05, 0.0011260384, 0.014560502, 0.111904256, 0.49703202, 1.0)
_REACH = 3.8
"""erf(x) = x * N(x**2) / D(x**2), highest powers first, in single precision.

Fitted to erf on [0, 3.75] by reweighted least squares, with a maximum relative error of 1e-8. In
float32 the result is accurate to 6 units in the last place; it is 1 above `_REACH`.
"""


def _single(x: npt.NDArray[np.float32], out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """erf in single precision, with few passes over the array and without branches."""
    x = np.clip(x, np.float32(-_REACH), np.float32(_REACH))
    square = np.multiply(x, x)
    above, below = (_horner(c, square) for c in (_NUMERATOR, _DENOMINATOR))
    np.multiply(above, x, out=above)
    result: npt.NDArray[Any] = np.divide(above, below, out=above if out is None else out)
    return np.clip(result, np.float32(-1), np.float32(1), out=result)


def _horner(coefficients: tuple[float, ...], x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    first, *rest = map(np.float32, coefficients)
    value = np.multiply(x, first)
    for coefficient in rest[:-1]:
        np.add(value, coefficient, out=value)
        np.multiply(value, x, out=value)
    return np.add(value, rest[-1], out=value)


def _double(value: Doubles) -> Doubles:
    """erf of double precision."""
    size = np.minimum(np.abs(value), _FAR)
    small, large = _series()
    near = size <= _MIDDLE
    square = np.where(near, size, _MIDDLE) ** 2
    near_value = size * np.polynomial.polynomial.polyval(square, small)
    safe = np.where(near, _MIDDLE, size)
    u = (1 / safe - 1 / _FAR) / (1 / _MIDDLE - 1 / _FAR) * 2 - 1
    far_value = 1 - np.exp(-safe * safe) * np.polynomial.chebyshev.chebval(u, large)
    return np.copysign(np.where(near, near_value, far_value), value)


def erf(x: Any, out: npt.NDArray[Any] | None = None) -> Any:
    """The error function of each element."""
    array = np.atleast_1d(x)
    if array.dtype == np.float32:
        result = _single(array, None if out is None else np.atleast_1d(out))
    else:
        result = _double(array.astype(np.float64)).astype(array.dtype)
    if out is None:
        return result.reshape(np.shape(x))[()]
    if array.dtype != np.float32:
        out[...] = result.reshape(out.shape)
    return out


def exp10(x: Any, out: npt.NDArray[Any] | None = None) -> Any:
    """10 to the power x."""
    return np.power(_like(10, x), x, out=out)


def pow(x: Any, y: Any, out: npt.NDArray[Any] | None = None) -> Any:
    """x to the power y. NumPy replaces one exponent of 0.5 by the root, which is -0.0 of -0.0."""
    roots = np.equal(y, 0.5)
    if np.any(roots):
        differs = np.logical_and(roots, np.logical_or(x == 0, x == -math.inf))
        x = np.where(differs, np.abs(x), x) if np.any(differs) else x
    return np.power(x, y, out)


def rsqrt(x: Any, out: npt.NDArray[Any] | None = None) -> Any:
    """1 / sqrt(x)."""
    return np.reciprocal(np.sqrt(x, out), out)


def sigmoid(x: Any, out: npt.NDArray[Any] | None = None) -> Any:
    """1 / (1 + exp(-x)). If exp overflows to infinity, the result is 0, as it should be."""
    power = np.exp(np.negative(x, out), out)
    return np.reciprocal(np.add(_like(1, x), power, out), out)


def _like(value: float, x: Any) -> Any:
    dtype = x.dtype if isinstance(x, np.ndarray) else np.asarray(x).dtype
    return dtype.type(value)


def ldexp(x: Any, exponent: Any, out: npt.NDArray[Any] | None = None) -> Any:
    """x times 2 to the power `exponent`, which may be a float with an integer value."""
    return np.ldexp(x, np.asarray(exponent).astype(np.int32), out=out)
