"""Inverse trigonometric functions, with minimax polynomials."""

from __future__ import annotations

import math
from typing import Final

from relaxpy.exec.native.llvm.function import Value
from relaxpy.exec.native.maths.numbers import (
    Pair,
    absolute,
    add_exactly,
    add_smaller,
    both,
    compare,
    const,
    fma,
    polynomial,
    select,
    sign_bit,
    square_root,
    with_sign,
)

_PI: Final = (3.141592653589793, 1.2246467991473532e-16)
_HALF_PI: Final = (1.5707963267948966, 6.123233995736766e-17)
_QUARTER_PI: Final = (0.7853981633974483, 3.061616997868383e-17)
_ASIN: Final = (
    *(0.02987671514731449, -0.019668761618887774, 0.019859146358198826, 0.002918448688902296),
    *(0.009353374784199514, 0.009615745775111208, 0.0115672131050546, 0.013963716418894155),
    *(0.017352820125828703, 0.022372157314344443, 0.03038194447827921, 0.04464285714252206),
    *(0.0750000000000013, 0.16666666666666666),
)
_ATAN: Final = (
    *(-0.013903122538645524, 0.030619575396160177, -0.04103676229042518, 0.047191872420248984),
    *(-0.05258005129118476, 0.05881920983553, -0.0666664168163951, 0.07692306718082426),
    *(-0.09090909066399568, 0.11111111110742315, -0.1428571428571139, 0.1999999999999999),
    -0.3333333333333333,
)

_HALF_PI_FLOAT: Final = (1.5707963705062866, -4.371138828673793e-08)
_ASIN_FLOAT: Final = (0.042166308, 0.024179516, 0.045470376, 0.074952975, 0.16666752)
_ATAN_FLOAT: Final = (
    *(-0.0017936204, 0.0109145995, -0.031177836, 0.057957582, -0.084034495, 0.10952186),
    *(-0.14264242, 0.19998549, -0.333333),
)


def asin_float(x: Value) -> Value:
    """The arc sine of `float`. Error: 1.16 ulp."""
    root, rest, near = _arc_float(x)
    high, error = add_smaller(const(x, _HALF_PI_FLOAT[0]), root * -2.0)
    far = high + fma(rest, -2.0, error + _HALF_PI_FLOAT[1])
    return with_sign(x.function.select(near, root + rest, far), x)


def acos_float(x: Value) -> Value:
    """The arc cosine of `float`. Error: 1.27 ulp."""
    f = x.function
    root, rest, near = _arc_float(x)
    signed = with_sign(root + rest, x)
    middle = _HALF_PI[0] - signed
    start = select(sign_bit(x), _PI[0], const(x, 0))
    return f.select(near, middle, fma(signed, 2.0, start))


def _arc_float(x: Value) -> tuple[Value, Value, Value]:
    """Two summands of asin(|x|) where |x| <= 1/2, and that; else those of acos(|x|) / 2."""
    a = absolute(x)
    near = compare("ole", a, 0.5)
    z = x.function.select(near, a * a, fma(a, -0.5, const(x, 0.5)))
    root = x.function.select(near, a, square_root(z))
    return root, root * z * polynomial(z, _ASIN_FLOAT), near


def atan_float(x: Value) -> Value:
    """The arc tangent of `float`. Error: 1.32 ulp."""
    a = absolute(x)
    steep = compare("ogt", a, 1.0)
    t = x.function.select(steep, 1.0 / a, a)
    z = t * t
    rest = t * z * polynomial(z, _ATAN_FLOAT)
    high, error = add_smaller(const(x, _HALF_PI_FLOAT[0]), -t)
    beside = high + (error + _HALF_PI_FLOAT[1] - rest)
    return with_sign(x.function.select(steep, beside, t + rest), x)


def atan2_short(y: Value, x: Value) -> Value:
    """`atan2` for results that are rounded to `float`. Error: 0.6 ulp."""
    f = x.function
    a, b = absolute(y), absolute(x)
    steep = compare("ogt", a, b)
    low, high = f.select(steep, b, a), f.select(steep, a, b)
    t = low / high
    # Two infinities are as far as each other, and so are two zeros, whose angle is that of y = 0.
    t = select(compare("oeq", low, math.inf), 1.0, select(compare("oeq", high, 0), 0.0, t))
    z = t * t
    angle = fma(t * z, polynomial(z, _ATAN_FLOAT), t)
    angle = f.select(steep, _HALF_PI[0] - angle, angle)
    angle = f.select(sign_bit(x), _PI[0] - angle, angle)
    return f.select(compare("uno", x, y), x + y, with_sign(angle, y))


