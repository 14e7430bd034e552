"""The bits of floating-point numbers, polynomials, and sums of two numbers, as vector code.

Constants of `double` that are a pair are the leading and the trailing part of a real number.

A table has 8 numbers of `float` in a register, from which one instruction selects in all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias

from relaxpy.exec.native.llvm.typed_values import literal
from relaxpy.exec.native.llvm.writer import F32, POINTER, Operand, Type, Value
from relaxpy.support.dataclass import dataclass

Pair: TypeAlias = tuple[Value, Value]
"""An unevaluated sum of two numbers: the second is at most a rounding error of the first."""


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format: the integer of the same size, mantissa bits, bias of exponents."""

    integer: str
    mantissa: int
    bias: int

    @property
    def round_to_integer(self) -> float:
        """The number to which any of at most 2**(mantissa - 2) is added to be rounded."""
        return 1.5 * 2.0**self.mantissa


FORMATS: Final = {
    "half": Format("i16", 10, 15),
    "bfloat": Format("i16", 7, 127),
    "float": Format("i32", 23, 127),
    "double": Format("i64", 52, 1023),
}


def format_of(x: Value) -> Format:
    """The format of the lanes of `x`."""
    return FORMATS[x.type.element]


def fma(a: Value, b: Operand, c: Operand) -> Value:
    """`a * b + c`, rounded once, as error terms need it.

    Where products are not fused, those of `float` are computed in `double`, and others with their
    rounding errors. The result is then the nearest number but for rare ties.
    """
    f = a.function
    if f.module.fuses:
        return f.fma(a, b, c)
    b, c = f.like(a, b), f.like(a, c)
    if a.type.element == "float":
        wide = [f.cast("fpext", x, "double") for x in (a, b, c)]
        return f.cast("fptrunc", f.fma(*wide), "float")
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    sum, rest = add_exactly(product, c)
    error = rest + error
    # A zero keeps its sign; an infinity and a number that is too large to be split have no errors.
    return select(compare("one", error, 0), sum + error, sum)


