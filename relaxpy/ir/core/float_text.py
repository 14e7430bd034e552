"""The text of a float that keeps all bits: `float.hex` gives the same one for each NaN."""

from __future__ import annotations

import math
import struct
from typing import Final

_NAN: Final = "nan:"


def bits_of(value: float) -> int:
    """The bits of a float64."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(bits)


def exact_hex(value: float) -> str:
    """The text of a float, which differs if its bits do."""
    text = value.hex()
    is_other = math.isnan(value) and bits_of(value) != bits_of(float(text))
    return f"{_NAN}{bits_of(value):016x}" if is_other else text


def from_hex(text: str) -> float:
    """The float of a text.

    Errors:
        ValueError: it is not one.
        OverflowError: it is too large.
    """
    if not text.startswith(_NAN):
        return float.fromhex(text)
    value: float
    (value,) = struct.unpack(">d", bytes.fromhex(text[len(_NAN) :].zfill(16)[:16]))
    if not math.isnan(value) or exact_hex(value) != text:
        raise ValueError(f"not a NaN: {text[:40]!r}")
    return value
