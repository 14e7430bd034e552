"""Sine, cosine and tangent, for arguments of any size; the tangent is of `double`.

x = n pi/2 + r with |r| <= pi/4, and r is a sum of two numbers. Up to 2**22, n and r come of
subtractions with fused products (Cody and Waite); beyond, a function for each number multiplies the
mantissa with the bits of 2/pi that matter (Payne and Hanek). The polynomials are minimax. Sine and
cosine of `float` are computed in `float` up to 2**17.

The inverse functions, of sums of two numbers in `double`, are at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.typed_values import literal
from relaxpy.exec.native.llvm.writer import F64, I64, Value
from relaxpy.exec.native.maths.numbers import (
    Pair,
    absolute,
    add_exactly,
    add_smaller,
    any_lane,
    bits,
    both,
    compare,
    const,
    fma,
    multiply_exactly,
    nearest_integer,
    number,
    polynomial,
    select,
    shifted,
    sign_bit,
    square_root,
    with_sign,
)

_LARGE: Final = 2.0**22
_LARGE_FLOAT: Final = 2.0**17
_TWO_OVER_PI: Final = 0.6366197723675814
_HALF_PI: Final = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_HALF_PI_FLOAT: Final = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_SIN_FLOAT: Final = (-0.00019503808, 0.0083320765, -0.16666654)
_COS_FLOAT: Final = (2.4420042e-05, -0.0013887201, 0.04166664, -0.5)
_SIN: Final = (
    *(-7.586669460591937e-13, 1.6058531151350385e-10, -2.5052106229502206e-08),
    *(2.7557319219330667e-06, -0.00019841269841265055, 0.008333333333333331),
    -0.16666666666666666,
)
_COS: Final = (
    *(-1.1382592210104094e-11, 2.0876145712997463e-09, -2.755731726907534e-07),
    *(2.480158729876057e-05, -0.0013888888888887393, 0.041666666666666664),
)
#: 64 zeros, and the first 1280 bits of 2/pi.
_BITS: Final = bytes(8) + bytes.fromhex(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea"
    "09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b"
    "1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f7"
    "8a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d"
)
_REDUCE: Final = "relaxpy.reduce"
_TABLE: Final = "relaxpy.two_over_pi"


def sin(x: Value) -> Value:
    """The sine. Error: 0.74 ulp."""
    r, low, quadrant = _reduced(x)
    return select(compare("oeq", x, 0), x, _turned(quadrant, _sine(r, low), _cosine(r, low)))


def cos(x: Value) -> Value:
    """The cosine. Error: 0.74 ulp."""
    r, low, quadrant = _reduced(x)
    return _turned(quadrant + 1, _sine(r, low), _cosine(r, low))


def sin_float(x: Value) -> Value:
    """The sine of `float`. Error: 1.19 ulp."""
    return select(compare("oeq", x, 0), x, _turned_float(x, 0, sin))


def cos_float(x: Value) -> Value:
    """The cosine of `float`. Error: 1.19 ulp."""
    return _turned_float(x, 1, cos)


def tan(x: Value) -> Value:
    """The tangent. Error: 0.86 ulp."""
    f = x.function
    r, low, quadrant = _reduced(x)
    sine, cosine = add_smaller(*_sine(r, low)), add_smaller(*_cosine(r, low))
    odd = compare("ne", both(quadrant, 1), 0)
    above, above_low = (f.select(odd, -c, s) for s, c in zip(sine, cosine, strict=True))
    below, below_low = (f.select(odd, s, c) for s, c in zip(sine, cosine, strict=True))
    quotient = above / below
    rest = fma(-quotient, below, above) + (above_low - quotient * below_low)
    return select(compare("oeq", x, 0), x, quotient + rest / below)


def _turned(quadrant: Value, sine: Pair, cosine: Pair) -> Value:
    """The sine of an angle in a quadrant, from the sine and the cosine of the rest."""
    f = quadrant.function
    odd = compare("ne", both(quadrant, 1), 0)
    result = f.select(odd, cosine[0] + cosine[1], sine[0] + sine[1])
    return f.select(compare("ne", both(quadrant, 2), 0), -result, result)


def _turned_float(x: Value, turns: int, precisely: Callable[[Value], Value]) -> Value:
    """The sine of x and so many right angles, which `precisely` is for large numbers."""
    f = x.function
    n, quadrant = nearest_integer(x, _TWO_OVER_PI)
    # The fused difference is exact.
    product, error = multiply_exactly(n, _HALF_PI_FLOAT[1])
    r, low = add_exactly(fma(n, -_HALF_PI_FLOAT[0], x), -product)
    low = low - fma(n, _HALF_PI_FLOAT[2], error)
    z = r * r
    sine = r + fma(r * z, polynomial(z, _SIN_FLOAT), low)
    cosine = fma(polynomial(z, _COS_FLOAT), z, const(x, 1))
    quadrant = quadrant + turns
    result = f.select(compare("ne", both(quadrant, 1), 0), cosine, sine)
    sign = shifted("shl", both(quadrant, 2), 30)
    result = number(f.arithmetic("xor", bits(result), sign), "float")
    large = compare("ogt", absolute(x), _LARGE_FLOAT)

    def slowly() -> list[Value]:
        """In `double` for all lanes; those that are not large are not used."""
        wide = precisely(f.cast("fpext", x, "double"))
        return [f.select(large, f.cast("fptrunc", wide, "float"), result)]

    return f.branch(any_lane(large), slowly, lambda: [result])[0]


def _sine(r: Value, low: Value) -> Pair:
    """sin(r + low) for |r| <= pi/4, as a sum."""
    z = r * r
    return r, fma(r * z, polynomial(z, _SIN), fma(z * -0.5, low, low))


def _cosine(r: Value, low: Value) -> Pair:
    """cos(r + low) for |r| <= pi/4, as a sum."""
    z = r * r
    half, error = multiply_exactly(r, r * 0.5)
    high, more = add_smaller(const(r, 1), -half)
    rest = fma(z * z, polynomial(z, _COS), more - error)
    return high, rest - r * low


def _reduced(x: Value) -> tuple[Value, Value, Value]:
    """The remainder of x as two numbers, and the integer n; only two bits of n matter."""
    f = x.function
    n, quadrant = nearest_integer(x, _TWO_OVER_PI)
    product, error = multiply_exactly(n, _HALF_PI[1])
    r, low = add_exactly(fma(n, -_HALF_PI[0], x), -product)
    low = low - fma(n, _HALF_PI[2], error)
    r, low = add_smaller(r, low)
    size = absolute(x)
    large = both(compare("ogt", size, _LARGE), compare("olt", size, math.inf))
    places = [f.alloca(type, x.type.lanes) for type in (F64, F64, F64, I64)]

    def slowly() -> list[Value]:
        """All lanes one by one; those that are not large are not used."""
        source, *targets = places
        f.store(x, source)

        def lane(index: Value) -> None:
            address = [f.element(place, index, F64) for place in places]
            _reduce_number(f.module)
            f.put(f"call void @{_REDUCE}({', '.join(map(str, address))})")

        f.loop(0, x.type.lanes, 1, [], lane)
        types = (x.type, x.type, x.type.of("i64"))
        found = [f.load(type, place) for type, place in zip(types, targets, strict=True)]
        fast = (r, low, quadrant)
        return [f.select(large, a, b) for a, b in zip(found, fast, strict=True)]

    r, low, quadrant = f.branch(any_lane(large), slowly, lambda: [r, low, quadrant])
    return r, low, quadrant


def _reduce_number(module: Module) -> None:
    """The function that stores, for one large number, the two numbers and the integer.

    x = m 2**e with an integer m. Of 2/pi, the bits from 2**(1 - e) on make m 2**e 2/pi modulo 4;
    256 of them leave an error of 2**-190, and the rest of no `double` is less than 2**-62.
    """
    table = "".join(f"\\{byte:02X}" for byte in _BITS)
    half_pi, half_pi_low = (literal("double", part) for part in _HALF_PI[:2])
    is_plain = module.fuses and not module.platform.architecture.fused
    fused = "llvm.fma.f64" if is_plain else f"{_REDUCE}.fma"
    if not is_plain and fused not in module.functions:
        f = module.function(fused, [(F64, "a"), (F64, "b"), (F64, "c")], F64)
        f.flags = ""
        f.ret(fma(*f.params))
    module.add_text(f"""\
