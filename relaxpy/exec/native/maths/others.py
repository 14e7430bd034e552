"""Functions of one or two numbers: exact ones, roundings, remainders, the error function."""

from __future__ import annotations

import math
from typing import Final

from relaxpy.exec.native.llvm.writer import Value
from relaxpy.exec.native.maths.exponential import exp
from relaxpy.exec.native.maths.numbers import (
    Table,
    absolute,
    any_lane,
    at_most,
    bits,
    both,
    compare,
    const,
    fma,
    format_of,
    multiply_exactly,
    number,
    polynomial,
    scaled,
    select,
    selected,
    shifted,
    square_root,
    with_sign,
)


def fmod(x: Value, y: Value) -> Value:
    """The remainder of the quotient rounded to zero, of `double`. It is exact.

    Each iteration subtracts a multiple of y 2**k with an exact fused product, which makes the rest
    smaller by about 51 bits.
    """
    f, format = x.function, format_of(x)
    a, b = absolute(x), absolute(y)
    valid = both(compare("olt", a, math.inf), compare("ogt", b, 0))

    def unfinished(rest: Value) -> Value:
        return both(valid, compare("oge", absolute(rest), b))

    def subtract(rest: Value) -> list[Value]:
        exponents = [shifted("lshr", bits(v), format.mantissa) for v in (absolute(rest), b)]
        k = exponents[0] - exponents[1] - (format.mantissa - 1)
        multiple = scaled(b, select(compare("sgt", k, 0), k, k - k))
        quotient = f.intrinsic("trunc", rest / multiple)
        return [f.select(unfinished(rest), fma(-quotient, multiple, rest), rest)]

    (rest,) = f.while_loop([a], lambda rest: any_lane(unfinished(rest)), subtract)
    rest = f.select(compare("olt", rest, 0), rest + b, rest)
    result = with_sign(rest, x)
    result = f.select(valid, result, const(x, math.nan))
    return f.select(compare("uno", x, y), x + y, result)


def nextafter(x: Value, y: Value) -> Value:
    """The number next to x in the direction of y."""
    f, element = x.function, x.type.element
    pattern = bits(x)
    outward = f.arithmetic("xor", compare("olt", x, y), compare("slt", pattern, 0))
    moved = number(f.select(outward, pattern + 1, pattern - 1), element)
    least = number(f.const(pattern.type, 1), element)
    result = f.select(compare("oeq", x, 0), with_sign(least, y), moved)
    result = f.select(compare("oeq", x, y), y, result)
    # Not x + y: rounding a sum to bfloat is a library call on some CPUs.
    nan = f.select(compare("uno", x, x), x, y)
    return f.select(compare("uno", x, y), nan, result)


def ldexp(x: Value, exponent: Value) -> Value:
    """x 2**exponent for an integer of any width, rounded once."""
    f, format = x.function, format_of(x)
    bias, mantissa = format.bias, format.mantissa
    if exponent.type.bits < 32:
        exponent = f.cast("sext", exponent, "i32")
    limit = 4 * bias
    n = f.intrinsic("smax", f.intrinsic("smin", exponent, limit), -limit)
    if n.type.element != format.integer:
        n = f.cast("sext" if n.type.bits < format.mantissa else "trunc", n, format.integer)
    # Steps down end far enough from subnormal numbers for the last to be the only rounding.
    down = bias - mantissa - 2
    for _ in range(3):
        above, below = compare("sgt", n, bias), compare("slt", n, 1 - bias)
        scale = select(above, 2.0**bias, select(below, 2.0**-down, const(x, 1)))
        x = x * scale
        zero = f.const(n.type, 0)
        n = n - f.select(above, zero + bias, f.select(below, zero - down, zero))
    n = f.intrinsic("smax", f.intrinsic("smin", n, bias), 1 - bias)
    return x * number(shifted("shl", n + bias, mantissa), x.type.element)


