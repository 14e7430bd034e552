"""Functions of Bessel and Airy.

For arguments below 25 they are sums of the trapezoidal rule for integrals over a period or a line,
which converge exponentially (Trefethen and Weideman, SIAM Review 56, 2014); above, Hankel's
expansions, whose least terms are below exp(-50) there (DLMF 10.17, 10.40).
"""

from __future__ import annotations

import math

from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import cos, exp, isinf, isnan, log, sin, sqrt
from relaxpy.plugins.importing.tensors import Loops, Number
from relaxpy.plugins.torch.ops.special import (
    INFINITY,
    NAN,
    elementwise,
    number,
    power_series,
    select,
)

_FAR = 25.0
_COUNT = 64
_ANGLES = [(k + 0.5) * math.pi / _COUNT for k in range(_COUNT // 2)]
_SINES = [math.sin(angle) for angle in _ANGLES]
#: Weights of DLMF 10.8.3 with each J of an even order as such a sum.
_NEUMANN = [
    sum((-1) ** (k + 1) * math.cos(2 * k * angle) / k for k in range(1, 31)) * 8 / math.pi / _COUNT
    for angle in _ANGLES
]


def _hankel(order: float, count: int = 24) -> list[float]:
    """The coefficients of DLMF 10.17.1."""
    found = [1.0]
    for k in range(1, count):
        found.append(found[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (k * 8))
    return found


def size_of(x: Number) -> Number:
    """|x|."""
    return Select(x < 0, -x, x)


def _oscillating(k: Loops, x: Number, order: float, *, second: bool) -> Number:
    """J or Y of a large argument."""
    inverse = k.local(number(1) / x)[0]
    square = k.local(inverse * inverse)[0]
    terms = _hankel(order)
    even = [value * (-1) ** j for j, value in enumerate(terms[::2])]
    odd = [value * (-1) ** j for j, value in enumerate(terms[1::2])]
    p = k.local(power_series(square, even))[0]
    q = k.local(power_series(square, odd) * inverse)[0]
    phase = k.local(x - (order / 2 + 0.25) * math.pi)[0]
    wave = p * sin(phase) + q * cos(phase) if second else p * cos(phase) - q * sin(phase)
    return select(isinf(x), 0.0, sqrt(inverse * (2 / math.pi)) * wave)


def _near_j(x: Number, order: int) -> Number:
    total = number(0)
    for sine in _SINES:
        total = total + (sin(x * sine) * sine if order else cos(x * sine))
    return total * (2 / _COUNT)


def _bessel_j(k: Loops, x: Number, order: int) -> Number:
    size = k.local(size_of(x))[0]
    result = k.local(x)
    with k.when(size < _FAR):
        k.store(result, 0, _near_j(size, order))
    with k.when(size >= _FAR):
        k.store(result, 0, _oscillating(k, size, order, second=False))
    return Select(x < 0, -result[0], result[0]) if order else result[0]


@elementwise("special_bessel_j0", prims="bessel_j0")
def bessel_j0(k: Loops, x: Number) -> Number:
    return _bessel_j(k, x, 0)


@elementwise("special_bessel_j1", prims="bessel_j1")
def bessel_j1(k: Loops, x: Number) -> Number:
    return _bessel_j(k, x, 1)


def _bessel_y(k: Loops, x: Number, order: int) -> Number:
    result = k.local(NAN)
    with k.when((x > 0.0) & (x < _FAR)):
        logarithm = k.local((log(x * 0.5) + 0.57721566490153286061) * (2 / math.pi))[0]
        total = number(0)
        for sine, weight in zip(_SINES, _NEUMANN, strict=True):
            wave = sin(x * sine) * sine if order else cos(x * sine)
            total = total + wave * weight
        found = logarithm * _near_j(x, order) + total
        if order:
            found = found - _near_j(x, 0) * (2 / math.pi) / x
        k.store(result, 0, found)
    with k.when(x >= _FAR):
        k.store(result, 0, _oscillating(k, x, order, second=True))
    return select(x == 0.0, -math.inf, result[0])


@elementwise("special_bessel_y0")
def bessel_y0(k: Loops, x: Number) -> Number:
    return _bessel_y(k, x, 0)


@elementwise("special_bessel_y1")
def bessel_y1(k: Loops, x: Number) -> Number:
    return _bessel_y(k, x, 1)


def _scaled_i(k: Loops, x: Number, order: int) -> Number:
    """I(|x|) exp(-|x|): DLMF 10.25.2 and 10.40.1."""
    size = k.local(size_of(x))[0]
    result = k.local(x)
    with k.when(size < _FAR):
        square = k.local(size * size * 0.25)[0]
        term = k.local(number(1))
        total = k.local(number(1))
        step = k.local(number(1))
        with k.repeat(term[0] > total[0] * 2.0**-54):
            k.store(term, 0, term[0] * square / (step[0] * (step[0] + float(order))))
            k.store(total, 0, total[0] + term[0])
            k.store(step, 0, step[0] + 1.0)
        front = size * 0.5 if order else number(1)
        k.store(result, 0, front * total[0] * exp(-size))
    with k.when(size >= _FAR):
        terms = [value * (-1) ** j for j, value in enumerate(_hankel(order))]
        inverse = k.local(number(1) / size)[0]
        series = power_series(inverse, terms)
        k.store(result, 0, series * sqrt(inverse * (0.5 / math.pi)))
    return Select(x < 0, -result[0], result[0]) if order else result[0]


def _exponential(k: Loops, x: Number, scaled: Number) -> Number:
    """A scaled value times exp(|x|)."""
    half = k.local(exp(size_of(x) * 0.5))[0]
    return Select(isinf(x), x * x * Select(x < 0, number(-1), number(1)), scaled * half * half)


@elementwise("special_i0e", prims="bessel_i0e")
def i0e(k: Loops, x: Number) -> Number:
    return _scaled_i(k, x, 0)


@elementwise("special_i1e", prims="bessel_i1e")
def i1e(k: Loops, x: Number) -> Number:
    return _scaled_i(k, x, 1)


@elementwise("i0", "special_i0", "special_modified_bessel_i0", prims="bessel_i0")
def i0(k: Loops, x: Number) -> Number:
    scaled = k.local(_scaled_i(k, x, 0))[0]
    return Select(isinf(x), INFINITY, _exponential(k, x, scaled))


@elementwise("special_i1", "special_modified_bessel_i1", prims="bessel_i1")
def i1(k: Loops, x: Number) -> Number:
    return _exponential(k, x, k.local(_scaled_i(k, x, 1))[0])


def _scaled_k(k: Loops, x: Number, order: float) -> Number:
    """K(x) exp(x): DLMF 10.32.9 and 10.40.2."""
    result = k.local(NAN)
    step = 0.125
    with k.when((x > 0.0) & (x < _FAR)):
        total = k.local(number(0.5))
        place = k.local(number(step))
        exponent = k.local(number(0))
        with k.repeat(exponent[0] < 45.0):
            up = k.local(exp(place[0]))[0]
            # cosh(t) - 1 = (exp(t / 2) - exp(-t / 2))^2 / 2
            half = k.local(exp(place[0] * 0.5))[0]
            root = k.local(half - number(1) / half)[0]
            k.store(exponent, 0, x * root * root * 0.5)
            weight = _cosh(k, place[0], order, up)
            k.store(total, 0, total[0] + exp(-exponent[0]) * weight)
            k.store(exponent, 0, exponent[0] - place[0] * float(order))
            k.store(place, 0, place[0] + step)
        k.store(result, 0, total[0] * step)
    with k.when(x >= _FAR):
        inverse = k.local(number(1) / x)[0]
        series = power_series(inverse, _hankel(order))
        k.store(result, 0, series * sqrt(inverse * (math.pi / 2)))
    return Select(x == 0.0, INFINITY, result[0])


def _cosh(k: Loops, place: Number, order: float, up: Number) -> Number:
    if not order:
        return number(1)
    wide = up if order == 1 else k.local(exp(place * float(order)))[0]
    return (wide + number(1) / wide) * 0.5


@elementwise("special_scaled_modified_bessel_k0")
def scaled_k0(k: Loops, x: Number) -> Number:
    return _scaled_k(k, x, 0)


@elementwise("special_scaled_modified_bessel_k1")
def scaled_k1(k: Loops, x: Number) -> Number:
    return _scaled_k(k, x, 1)


@elementwise("special_modified_bessel_k0")
def k0(k: Loops, x: Number) -> Number:
    return _scaled_k(k, x, 0) * exp(-x)


@elementwise("special_modified_bessel_k1")
def k1(k: Loops, x: Number) -> Number:
    return _scaled_k(k, x, 1) * exp(-x)


@elementwise("special_spherical_bessel_j0", prims="spherical_bessel_j0")
def spherical_j0(k: Loops, x: Number) -> Number:
    return select(x == 0.0, 1.0, select(isinf(x), 0.0, sin(x) / x))


#: Ai and -Ai' at 0.
_AIRY = (0.355028053887817239, 0.258819403792806798)


@elementwise("special_airy_ai")
def airy_ai(k: Loops, x: Number) -> Number:
    """DLMF 9.4.1 about 0, 9.6.2 above, 9.7.9 below."""
    result = k.local(NAN)
    size = k.local(size_of(x))[0]
    zeta = k.local(size * sqrt(size) * (2 / 3))[0]
    with k.when((x > -7.0) & (x < 1.0)):
        cube = k.local(x * x * x)[0]
        even, odd = k.local(number(1)), k.local(x)
        total = k.local(number(_AIRY[0]) - x * _AIRY[1])
        step = k.local(number(3))
        with k.loop(40):
            k.store(even, 0, even[0] * cube / (step[0] * (step[0] - 1.0)))
            k.store(odd, 0, odd[0] * cube / (step[0] * (step[0] + 1.0)))
            k.store(total, 0, total[0] + even[0] * _AIRY[0] - odd[0] * _AIRY[1])
            k.store(step, 0, step[0] + 3.0)
        k.store(result, 0, total[0])
    with k.when(x >= 1.0):
        value = _scaled_k(k, zeta, 1 / 3) * exp(-zeta)
        k.store(result, 0, select(isinf(x), 0.0, value * sqrt(x / 3.0) / math.pi))
    with k.when(x <= -7.0):
        terms = _airy_terms()
        inverse = k.local(number(1) / zeta)[0]
        square = k.local(inverse * inverse)[0]
        even_part = power_series(square, [t * (-1) ** j for j, t in enumerate(terms[::2])])
        odd_part = power_series(square, [t * (-1) ** j for j, t in enumerate(terms[1::2])])
        phase = k.local(zeta - math.pi / 4)[0]
        wave = cos(phase) * even_part + sin(phase) * odd_part * inverse
        value = wave / (sqrt(sqrt(size)) * math.pi**0.5)
        k.store(result, 0, select(isinf(x), 0.0, value))
    return Select(isnan(x), x, result[0])


def _airy_terms() -> list[float]:
    """The u of DLMF 9.7.2."""
    found = [1.0]
    for k in range(1, 22):
        found.append(found[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    return found
