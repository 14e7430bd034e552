"""The LLVM types of datatypes, and the error for unsupported forms."""

from __future__ import annotations

from typing import Final

from relaxpy.exec.native.llvm.narrow_floats import FLOATS_OF_8_BITS
from relaxpy.exec.native.llvm.writer import BOOL, Type
from relaxpy.ir.core.dtype import DataType


class RefusedError(Exception):
    """A kernel or a step of it is unsupported in native code; the message is the reason."""


def storage_type(dtype: DataType) -> Type:
    """The type of an element in memory: bools and floats of 8 bits are bytes, bfloat16 is an i16.

    Errors:
        RefusedError: native code does not have the datatype.
    """
    name = str(dtype)
    if name == "bool":
        return Type("i8")
    if dtype.is_int and dtype.bits in (8, 16, 32, 64):
        return Type(f"i{dtype.bits}")
    found = _FLOATS.get(name)
    if found is None:
        raise RefusedError(f"the datatype {name}")
    return Type(found)


_FLOATS: Final = {
    "float16": "half",
    "bfloat16": "i16",
    "float32": "float",
    "float64": "double",
    **dict.fromkeys(FLOATS_OF_8_BITS, "i8"),
}


def value_type(dtype: DataType) -> Type:
    """The type in which values of `dtype` are computed: floats of 8 and 16 bits in float32.

    Errors:
        RefusedError: native code does not have the datatype.
    """
    type = storage_type(dtype)
    if dtype.is_bool:
        return BOOL
    return Type("float") if is_short_float(dtype) else type


def is_short_float(dtype: DataType) -> bool:
    """True if values of a datatype are computed in float32 and rounded to it."""
    return dtype.is_float and dtype.bits <= 16
