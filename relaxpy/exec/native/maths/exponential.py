"""Exponential and hyperbolic functions, of `float` and of `double`.

e**x = 2**n e**r with an integer n and |r| <= log(2)/2; the polynomials are minimax (Remez).
The errors are the largest that were measured over all exponents, as in the other files.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from relaxpy.exec.native.llvm.function import Value
from relaxpy.exec.native.maths.numbers import (
    Table,
    absolute,
    add_smaller,
    at_least,
    at_most,
    bits,
    bits_of_constant,
    compare,
    const,
    fma,
    format_of,
    multiply_exactly,
    nearest_integer,
    number,
    polynomial,
    scaled,
    scaled_by,
    select,
    selected,
    shifted,
    sign_bit,
    with_sign,
)
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Constants:
    least: float  # below which e**x is 0
    greatest: float  # above which e**x / 2 is infinite
    ln2: tuple[float, float]
    ln10: tuple[float, float]
    log10_2: tuple[float, float]
    tail: tuple[float, ...]  # (e**r - 1 - r) / r**2


_Parts: TypeAlias = tuple[Value, Value, Value]
"""A part of an exponential, and the integer n of its factor 2**n, as a float and as an integer."""

_EXP: Final = {
    "float": _Constants(
        least=-104.0,
        greatest=90.0,
        ln2=(0.693145751953125, 1.42860682030941723212e-6),
        ln10=(2.3025851249694824, -3.197543673785701e-08),
        log10_2=(0.3010300099849701, -1.4320988897559699e-08),
        tail=(*(0.001381454, 0.008368745, 0.04166839, 0.16666521, 0.49999994),),
    ),
    "double": _Constants(
        least=-746.0,
        greatest=711.0,
        ln2=(0.6931471805599453, 2.3190468138462996e-17),
        ln10=(2.302585092994046, -2.1707562233822494e-16),
        log10_2=(0.3010299956639812, -2.8037281277851704e-18),
        tail=(
            *(2.0921589370829142e-09, 2.510521838664829e-08, 2.7557252912472866e-07),
            *(2.7557255396471e-06, 2.480158734733946e-05, 0.0001984126987482399),
            *(0.0013888888888874398, 0.008333333333326134, 0.041666666666666685),
            *(0.1666666666666667, 0.5),
        ),
    ),
}
#: 1 / 9!, 1 / 8! ... 1 / 2!
_SHORT: Final = tuple(1 / math.factorial(n) for n in range(9, 1, -1))
_LOG2_E: Final = 1.4426950408889634
_LOG2_10: Final = 3.321928094887362
#: 2**(k/8)
_ROOTS: Final[Table] = (tuple(2 ** (k / 8) for k in range(8)),)
_SINH: Final = (
    *(7.746191420049808e-13, 1.605767923326279e-10, 2.505211770039386e-08, 2.755731919135783e-06),
    *(0.00019841269841324257, 0.008333333333333299, 0.16666666666666666),
)


def exp(x: Value, low: Value | None = None) -> Value:
    """e**x, or e**(x + low) for a rounding error `low` of x. Error: float 0.93, double 0.96 ulp."""
    if low is None and x.type.element == "float":
        return _exp_float(x)
    return _exp_series(x, low)


def _exp_float(x: Value) -> Value:
    """e**x of `float` as 2**n 2**(k/8) e**r with |r| <= log(2)/16."""
    constants = _EXP["float"]
    x = _clamped(x, constants.least, constants.greatest)
    # Sums with this number are multiples of 1/8, and the last bits of this one are 0.
    start = format_of(x).round_to_integer / 8
    sum = fma(x, _LOG2_E, start)
    format = format_of(x)
    eighths = bits(sum) - bits_of_constant(format) + (3 << format.mantissa) + 16 * format.bias
    n = sum - start
    r = fma(n, -constants.ln2[1], fma(n, -constants.ln2[0], x))
    part = fma(polynomial(r, (0.041669324, 0.16668051, 0.5)), r * r, r)
    (root,) = selected("exp", _ROOTS, eighths)
    return scaled_by(fma(root, part, root), shifted("ashr", eighths, 3), n)


def _exp_series(x: Value, low: Value | None = None) -> Value:
    """As `exp`, by one series. Error: float 0.98, double 0.96 ulp."""
    part, power, exponent = _split(x, low)
    return scaled(part + 1.0, exponent, power)


def exp_short(x: Value) -> Value:
    """e**x of `double` with a relative error of 1e-11, for results that are rounded to `float`."""
    r, power, exponent = _rest(x)
    return scaled(fma(polynomial(r, _SHORT), r * r, r) + 1.0, exponent, power)


def exp2(x: Value) -> Value:
    """2**x. Error: float 0.84, double 0.91 ulp."""
    constants = _EXP[x.type.element]
    bias = 1.0 * format_of(x).bias
    x = _clamped(x, -2.0 * bias, bias + 1.0)
    n, exponent = nearest_integer(x, 1.0)
    r, low = multiply_exactly(x - n, constants.ln2[0] + constants.ln2[1])
    return scaled(_reduced(r, low) + 1.0, exponent, n)


def exp10(x: Value) -> Value:
    """10**x. Error: float 1.07, double 1.20 ulp."""
    constants = _EXP[x.type.element]
    x = _clamped(x, constants.least * 0.4343, constants.greatest * 0.4343)
    n, exponent = nearest_integer(x, _LOG2_10)
    r = fma(n, -constants.log10_2[0], x)
    r = fma(n, -constants.log10_2[1], r)
    r, low = multiply_exactly(r, constants.ln10[0])
    return scaled(_reduced(r, low) + 1.0, exponent, n)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e**-x) of `double`, without overflow. Error: 1.44 ulp."""
    power = _exp_series(-absolute(x))
    return _quotient(select(compare("oge", x, 0), 1.0, power), const(x, 1), power)