def asin(x: Value) -> Value:
    """The arc sine. Error: 0.62 ulp."""
    small = fma(x * x * x, polynomial(x * x, _ASIN), x)
    twice, low = _from_one(x)
    high, error = add_smaller(const(x, _HALF_PI[0]), -twice)
    large = high + (error + (_HALF_PI[1] - low))
    return select(compare("ole", absolute(x), 0.5), small, with_sign(large, x))


def acos(x: Value) -> Value:
    """The arc cosine. Error: 0.62 ulp."""
    high, error = add_smaller(const(x, _HALF_PI[0]), -x)
    small = high + (error + fma(-x * x * x, polynomial(x * x, _ASIN), const(x, _HALF_PI[1])))
    twice, low = _from_one(x)
    high, error = add_smaller(const(x, _PI[0]), -twice)
    behind = high + (error + (_PI[1] - low))
    large = x.function.select(sign_bit(x), behind, twice + low)
    return x.function.select(compare("ole", absolute(x), 0.5), small, large)


def atan(x: Value) -> Value:
    """The arc tangent. Error: 0.75 ulp."""
    a = absolute(x)
    high, low = _angle(select(compare("ogt", a, 2.0**60), 2.0**60, a), const(x, 1))
    result = with_sign(high + low, x)
    return x.function.select(compare("uno", x, x), x, result)


def atan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y), with the special cases of C. Error: 0.76 ulp."""
    a, b = absolute(y), absolute(x)
    # Two infinities are as far as each other; beside one, a number is as nothing.
    infinite = [compare("oeq", value, math.inf) for value in (a, b)]
    either = x.function.arithmetic("or", *infinite)
    zero, one = const(x, 0), const(x, 1)
    ends = [x.function.select(mask, one, zero) for mask in infinite]
    a, b = (x.function.select(either, e, v) for e, v in zip(ends, (a, b), strict=True))
    most = x.function.select(compare("ogt", a, b), a, b)
    up, down = compare("olt", most, 2.0**-700), compare("ogt", most, 2.0**900)
    scale = select(up, 2.0**300, select(down, 2.0**-200, one))
    high, low = _angle(a * scale, b * scale)
    turned, error = add_exactly(const(x, _PI[0]), -high)
    behind = turned + (error + (_PI[1] - low))
    result = with_sign(x.function.select(sign_bit(x), behind, high + low), y)
    return x.function.select(compare("uno", x, y), x + y, result)


def _from_one(x: Value) -> Pair:
    """acos(|x|) for |x| > 1/2, by the half of the angle."""
    z = (1.0 - absolute(x)) * 0.5
    root = square_root(z)
    error = fma(-root, root, z) / (root + root)
    error = select(compare("ogt", root, 0), error, const(x, 0))
    rest = fma(root * z, polynomial(z, _ASIN), error)
    return root + root, rest + rest


def _angle(a: Value, b: Value) -> Pair:
    """atan(a / b) of two numbers that are not negative, and 0 for two zeros."""
    f = a.function
    middle = compare("ogt", a, b * (math.sqrt(2) - 1))
    steep = compare("ogt", a, b * (math.sqrt(2) + 1))
    difference, above_low = add_exactly(a, -b)
    sum, below_low = add_exactly(a, b)
    above = f.select(steep, -b, f.select(middle, difference, a))
    below = f.select(steep, a, f.select(middle, sum, b))
    zero = const(a, 0)
    between = both(middle, compare("ole", a, b * (math.sqrt(2) + 1)))
    above_low = f.select(between, above_low, zero)
    below_low = f.select(between, below_low, zero)
    t = above / below
    low = (fma(-t, below, above) + (above_low - t * below_low)) / below
    nothing = compare("oeq", a, 0)
    t, low = f.select(nothing, zero, t), f.select(nothing, zero, low)
    start, start_low = (
        select(steep, half, select(middle, quarter, zero))
        for half, quarter in zip(_HALF_PI, _QUARTER_PI, strict=True)
    )
    z = t * t
    high, error = add_smaller(start, t)
    return add_smaller(high, error + fma(t * z, polynomial(z, _ATAN), low + start_low))
