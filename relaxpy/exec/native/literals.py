"""Numbers as constants of LLVM IR."""

from __future__ import annotations

import struct


def literal(element: str, value: float) -> str:
    """A number as a constant of a scalar type.

    Floats are rounded to that type. LLVM writes `float` with the bits of the double.
    """
    if element == "i1":
        return "true" if value else "false"
    if element in ("float", "double"):
        if element == "float":
            value = _rounded(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if element == "bfloat":
        bits = struct.unpack("<I", struct.pack("<f", _rounded(value)))[0]
        # Round to nearest, ties to even; a NaN keeps a bit of its mantissa.
        upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 if value == value else 0x7FC0
        return f"0xR{upper:04X}"
    if element == "ptr":
        return f"inttoptr (i64 {int(value)} to ptr)" if value else "null"
    return str(int(value))


def _rounded(value: float) -> float:
    """`value` rounded to float32; infinite beyond its range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
