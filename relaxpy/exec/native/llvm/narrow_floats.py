"""Conversions between `float` and floats of 16 and 8 bits, in vectors.

Exponents are moved by a product with a power of two and by a sum with one, which also treat
subnormal numbers as they should be. Where instructions convert float16, most floats of 8 bits are
widened by them: they are numbers of float16 times a power of two. That takes half of the time, and
no number is subnormal in `float`, which CPUs may be slow at, or take for zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from relaxpy.exec.native.llvm.instructions import Instructions
    from relaxpy.exec.native.llvm.typed_values import Value

_INFINITY: Final = 0x7F800000
_QUIET: Final = 0x400000
"""The bit of a NaN that raises nothing."""


class NarrowFloat(NamedTuple):
    """A format with a sign.

    Fields:
        bits: its size.
        mantissa: the bits of the mantissa.
        bias: that of exponents.
        beyond: the bits of infinity, or of the NaN if there is no infinity: after those of all
            numbers of the same sign, or those of -0.0, which then is not there.
    """

    bits: int
    mantissa: int
    bias: int
    beyond: int

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << self.bits - 1

    @property
    def has_infinity(self) -> bool:
        """True if there are infinities, and NaN of several bits."""
        return self.beyond < self.sign - 1

    @property
    def has_negative_zero(self) -> bool:
        """True if the sign alone is -0.0, and not the NaN."""
        return self.beyond != self.sign

    @property
    def largest(self) -> float:
        """The largest number."""
        exponent, mantissa = divmod(self.beyond - 1, 1 << self.mantissa)
        return math.ldexp(1 + mantissa / (1 << self.mantissa), exponent - self.bias)

    @property
    def is_in_half(self) -> bool:
        """True if its numbers times a power of two are those of `half`, with the same exponents."""
        return self.bits == 8 and (self.mantissa > 2 or self.has_infinity)


HALF: Final = NarrowFloat(16, 10, 15, 0x7C00)
FLOATS_OF_8_BITS: Final[Mapping[str, NarrowFloat]] = {
    "float8_e3m4": NarrowFloat(8, 4, 3, 0x70),
    "float8_e4m3": NarrowFloat(8, 3, 7, 0x78),
    "float8_e4m3b11fnuz": NarrowFloat(8, 3, 11, 0x80),
    "float8_e4m3fn": NarrowFloat(8, 3, 7, 0x7F),
    "float8_e4m3fnuz": NarrowFloat(8, 3, 8, 0x80),
    "float8_e5m2": NarrowFloat(8, 2, 15, 0x7C),
    "float8_e5m2fnuz": NarrowFloat(8, 2, 16, 0x80),
}
IN_BFLOAT16: Final = {"bfloat16", *FLOATS_OF_8_BITS}
"""The datatypes whose numbers are those of bfloat16, and only its own are subnormal there."""


def widened(f: Instructions, x: Value, format: NarrowFloat) -> Value:
    """The `float` with the value of a number of a format, which is given as an integer."""
    if f.module.platform.architecture.has_half and format.is_in_half:
        return _widened_half(f, x, format)
    shift = 23 - format.mantissa
    bits = f.cast("zext", x, "i32")
    sign = f.arithmetic("shl", f.arithmetic("and", bits, format.sign), 32 - format.bits)
    size = f.arithmetic("shl", f.arithmetic("and", bits, format.sign - 1), shift)
    wide = f.arithmetic("mul", f.cast("bitcast", size, "float"), 2.0 ** (127 - format.bias))
    finite = f.cast("bitcast", wide, "i32")
    if format.has_negative_zero:
        least = format.beyond << shift
        other = f.arithmetic("or", size, _INFINITY)
        if format.has_infinity:
            quiet = f.select(f.compare("ugt", size, least), f.const(size.type, _QUIET), 0)
            other = f.arithmetic("or", other, quiet)
        found = f.select(f.compare("uge", size, least), other, finite)
    else:
        nan = f.const(bits.type, _INFINITY | _QUIET)
        found = f.select(f.compare("eq", bits, format.beyond), nan, finite)
    return f.cast("bitcast", f.arithmetic("or", found, sign), "float")


def _widened_half(f: Instructions, x: Value, format: NarrowFloat) -> Value:
    """The same by way of `half`."""
    shift = HALF.mantissa - format.mantissa
    wide = f.cast("sext", x, "i16")
    half = f.arithmetic("shl", wide, shift)
    if format.mantissa > 2:  # else there is nothing between the sign and the exponent
        half = f.arithmetic("and", half, (format.sign - 1 << shift) - HALF.sign)
        if format.has_negative_zero:
            size = f.arithmetic("and", wide, format.sign - 1)
            other = f.arithmetic("or", half, HALF.beyond)
            half = f.select(f.compare("uge", size, format.beyond), other, half)
        else:
            nan = f.const(half.type, -1)
            half = f.select(f.compare("eq", wide, -format.beyond), nan, half)
    value = f.cast("fpext", f.cast("bitcast", half, "half"), "float")
    scale = 2.0 ** (HALF.bias - format.bias)
    return value if scale == 1 else f.arithmetic("mul", value, scale)


def narrowed(f: Instructions, x: Value, format: NarrowFloat) -> Value:
    """A `float` rounded to a format, ties to even, as an integer."""
    shift, bias = 23 - format.mantissa, 127 - format.bias
    bits = f.cast("bitcast", x, "i32")
    size = f.arithmetic("and", bits, 0x7FFFFFFF)
    sign = f.arithmetic("lshr", f.arithmetic("xor", bits, size), 32 - format.bits)
    # The last bit of a subnormal number is that of a float in the same binade as this one.
    unit = f.const(x.type, 2.0 ** (24 - format.bias - format.mantissa))
    small = f.arithmetic("add", f.cast("bitcast", size, "float"), unit)
    small = f.arithmetic("sub", f.cast("bitcast", small, "i32"), f.cast("bitcast", unit, "i32"))
    odd = f.arithmetic("and", f.arithmetic("lshr", size, shift), 1)
    normal = f.arithmetic("add", size, (1 << shift - 1) - 1 - (bias << 23))
    normal = f.arithmetic("lshr", f.arithmetic("add", normal, odd), shift)
    found = f.select(f.compare("ult", size, bias + 1 << 23), small, normal)
    found = f.intrinsic("umin", found, format.beyond)
    if format.has_infinity:
        payload = f.arithmetic("lshr", f.arithmetic("and", size, _QUIET - 1), shift)
        nan = f.arithmetic("or", payload, format.beyond | 1 << format.mantissa - 1)
        found = f.select(f.compare("ugt", size, _INFINITY), nan, found)
    if not format.has_negative_zero:
        sign = f.select(f.compare("eq", found, 0), found, sign)
    return f.cast("trunc", f.arithmetic("or", found, sign), f"i{format.bits}")


def rounded(f: Instructions, x: Value, format: NarrowFloat) -> Value:
    """A `float` rounded to a number of a format, as `widened` of what `narrowed` gives.

    This is a third of their instructions.
    """
    shift = 23 - format.mantissa
    exponent = f.arithmetic("and", f.cast("bitcast", x, "i32"), _INFINITY)
    exponent = f.intrinsic("umax", exponent, 128 - format.bias << 23)
    if format.has_infinity:  # else no large number has to differ from NaN
        exponent = f.intrinsic("umin", exponent, 254 - shift << 23)
    # The sum with such a number has its last bit where the format has it, whatever the sign.
    large = f.cast("bitcast", f.arithmetic("add", exponent, (shift << 23) + _QUIET), "float")
    flags, f.flags = f.flags, ""
    value = f.arithmetic("sub", f.arithmetic("add", x, large), large)
    f.flags = flags
    beyond = f.const(x.type, math.inf if format.has_infinity else math.nan)
    is_beyond = f.compare("ogt", f.intrinsic("fabs", value), format.largest)
    value = f.select(is_beyond, beyond, value)
    return f.intrinsic("copysign", value, x) if format.has_negative_zero else value
