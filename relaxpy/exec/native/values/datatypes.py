"""The LLVM types of datatypes, and the error for unsupported forms."""

from __future__ import annotations

from relaxpy.exec.native.llvm.writer import BOOL, Type
from relaxpy.ir.core.dtype import DataType


class RefusedError(Exception):
    """A kernel or a step of it is unsupported in native code; the message is the reason."""


def storage_type(dtype: DataType) -> Type:
    """The type of an element in memory: bools are bytes, bfloat16 is the upper half of a float32.

    Errors:
        RefusedError: native code does not have the datatype.
    """
    name = str(dtype)
    if name == "bool":
        return Type("i8")
    if dtype.is_int and dtype.bits in (8, 16, 32, 64):
        return Type(f"i{dtype.bits}")
    found = {"float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double"}
    if name not in found:
        raise RefusedError(f"the datatype {name}")
    return Type(found[name])


def value_type(dtype: DataType) -> Type:
    """The type in which values of `dtype` are computed: those of 16 bits in float32.

    Errors:
        RefusedError: native code does not have the datatype.
    """
    type = storage_type(dtype)
    if dtype.is_bool:
        return BOOL
    return Type("float") if dtype.is_float and dtype.bits == 16 else type
