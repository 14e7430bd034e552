"""The quotient of many floats by the same one, rounded as by the instruction.

The reciprocal r of y, rounded to nearest, gives q = x r, and q - r (q y - x) with a single rounding
for each of the three is the number nearest to x / y, unless digits of the remainder q y - x are
lost (Brisebarre, Muller & Raina, IEEE Trans. Comput. 53(8), 2004). It is a multiple of the last
digits of q and of y, about 2**-47 times x. So no digit is lost where |x| >= 2**-85, or x is 0, if
2**-40 <= y < 2**40: then q is also a normal number. Below 2**86, q does not overflow. As y is
positive, and by the order of the operands, zeros keep their signs.
"""

from __future__ import annotations

from typing import Final

from relaxpy.exec.native.llvm.writer import Value
from relaxpy.exec.native.maths.numbers import FORMATS, bits, both, compare, fma

_DIVISORS: Final = -40, 40
_DIVIDENDS: Final = -85, 86


def _bits_of_power(exponent: int) -> int:
    """The representation of 2**exponent."""
    format = FORMATS["float"]
    return format.bias + exponent << format.mantissa


def far_from_one(y: Value) -> Value:
    """True if a divisor of `float` is not positive, too small or too large."""
    low, high = map(_bits_of_power, _DIVISORS)
    return compare("uge", bits(y) - low, high - low)


def may_lose_digits(x: Value) -> Value:
    """True in the lanes of `float` that are too small or too large."""
    low, high = map(_bits_of_power, _DIVIDENDS)
    twice = bits(x) + bits(x)  # without the sign
    return both(
        compare("uge", twice - 2 * low, 2 * (high - low) - (1 << 32)), compare("ne", twice, 0)
    )


def quotient_by(x: Value, y: Value, reciprocal: Value) -> Value:
    """x / y, where neither is out of range."""
    quotient = x * reciprocal
    return fma(-fma(quotient, y, -x), reciprocal, quotient)
