"""Functions of floats whose results are exact, or one rounding of an exact product."""

from __future__ import annotations

import math

from relaxpy.exec.native.llvm.function import Value
from relaxpy.exec.native.maths.numbers import (
    absolute,
    any_lane,
    bits,
    both,
    compare,
    const,
    fma,
    format_of,
    number,
    scaled,
    select,
    shifted,
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