@{_TABLE} = internal constant [{len(_BITS)} x i8] c"{table}"
define internal void @{_REDUCE}(ptr %source, ptr %high.out, ptr %low.out, ptr %n.out) nounwind {{
  %bits = load i64, ptr %source
  %upper = lshr i64 %bits, 52
  %biased = and i64 %upper, 2047
  %fraction = and i64 %bits, {2**52 - 1}
  %m = or i64 %fraction, {2**52}
  %first = sub i64 %biased, {1075 - 62}
  %start = call i64 @llvm.smax.i64(i64 %first, i64 0)
  %byte = lshr i64 %start, 3
  %place = getelementptr i8, ptr @{_TABLE}, i64 %byte
  %stored = load i256, ptr %place, align 1
  %ordered = call i256 @llvm.bswap.i256(i256 %stored)
  %rest = and i64 %start, 7
  %by = zext i64 %rest to i256
  %window = shl i256 %ordered, %by
  %m.wide = zext i64 %m to i256
  %product = mul i256 %m.wide, %window
  %rounded = add i256 %product, {2**253}
  %quadrant = lshr i256 %rounded, 254
  %whole = shl i256 %quadrant, 254
  %signed = sub i256 %product, %whole
  %size = call i256 @llvm.abs.i256(i256 %signed, i1 false)
  %zeros = call i256 @llvm.ctlz.i256(i256 %size, i1 false)
  %normal = shl i256 %size, %zeros
  %following = shl i256 %normal, 53
  %high.wide = lshr i256 %normal, 203
  %low.wide = lshr i256 %following, 203
  %high.bits = trunc i256 %high.wide to i64
  %low.bits = trunc i256 %low.wide to i64
  %high.mantissa = sitofp i64 %high.bits to double
  %low.mantissa = sitofp i64 %low.bits to double
  %zeros.64 = trunc i256 %zeros to i64
  %exponent = sub i64 {1023 - 51}, %zeros.64
  %scale.bits = shl i64 %exponent, 52
  %scale.plain = bitcast i64 %scale.bits to double
  %below = icmp slt i64 %bits, 0
  %before = icmp slt i256 %signed, 0
  %negative = xor i1 %below, %before
  %scale.minus = fneg double %scale.plain
  %scale = select i1 %negative, double %scale.minus, double %scale.plain
  %high = fmul double %high.mantissa, %scale
  %scale.low = fmul double %scale, {literal("double", 2.0**-53)}
  %low = fmul double %low.mantissa, %scale.low
  %r = fmul double %high, {half_pi}
  %r.minus = fneg double %r
  %error = call double @{fused}(double %high, double {half_pi}, double %r.minus)
  %more = call double @{fused}(double %high, double {half_pi_low}, double %error)
  %all = call double @{fused}(double %low, double {half_pi}, double %more)
  %n.plain = trunc i256 %quadrant to i64
  %n.minus = sub i64 0, %n.plain
  %n = select i1 %below, i64 %n.minus, i64 %n.plain
  store double %r, ptr %high.out
  store double %all, ptr %low.out
  store i64 %n, ptr %n.out
  ret void
}}""")


_PI: Final = (3.141592653589793, 1.2246467991473532e-16)
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
        for half, quarter in zip(_HALF_PI[:2], _QUARTER_PI, strict=True)
    )
    z = t * t
    high, error = add_smaller(start, t)
    return add_smaller(high, error + fma(t * z, polynomial(z, _ATAN), low + start_low))
