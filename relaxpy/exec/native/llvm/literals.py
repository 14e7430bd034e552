"""Numbers as constants of LLVM IR, and arithmetic on them."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping
from typing import Final

_ARITHMETIC: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
}
_ORDER: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}
_NEUTRAL: Final = {"add": "0", "sub": "0", "mul": "1", "and": "true", "or": "false"}
"""The right identity of operations on integers."""


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


def folded(name: str, a: str, b: str, bits: int) -> str | None:
    """Constant-fold an operation on integers of `bits` bits, if possible."""
    kind = name.partition(" ")[0]
    neutral = _NEUTRAL.get(kind)
    if neutral is not None and b == neutral:
        return a
    if neutral is not None and a == neutral and kind != "sub":
        return b
    apply = _ARITHMETIC.get(kind)
    if apply is not None and _is_number(a) and _is_number(b):
        value = apply(int(a), int(b))
        return str(value) if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None
    return None


def compared(predicate: str, a: str, b: str) -> bool | None:
    """The result of an integer `icmp`, if both are numbers or the same value."""
    if a == b and a[0] == "%":
        return {"eq": True, "ne": False, "slt": False, "sgt": False}.get(predicate)
    apply = _ORDER.get(predicate)
    if apply is None or not (_is_number(a) and _is_number(b)):
        return None
    return apply(int(a), int(b))


def power_of_two_in(value: int) -> int:
    """The largest power of two that divides an integer of 64 bits; 2**63 divides 0."""
    return value & -value or 1 << 63


def _is_number(name: str) -> bool:
    return name.lstrip("-").isdecimal()


def _rounded(value: float) -> float:
    """`value` rounded to float32; infinite beyond its range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
