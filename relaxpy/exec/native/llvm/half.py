"""Conversions of float16 by integers, for CPUs without instructions for them.

Exponents are moved by a product with a power of two and by a sum with one, which also treat
subnormal numbers as they should be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from relaxpy.exec.native.llvm.instructions import Instructions
    from relaxpy.exec.native.llvm.typed_values import Value

_SHIFT: Final = 23 - 10
"""The mantissa bits that `float` has more."""
_BIAS: Final = 127 - 15
"""The difference of the biases of exponents."""
_INFINITY: Final = 0x7F800000
_QUIET: Final = 0x400000
"""The bit of a NaN that raises nothing."""


def widened(f: Instructions, x: Value) -> Value:
    """A `half` as a `float`."""
    bits = f.cast("zext", f.cast("bitcast", x, "i16"), "i32")
    sign = f.arithmetic("shl", f.arithmetic("and", bits, 0x8000), 16)
    size = f.arithmetic("shl", f.arithmetic("and", bits, 0x7FFF), _SHIFT)
    finite = f.cast(
        "bitcast", f.arithmetic("mul", f.cast("bitcast", size, "float"), 2.0**_BIAS), "i32"
    )
    quiet = f.select(f.compare("ugt", size, 0x7C00 << _SHIFT), f.const(size.type, _QUIET), 0)
    other = f.arithmetic("or", f.arithmetic("or", size, _INFINITY), quiet)
    found = f.select(f.compare("uge", size, 0x7C00 << _SHIFT), other, finite)
    return f.cast("bitcast", f.arithmetic("or", found, sign), "float")


def narrowed(f: Instructions, x: Value) -> Value:
    """A `float` rounded to `half`, ties to even."""
    bits = f.cast("bitcast", x, "i32")
    size = f.arithmetic("and", bits, 0x7FFFFFFF)
    sign = f.arithmetic("lshr", f.arithmetic("xor", bits, size), 16)
    # The last bit of a subnormal `half` is that of a float between 0.5 and 1.
    half = f.const(x.type, 0.5)
    small = f.arithmetic("add", f.cast("bitcast", size, "float"), half)
    small = f.arithmetic("sub", f.cast("bitcast", small, "i32"), f.cast("bitcast", half, "i32"))
    odd = f.arithmetic("and", f.arithmetic("lshr", size, _SHIFT), 1)
    normal = f.arithmetic("add", size, (1 << _SHIFT - 1) - 1 - (_BIAS << 23))
    normal = f.arithmetic("lshr", f.arithmetic("add", normal, odd), _SHIFT)
    found = f.select(f.compare("ult", size, _BIAS + 1 << 23), small, normal)
    payload = f.arithmetic("lshr", f.arithmetic("and", size, _QUIET - 1), _SHIFT)
    quiet = f.select(f.compare("ugt", size, _INFINITY), f.arithmetic("or", payload, 0x200), 0)
    beyond = f.arithmetic("or", quiet, 0x7C00)
    found = f.select(f.compare("uge", size, _BIAS + 31 << 23), beyond, found)
    return f.cast("bitcast", f.cast("trunc", f.arithmetic("or", found, sign), "i16"), "half")
