"""Elements of floats of 8 and 16 bits, which are computed in float32."""

from __future__ import annotations

from relaxpy.exec.native.llvm.narrow_floats import FLOATS_OF_8_BITS, narrowed, widened
from relaxpy.exec.native.llvm.writer import Value
from relaxpy.exec.native.maths.numbers import narrow, widen
from relaxpy.ir.core.dtype import DataType


def from_memory(x: Value, dtype: DataType) -> Value:
    """Elements of a float of 8 or 16 bits in memory as `float`; those of others are unchanged."""
    match str(dtype):
        case "float16":
            return widen(x)
        case "bfloat16":
            return widen(x.function.cast("bitcast", x, "bfloat"))
        case name if (format := FLOATS_OF_8_BITS.get(name)) is not None:
            return widened(x.function, x, format)
        case _:
            return x


def to_memory(x: Value, dtype: DataType) -> Value:
    """Values of `float` rounded to a float of 8 or 16 bits in memory; of others, unchanged."""
    match str(dtype):
        case "float16":
            return narrow(x, "half")
        case "bfloat16":
            return x.function.cast("bitcast", narrow(x, "bfloat"), "i16")
        case name if (format := FLOATS_OF_8_BITS.get(name)) is not None:
            return narrowed(x.function, x, format)
        case _:
            return x
