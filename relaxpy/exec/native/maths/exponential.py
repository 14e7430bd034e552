"""Exponential and hyperbolic functions, of `float` and of `double`; their inverses, and powers.

e**x = 2**n e**r with an integer n and |r| <= log(2)/2; the polynomials are minimax (Remez).
The errors are the largest that were measured over all exponents, as in the other files.

log(2**e m) = e log(2) + log(m) with m near 1, and log(m) = 2 atanh(s) with s = (m - 1) / (m + 1).
In `double` all are made of one logarithm, which is a sum of two numbers; for results that are
rounded to `float`, short series are enough.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from relaxpy.exec.native.llvm.writer import Value
from relaxpy.exec.native.maths.numbers import (
    Pair,
    Table,
    absolute,
    add_exactly,
    add_smaller,
    at_least,
    at_most,
    bits,
    bits_of_constant,
    both,
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
    square_root,
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
    (root,) = selected("exp", _ROOTS, bits(sum))
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


#: log(2) in two parts; multiples of the first are exact.
_LN2: Final = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_TWO_THIRDS: Final = (0.6666666666666666, 3.700743415417188e-17)
_ATANH: Final = (
    *(0.10764632078274153, 0.10456076050118988, 0.11766824719792635, 0.13333296255972177),
    *(0.15384615764868062, 0.18181818179630302, 0.22222222222228524, 0.28571428571428564, 0.4),
)
#: 2 / 15, 2 / 13 ... 2 / 3
_SHORT_ATANH: Final = tuple(2 / n for n in range(15, 1, -2))
#: (log(1 + f) - f) / f**2
_LOG_FLOAT: Final = (
    *(-0.07623061, 0.12905502, -0.13242981, 0.14181635, -0.16609056, 0.20001985, -0.25001585),
    *(0.33333325, -0.49999988),
)


def log_float(x: Value) -> Value:
    """The natural logarithm of `float`. Error: 0.93 ulp."""
    whole, f = _whole_and_rest(x)
    result = fma(f * f, polynomial(f, _LOG_FLOAT), f)
    return _finished(x, fma(whole, math.log(2), result))


def log2_float(x: Value) -> Value:
    """The logarithm of `float` to base 2. Error: 1.06 ulp."""
    whole, f = _whole_and_rest(x)
    return _finished(x, _times_log(f, 1.4426950216293335, 1.9259629891e-08) + whole)


def log10_float(x: Value) -> Value:
    """The logarithm of `float` to base 10. Error: 0.97 ulp."""
    whole, f = _whole_and_rest(x)
    high, low = _EXP["float"].log10_2
    result = fma(whole, low, _times_log(f, 0.4342944920063019, -1.0103050119e-08))
    return _finished(x, fma(whole, high, result))


def _whole_and_rest(x: Value) -> Pair:
    """n, as a float, and f of x = 2**n (1 + f), of `float`."""
    element = x.type.element
    small = compare("olt", x, 2.0**-126)
    normal = select(small, x * 2.0**23, x)
    # Exponents are counted from sqrt(1/2), so that f is near 0.
    exponent = shifted("ashr", bits(normal) - 0x3F3504F3, 23)
    f = number(bits(normal) - shifted("shl", exponent, 23), element) - 1.0
    whole = x.function.cast("sitofp", exponent, element) - select(small, 23.0, const(x, 0))
    return whole, f


def _times_log(f: Value, high: float, low: float) -> Value:
    """(high + low) log(1 + f) of `float` for 1 + f near 1."""
    scaled = tuple((high + low) * c for c in _LOG_FLOAT)
    return fma(f, high, fma(f * f, polynomial(f, scaled), f * low))


def log1p_float(x: Value) -> Value:
    """log(1 + x) of `float`. Error: 1.46 ulp."""
    sum = x + 1.0
    exponent = shifted("ashr", bits(sum) - 0x3F3504F3, 23)
    power = shifted("shl", exponent, 23)
    # The inverse of the power of two counts as 0 where it is less than the least normal number.
    inverse = number(x.function.intrinsic("smax", 0x3F800000 - power, 0), "float")
    f = number(bits(x) - power, "float") + (inverse - 1.0)
    whole = x.function.cast("sitofp", exponent, "float")
    result = fma(whole, math.log(2), fma(f * f, polynomial(f, _LOG_FLOAT), f))
    return select(compare("oeq", x, 0), x, _finished(sum, result))


def log(x: Value) -> Value:
    """The natural logarithm of `double`. Error: 0.501 ulp."""
    high, low = _logarithm(x)
    return _finished(x, high + low)


def log2(x: Value) -> Value:
    """The logarithm of `double` to base 2. Error: 0.501 ulp."""
    return _finished(x, _times(_logarithm(x), 1.4426950408889634, 2.0355273740931033e-17))


def log10(x: Value) -> Value:
    """The logarithm of `double` to base 10. Error: 0.501 ulp."""
    return _finished(x, _times(_logarithm(x), 0.4342944819032518, 1.098319650216765e-17))


def log1p(x: Value) -> Value:
    """log(1 + x) of `double`. Error: 0.501 ulp."""
    sum, low = add_exactly(const(x, 1), x)
    result = _finished(sum, _sum(_logarithm(sum, low)))
    return select(compare("olt", absolute(x), 2.0**-54), x, result)


def asinh(x: Value) -> Value:
    """The inverse hyperbolic sine of `double`. Error: 1.43 ulp."""
    a = absolute(x)
    square = a * a
    grown = a + square / (square_root(square + 1.0) + 1.0)
    result = _with_one(a, grown, None)
    return select(compare("olt", a, 2.0**-28), x, with_sign(result, x))


def acosh(x: Value) -> Value:
    """The inverse hyperbolic cosine of `double`. Error: 0.94 ulp."""
    t = x - 1.0
    square = fma(t, t, t + t)
    root = square_root(square)
    low = fma(-root, root, square) / (root + root)
    low = select(compare("ogt", root, 0), low, const(x, 0))
    grown, more = add_exactly(t, root)
    result = _with_one(x, grown, low + more)
    return select(compare("olt", x, 1.0), math.nan, result)


def asinh_short(x: Value) -> Value:
    """`asinh` for results that are rounded to `float`, which make all of the error."""
    a = absolute(x)
    root = square_root(fma(a, a, const(a, 1)))
    grown = a + a * a / (root + 1.0)
    return with_sign(_log1p_short(select(compare("oeq", a, math.inf), math.inf, grown)), x)


def acosh_short(x: Value) -> Value:
    """`acosh` for results that are rounded to `float`, which make all of the error."""
    t = x - 1.0
    result = _log1p_short(t + square_root(t * (x + 1.0)))
    return select(compare("olt", x, 1.0), math.nan, result)


def atanh_short(x: Value) -> Value:
    """`atanh` for results that are rounded to `float`, which make all of the error."""
    a = absolute(x)
    rest = select(compare("ogt", a, 1.0), math.nan, 1.0 - a)
    return with_sign(_log1p_short((a + a) / rest) * 0.5, x)


def _log1p_short(x: Value) -> Value:
    """log(1 + x) of `double` for x >= 0, with a relative error of 1e-11."""
    sum = x + 1.0
    exponent = shifted("lshr", bits(sum) - 0x3FE6A09E667F3BCD, 52)
    inverse = number((1023 << 52) - shifted("shl", exponent, 52), "double")
    result = _near_one(fma(x, inverse, inverse - 1.0))
    result = fma(_small_integer(exponent, "double"), math.log(2), result)
    return x.function.select(compare("olt", x, math.inf), result, x)


def _near_one(f: Value) -> Value:
    """log(1 + f) of `double` for 1 + f near 1, with a relative error of 1e-11."""
    s = f / (f + 2.0)
    z = s * s
    return fma(s * z, polynomial(z, _SHORT_ATANH), s + s)


def atanh(x: Value) -> Value:
    """The inverse hyperbolic tangent of `double`. Error: 0.501 ulp."""
    a = absolute(x)
    rest = 1.0 - a
    twice = a + a
    quotient = twice / rest
    low = (fma(-quotient, rest, twice) - quotient * ((1.0 - rest) - a)) / rest
    sum, more = add_exactly(const(x, 1), quotient)
    result = _sum(_logarithm(sum, low + more)) * 0.5
    outside = select(compare("oeq", a, 1.0), math.inf, const(x, math.nan))
    result = select(compare("olt", a, 1.0), result, outside)
    return select(compare("olt", a, 2.0**-28), x, with_sign(result, x))


def power(x: Value, y: Value) -> Value:
    """x**y of `double`, with the special cases of C. Error: 0.98 ulp."""
    a = absolute(x)
    high, low = _logarithm(a)
    high = _finished(a, high)
    product, error = multiply_exactly(y, high)
    moderate = compare("olt", absolute(product), 1000.0)
    error = select(moderate, fma(y, low, error), const(x, 0))
    result = exp(product, error)
    return _with_special_cases(x, y, result)


def power_float(x: Value, y: Value) -> Value:
    """x**y of `float`, in `double` with short series. Error: 0.501 ulp."""
    f, a = x.function, absolute(x)
    wide, factor = (f.cast("fpext", v, "double") for v in (a, y))
    start = 0x3FE6A09E667F3BCD
    biased = shifted("lshr", bits(wide) + ((1023 << 52) - start), 52)
    exponent = biased - 1023
    m = number(bits(wide) - shifted("shl", exponent, 52), "double") - 1.0
    s = m / (m + 2.0)
    z = s * s
    mantissa = fma(s * z, polynomial(z, _SHORT_ATANH), s + s)
    logarithm = fma(_small_integer(exponent, "double"), math.log(2), mantissa)
    result = exp_short(factor * _finished(wide, logarithm))
    return _with_special_cases(x, y, f.cast("fptrunc", result, "float"))


def _with_special_cases(x: Value, y: Value, result: Value) -> Value:
    """x**y, where `result` is |x|**y."""
    result = select(compare("oeq", absolute(x), 1.0), 1.0, result)
    floor, half = x.function.intrinsic("floor", y), y * 0.5
    is_integer = compare("oeq", floor, y)
    is_odd = both(is_integer, compare("one", x.function.intrinsic("floor", half), half))
    signed = x.function.select(both(is_odd, sign_bit(x)), -result, result)
    finite = compare("olt", absolute(x), math.inf)
    broken = both(both(compare("olt", x, 0), finite), compare("one", floor, y))
    result = select(broken, math.nan, signed)
    result = x.function.select(compare("uno", x, y), x + y, result)
    result = select(compare("oeq", x, 1.0), 1.0, result)
    return select(compare("oeq", y, 0), 1.0, result)


def _logarithm(x: Value, low: Value | None = None, doublings: Value | None = None) -> Pair:
    """log((x + low) 2**doublings) of positive finite numbers, to about 2**-64 of it."""
    format, element = format_of(x), x.type.element
    small = compare("olt", x, 2.0**-1022)
    x = select(small, x * 2.0**54, x)
    # Exponents are counted from sqrt(1/2), so that the mantissa is near 1.
    start = 0x3FE6A09E667F3BCD
    biased = shifted("lshr", bits(x) + ((format.bias << format.mantissa) - start), format.mantissa)
    exponent = biased - format.bias
    f = number(bits(x) - shifted("shl", exponent, format.mantissa), element) - 1.0
    if low is None:
        low = const(x, 0)
    else:
        # For large numbers it does not matter, and the power of two may not exist.
        inverse = number(shifted("shl", format.bias - exponent, format.mantissa), element)
        low = select(compare("olt", x, 2.0**500), low * inverse, const(x, 0))
        f, low = add_exactly(f, low)
    whole = _small_integer(exponent, element) - select(small, 54.0, const(x, 0))
    if doublings is not None:
        whole = whole + doublings
    below, more = add_smaller(const(x, 2), f)
    reciprocal = 1.0 / below
    s = f * reciprocal
    s_low = (fma(-s, below, f) + (low - s * (more + low))) * reciprocal
    z, z_low = multiply_exactly(s, s)
    z_low = fma(s + s, s_low, z_low)
    t, t_low = add_smaller(const(x, _TWO_THIRDS[0]), z * polynomial(z, _ATANH))
    t_low = t_low + _TWO_THIRDS[1]
    cube, cube_low = multiply_exactly(s, z)
    cube_low = cube_low + fma(s, z_low, s_low * z)
    v, v_low = multiply_exactly(cube, t)
    v_low = v_low + fma(cube, t_low, cube_low * t)
    sum, error = add_smaller(s + s, v)
    rest = error + ((s_low + s_low) + v_low)
    high, error = add_smaller(whole * _LN2[0], sum)
    return add_smaller(high, error + fma(whole, _LN2[1], rest))


def _with_one(x: Value, grown: Value, low: Value | None) -> Value:
    """log(1 + grown + low), or log(2 x) where x is large."""
    large = compare("ogt", x, 2.0**28)
    sum, more = add_exactly(const(x, 1), grown)
    low = more if low is None else low + more
    sum = x.function.select(large, x, sum)
    low = select(large, 0.0, low)
    doublings = select(large, 1.0, const(x, 0))
    return _finished(sum, _sum(_logarithm(sum, low, doublings)))


def _small_integer(n: Value, element: str) -> Value:
    """A small integer as a float; AVX2 has no conversion of 64-bit integers."""
    format = format_of(n.function.const(n.type.of(element), 0))
    start = format.round_to_integer
    as_bits = n + bits(n.function.const(n.type.of(element), start))
    return number(as_bits, element) - start


def _times(pair: Pair, high: float, low: float) -> Value:
    product, error = multiply_exactly(pair[0], high)
    return product + (fma(pair[1], high, error) + pair[0] * low)


def _sum(pair: Pair) -> Value:
    return pair[0] + pair[1]


def _finished(x: Value, result: Value) -> Value:
    """`result` as the logarithm of x, with the special cases."""
    result = select(compare("oeq", x, 0), -math.inf, result)
    result = select(compare("olt", x, 0), math.nan, result)
    # An infinity stays one, and so does a NaN.
    return x.function.select(compare("olt", x, math.inf), result, x)