#: (erf(x) / x - 2 / sqrt(pi)) / x**2 on [0, 1], in powers of x**2.
_ERF_SMALL: Final = (
    *(-4.3599416656269906e-12, 8.791682287223088e-11, -1.2187938053422122e-09),
    *(1.4796244617170383e-08, -1.636504874807076e-07, 1.6462074391226269e-06),
    *(-1.4925648977380536e-05, 0.00012055332949670276, -0.000854832702296908),
    *(0.005223977625437868, -0.02686617064513105, 0.11283791670955125, -0.37612638903183754),
)
#: erfc(x) e**(x**2) on [1, 6], in powers of (x - 2) / (x + 2).
_ERFC: Final = (
    *(3.69205321602869e-06, 1.8727019242453762e-06, -1.398178808615561e-05),
    *(-2.766380846501792e-05, 2.7530521490262972e-05, 0.00017436882044198908),
    *(4.355508239874221e-05, -0.0009819774065142409, -0.0008471432263480788),
    *(0.006997461749047515, 0.003732892403796403, -0.0789785810158471),
    *(0.24165819424247065, -0.427185847413958, 0.25539567631050575),
)
_TWO_OVER_SQRT_PI: Final = (1.1283791670955126, 1.533545961316588e-17)
# Those of `float` are polynomials of the distance from a point near the middle of an interval at
# which the function is nearly a number of `float`, so that the last sum makes most of the error.
#: Intervals for each 1 of the argument.
_INTERVALS: Final = 1.88
# The coefficient of the first power is 1 less, so that the distance is added unchanged: this leaves
# nearly no error where the function is nearly linear.
#: The points, and the coefficients from the lowest power on, each for all intervals (Remez).
_ERF_FLOAT: Final[Table] = (
    (*(0.0, 0.5324566, 1.061952, 1.596872), *(2.1289413, 2.6553192, 3.1873543, 3.7263527)),
    (*(0.0, 0.5485545, 0.8668582, 0.97607416), *(0.9973942, 0.9998268, 0.99999344, 0.9999999)),
    (
        *(0.12837917, -0.15017748, -0.63467205, -0.91189426),
        *(-0.98786443, -0.9990219, -0.9999563, -0.9999989),
    ),
    (
        *(2.5151053e-07, -0.45249304, -0.38796106, -0.14069356),
        *(-0.025835972, -0.0025970677, -0.00013848893, -5.9180093e-06),
    ),
    (
        *(-0.37613693, -0.12265469, 0.15288821, 0.120409295),
        *(0.032631792, 0.004266754, 0.00028081692, 7.945222e-06),
    ),
    (
        *(0.00015989541, 0.18343583, 0.04816886, -0.04924007),
        *(-0.02612391, -0.004805118, -0.00043667053, 1.1821726e-05),
    ),
    (
        *(0.11176674, -0.0021903545, -0.06631661, -0.004631469),
        *(0.0122246165, 0.003926447, 0.00044808077, 4.6136392e-05),
    ),
    (
        *(0.0031245528, -0.04729458, 0.009909195, 0.0155151),
        *(-0.0016661513, -0.0021026428, 0.0, 0.0),
    ),
    (*(-0.02968721, 0.0068958504, 0.012437684, -0.0061346632), *(0.0, 0.0, 0.0, 0.0)),
)


def erf_float(x: Value) -> Value:
    """The error function of `float`, by a polynomial for each of 8 intervals. Error: 1.66 ulp."""
    distance = absolute(x)
    distance = at_most(distance, 3.97)
    # The last bits of this sum are the number of the interval.
    interval = bits(fma(distance, _INTERVALS, format_of(x).round_to_integer))
    point, *coefficients = selected("erf", _ERF_FLOAT, interval)
    distance = distance - point
    total = coefficients.pop()
    for coefficient in reversed(coefficients[1:]):
        total = fma(total, distance, coefficient)
    return with_sign(fma(total, distance, coefficients[0] + distance), x)


def erf(x: Value) -> Value:
    """The error function of `double`. Error: 1.01 ulp."""
    a = absolute(x)
    high, low = multiply_exactly(x, _TWO_OVER_SQRT_PI[0])
    square = x * x
    more = fma(polynomial(square, _ERF_SMALL), square, _TWO_OVER_SQRT_PI[1])
    small = high + fma(x, more, low)
    limited = at_most(a, 6.0)
    square, error = multiply_exactly(limited, limited)
    ratio = (limited - 2.0) / (limited + 2.0)
    complement = exp(-square, -error) * polynomial(ratio, _ERFC)
    return with_sign(select(compare("ogt", a, 1.0), 1.0 - complement, small), x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x). Error: 1.48 ulp."""
    return 1.0 / square_root(x)


def hypot(x: Value, y: Value) -> Value:
    """sqrt(x**2 + y**2) of `double`, without overflow. Error: 1.02 ulp."""
    a, b = absolute(x), absolute(y)
    swap = compare("ogt", b, a)
    a, b = x.function.select(swap, b, a), x.function.select(swap, a, b)
    up, down = compare("olt", a, 2.0**-400), compare("ogt", a, 2.0**400)
    scale = select(up, 2.0**600, select(down, 2.0**-600, const(x, 1)))
    back = select(up, 2.0**-600, select(down, 2.0**600, const(x, 1)))
    a, b = a * scale, b * scale
    square, error = multiply_exactly(a, a)
    sum = fma(b, b, error) + square
    result = square_root(sum) * back
    result = x.function.select(compare("uno", x, y), x + y, result)
    return _infinite_if_either(x, y, result)


def hypot_short(x: Value, y: Value) -> Value:
    """`hypot` of `float` as `double`, whose squares do not overflow. Error: that of rounding."""
    return _infinite_if_either(x, y, square_root(fma(x, x, y * y)))


def _infinite_if_either(x: Value, y: Value, result: Value) -> Value:
    for value in (x, y):
        result = select(compare("oeq", absolute(value), math.inf), math.inf, result)
    return result