def _halves(x: Value) -> Pair:
    """A `double` as the sum of two numbers of 26 bits (Veltkamp)."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high


def const(x: Value, value: float) -> Value:
    """A constant of the type of `x`."""
    return x.function.const(x.type, value)


def select(condition: Value, yes: Operand, no: Value) -> Value:
    """`yes` where the condition holds, else `no`."""
    return no.function.select(condition, no.function.like(no, yes), no)


def compare(predicate: str, a: Value, b: Operand) -> Value:
    """A comparison, in each lane."""
    return a.function.compare(predicate, a, b)


def at_least(x: Value, limit: float) -> Value:
    """The maximum of `x` and a limit; a NaN stays one."""
    if x.function.module.platform.architecture.has_extremes:
        return x.function.intrinsic("maximum", x, limit)
    return select(compare("olt", x, limit), limit, x)


def at_most(x: Value, limit: float) -> Value:
    """The minimum of `x` and a limit; a NaN stays one."""
    if x.function.module.platform.architecture.has_extremes:
        return x.function.intrinsic("minimum", x, limit)
    return select(compare("ogt", x, limit), limit, x)


def both(a: Value, b: Operand) -> Value:
    """The bitwise `and` of both, or of masks."""
    return a.function.arithmetic("and", a, b)


def shifted(instruction: str, a: Value, bits: Operand) -> Value:
    """`a` shifted by `shl`, `lshr` or `ashr`."""
    return a.function.arithmetic(instruction, a, bits)


def absolute(x: Value) -> Value:
    """The absolute value."""
    return x.function.intrinsic("fabs", x)


def with_sign(x: Value, sign: Value) -> Value:
    """`x` with the sign of `sign`."""
    return x.function.intrinsic("copysign", x, sign)


def square_root(x: Value) -> Value:
    """The square root, rounded correctly."""
    return x.function.intrinsic("sqrt", x)


def bits(x: Value) -> Value:
    """The representation of `x` as integers."""
    return x.function.cast("bitcast", x, format_of(x).integer)


def number(bits: Value, element: str) -> Value:
    """The numbers of which `bits` is the representation."""
    return bits.function.cast("bitcast", bits, element)


def sign_bit(x: Value) -> Value:
    """True if the sign of `x` is negative, also that of a zero."""
    return compare("slt", bits(x), 0)


def any_lane(mask: Value) -> Value:
    """True if a condition holds in any lane, as a scalar."""
    if mask.type.lanes == 1:
        return mask
    integer = Type(f"i{mask.type.lanes}")
    return compare("ne", mask.function.new(integer, f"bitcast {mask} to {integer}"), 0)


def polynomial(x: Value, coefficients: Sequence[float], square: Value | None = None) -> Value:
    """The polynomial of `x` whose coefficient of the highest degree is the first.

    It depends on how products and sums are rounded in its last bits only. With the square of `x`,
    even and odd powers are summed side by side, which halves the latency.
    """
    if square is not None:
        even, odd = coefficients[-1::-2][::-1], coefficients[-2::-2][::-1]
        return x.function.fma(polynomial(square, odd), x, polynomial(square, even))
    first, second, *rest = coefficients
    sum = x.function.fma(x, first, const(x, second))
    for coefficient in rest:
        sum = x.function.fma(sum, x, coefficient)
    return sum


def add_exactly(a: Value, b: Value) -> Pair:
    """`a + b` and its rounding error."""
    sum = a + b
    other = sum - a
    return sum, (a - (sum - other)) + (b - other)


def add_smaller(a: Value, b: Value) -> Pair:
    """`a + b` and its rounding error, where `a` is zero or |a| >= |b|."""
    sum = a + b
    return sum, b - (sum - a)


def multiply_exactly(a: Value, b: Operand) -> Pair:
    """`a * b` and its rounding error."""
    product = a * b
    return product, fma(a, b, -product)


def nearest_integer(x: Value, factor: float) -> Pair:
    """The integer nearest to `x * factor`, as a float and as an integer."""
    format = format_of(x)
    high = fma(x, factor, format.round_to_integer)
    start = bits_of_constant(format)
    return high - format.round_to_integer, bits(high) - start


def bits_of_constant(format: Format) -> int:
    """The representation of `format.round_to_integer`."""
    return (format.bias + format.mantissa << format.mantissa) + (1 << format.mantissa - 1)


def scaled(x: Value, exponent: Value, power: Value | None = None) -> Value:
    """`x * 2**exponent`, rounded once; the exponent is at most twice that of the format.

    `power` is the exponent as a float, for the instruction of AVX-512 that does it for any
    exponent, with the same result.
    """
    return scaled_by(x, exponent + 2 * format_of(x).bias, power)


def scaled_by(x: Value, biased: Value, power: Value | None = None) -> Value:
    """As `scaled`, by an exponent to which twice the bias of the format was added."""
    format = format_of(x)
    f, lanes = x.function, x.type.lanes
    module = f.module
    if module.has_avx512 and lanes * x.type.bits == 512:
        name = f"llvm.x86.avx512.mask.scalef.p{'s' if x.type.bits == 32 else 'd'}.512"
        mask = f"i{lanes}"
        module.declare(name, x.type, [x.type, x.type, x.type, mask, "i32 immarg"])
        power = power or f.cast("sitofp", biased - 2 * format.bias, x.type.element)
        # All lanes, and the usual rounding.
        return f.new(x.type, f"call {x.type} @{name}({x}, {power}, {x}, {mask} -1, i32 4)")
    half = shifted("lshr", biased, 1)
    for part in (half, biased - half):
        x = x * number(shifted("shl", part, format.mantissa), x.type.element)
    return x


def widen(x: Value) -> Value:
    """A value of `half` or `bfloat` as `float`."""
    if x.type.element == "half":
        return x.function.cast("fpext", x, "float")
    upper = x.function.cast("zext", x.function.cast("bitcast", x, "i16"), "i32")
    return number(shifted("shl", upper, 16), "float")


def narrow(x: Value, element: str) -> Value:
    """A value of `float` rounded to `half` or `bfloat`, ties to even.

    The instruction for `bfloat` of some CPUs flushes subnormal numbers.
    """
    f = x.function
    if element == "half":
        return f.cast("fptrunc", x, "half")
    bits = f.cast("bitcast", x, "i32")
    odd = f.arithmetic("and", shifted("lshr", bits, 16), 1)
    quiet = f.arithmetic("or", bits, 0x400000)
    rounded = f.select(f.compare("uno", x, x), quiet, bits + 0x7FFF + odd)
    return f.cast("bitcast", f.cast("trunc", shifted("lshr", rounded, 16), "i16"), "bfloat")


Table: TypeAlias = tuple[tuple[float, ...], ...]
"""Rows of 8 numbers."""


def selected(name: str, table: Table, positions: Value) -> list[Value]:
    """The values of all rows of a table, in each lane, whose numbers are `positions` modulo 8."""
    f, lanes = positions.function, positions.type.lanes
    by_bytes = f.module.platform.architecture.lookup != "permute"
    if lanes == 1:
        symbol = f"relaxpy.{name}.table"
        rows = ", ".join(f"[8 x float] [{_listed(row)}]" for row in table)
        type = f"[{len(table)} x [8 x float]]"
        f.module.add_text(f"@{symbol} = internal constant {type} [{rows}]")
        start = both(positions, 7)
        here = Value(f, POINTER, f"@{symbol}")
        return [f.gather(F32, here, start + 8 * row) for row in range(len(table))]
    width = 4 if by_bytes else 16 if f.module.has_avx512 else 8
    if lanes < width:
        whole = f.shuffle(positions, None, [min(n, lanes - 1) for n in range(width)])
        return [f.shuffle(v, None, range(lanes)) for v in selected(name, table, whole)]
    if lanes > width:
        halves = (range(lanes // 2), range(lanes // 2, lanes))
        low, high = (selected(name, table, f.shuffle(positions, None, half)) for half in halves)
        return [f.shuffle(a, b, range(lanes)) for a, b in zip(low, high, strict=True)]
    if by_bytes:
        words = both(positions, 7) * 0x04040404 + 0x03020100  # the four bytes of each number
        chosen = f.computed(Type("i8", 16), f"bitcast {words} to {Type('i8', 16)}")
        return [_looked_up(row, chosen) for row in table]
    return [_permuted(row, positions) for row in table]


def _looked_up(row: tuple[float, ...], chosen: Value) -> Value:
    """The elements of 8 whose bytes the lanes of a register select."""
    f, type = chosen.function, chosen.type
    halves = [
        f.computed(type, f"bitcast <4 x float> <{_listed(half)}> to {type}")
        for half in (row[:4], row[4:])
    ]
    if f.module.platform.architecture.lookup == "swizzle":  # which gives 0 for other positions
        swizzle = partial(f.call, "llvm.wasm.swizzle", type)
        low, high = (swizzle(half, chosen - 16 * n) for n, half in enumerate(halves))
        found = f.arithmetic("or", low, high)
    else:
        found = f.call("llvm.aarch64.neon.tbl2.v16i8", type, *halves, chosen)
    return f.computed(Type("float", 4), f"bitcast {found} to {Type('float', 4)}")


def _permuted(row: tuple[float, ...], positions: Value) -> Value:
    """The elements of 8 that the lanes of a register select."""
    f, index = positions.function, positions.type
    type = index.of("float")
    instruction = "avx512.permvar.sf.512" if index.lanes == 16 else "avx2.permps"
    symbol = f"llvm.x86.{instruction}"
    f.module.declare(symbol, type, [type, index])
    numbers = _listed(row * (index.lanes // len(row)))
    return f.computed(type, f"call {type} @{symbol}({type} <{numbers}>, {positions})")


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"float {literal('float', value)}" for value in values)