def sigmoid_float(x: Value) -> Value:
    """1 / (1 + e**-x) of `float`. Error: 1.71 ulp.

    It is 2**n / (2**n + e**r) with n log(2) - r = -|x|, and 1 minus that for a positive x.
    """
    constants = _EXP["float"]
    distance = absolute(x)
    distance = at_most(distance, -constants.least)
    # The power of 2 is shifted, to be a normal number where the result is a subnormal one.
    shift = 30
    back = 2.0**-shift
    n, power = _nearest_power(distance, -_LOG2_E, shift)
    r = fma(n, constants.ln2[1], fma(n, constants.ln2[0], distance))
    square = r * r
    # 1 + 2**n is exact for all n from -23 on; what it loses below is added to the small terms.
    sum = fma(power, back, const(x, 1))
    lost = fma(power, back, 1.0 - sum)
    sum = sum + fma(polynomial(r, constants.tail, square), square, r + lost)
    quotient = power / sum
    return select(sign_bit(x), quotient * back, fma(quotient, -back, const(x, 1)))


def tanh_float(x: Value) -> Value:
    """The hyperbolic tangent of `float`. Error: 1.98 ulp.

    It is (1 - e**-2|x|) / (1 + e**-2|x|) with e**(-2|x|) = 2**n + 2**n (e**r - 1), where 1 - 2**n
    and 1 + 2**n are exact for all n that matter.
    """
    distance = absolute(x)
    distance = at_most(distance, 9.2)
    n, power = _nearest_power(distance, -2 * _LOG2_E)
    r = fma(n, -math.log(2), distance * -2.0)
    square = r * r
    grown = fma(polynomial(r, _EXP["float"].tail, square), square, r)
    quotient = fma(-power, grown, 1.0 - power) / fma(power, grown, power + 1.0)
    return with_sign(quotient, x)


def _nearest_power(x: Value, factor: float, shift: int = 0) -> tuple[Value, Value]:
    """The integer n nearest to `x * factor`, and 2**(n + shift), of `float`."""
    format = format_of(x)
    # Its last bits are the exponent of 1.
    start = format.round_to_integer + format.bias + shift
    sum = fma(x, factor, start)
    return sum - start, number(shifted("shl", bits(sum), format.mantissa), x.type.element)


def sinh(x: Value) -> Value:
    """The hyperbolic sine. Error: float 1.62, double 1.63 ulp."""
    half = _half_exp(x)
    large = with_sign(half - 0.25 / half, x)
    square = x * x
    small = fma(x * square, polynomial(square, _SINH), x)
    return select(compare("olt", absolute(x), 1.0), small, large)


def cosh(x: Value) -> Value:
    """The hyperbolic cosine. Error: float 1.45, double 1.46 ulp."""
    half = _half_exp(x)
    return half + 0.25 / half


def tanh(x: Value) -> Value:
    """The hyperbolic tangent of `double`, from e**2x - 1. Error: 1.8 ulp."""
    distance = absolute(x)
    r, _, exponent = _parts(at_most(distance, 22.0) * 2.0)
    part, more = add_smaller(r, polynomial(r, _EXP["double"].tail) * (r * r))
    format = format_of(x)
    biased = shifted("shl", exponent + format.bias, format.mantissa)
    scale = number(biased, x.type.element)
    grown, low = add_smaller(scale - 1.0, part * scale)
    low = fma(more, scale, low)
    sum = grown + 2.0
    reciprocal = 1.0 / sum
    quotient = grown * reciprocal
    rest = fma(-quotient, sum, grown) + fma(-quotient, low, low)
    return with_sign(fma(rest, reciprocal, quotient), x)


def _quotient(a: Value, b: Value, c: Value) -> Value:
    """a / (b + c) for |b| >= |c|, rounded almost correctly."""
    sum, low = add_smaller(b, c)
    reciprocal = 1.0 / sum
    quotient = a * reciprocal
    return fma(fma(-quotient, sum, a) - quotient * low, reciprocal, quotient)


def _split(x: Value, low: Value | None = None) -> _Parts:
    """e**r - 1 and n of e**(x + low) = 2**n e**r."""
    r, power, exponent = _rest(x)
    if low is not None:
        # It is a rounding error of x, and may be much larger than one of r.
        r, low = add_smaller(r, low)
    return _reduced(r, low), power, exponent


def _rest(x: Value) -> _Parts:
    """r and n of e**x = 2**n e**r, within the limits of the format."""
    constants = _EXP[x.type.element]
    return _parts(_clamped(x, constants.least, constants.greatest))


def _parts(x: Value) -> _Parts:
    """As `_rest`, for x that is known to be within the limits."""
    constants = _EXP[x.type.element]
    n, exponent = nearest_integer(x, _LOG2_E)
    return fma(n, -constants.ln2[1], fma(n, -constants.ln2[0], x)), n, exponent


def _reduced(r: Value, low: Value | None) -> Value:
    """e**(r + low) - 1 for |r| <= log(2)/2."""
    square = r * r
    tail = polynomial(r, _EXP[r.type.element].tail, square)
    if low is None:
        return fma(tail, square, r)
    return fma(tail, square, low) + r


def _half_exp(x: Value) -> Value:
    """e**|x| / 2, which overflows only where the hyperbolic functions do."""
    part, power, exponent = _split(absolute(x))
    return scaled(part + 1.0, exponent - 1, power - 1.0)


def _clamped(x: Value, least: float, greatest: float) -> Value:
    """`x` within limits; a NaN stays one."""
    return at_most(at_least(x, least), greatest)
