"""Accumulations in IR: their identities, and how two values are combined."""

from __future__ import annotations

from relaxpy.exec.loops.plan.updates import Combine, reduction_identity
from relaxpy.exec.native.llvm.writer import Function, Type, Value
from relaxpy.exec.native.values.datatypes import value_type
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.expr import FloatImm, IntImm

_BITS = {"and": "and", "or": "or", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


def identity(function: Function, combine: Combine, dtype: DataType, lanes: int) -> Value:
    """The identity of `combine` in all lanes."""
    type = Type(value_type(dtype).element, lanes)
    return function.const(type, _identity(combine, dtype))


def _identity(combine: Combine, dtype: DataType) -> float:
    if combine == "min" or combine == "max":
        if dtype.is_bool:
            return int(combine == "min")
        number = reduction_identity(combine, dtype).value
        if dtype.family == "uint" and number >= 1 << (dtype.bits - 1):
            number -= 1 << dtype.bits
        return number
    if combine == "add":
        return -0.0 if dtype.is_float else 0
    if combine == "mul":
        return 1
    if combine == "and" or combine == "bitwise_and":
        return 1 if dtype.is_bool else -1
    return 0


def identity_of(combine: Combine, dtype: DataType) -> IntImm | FloatImm:
    """The identity of `combine` as an expression."""
    if combine in ("min", "max") and not dtype.is_bool:
        return reduction_identity(combine, dtype)
    number = _identity(combine, dtype)
    if dtype.is_float:
        return FloatImm(dtype, number)
    return IntImm(dtype, int(number) % (1 << dtype.bits) if dtype.family == "uint" else int(number))


def combined(combine: Combine, dtype: DataType, a: Value, b: Value) -> Value:
    """Both values combined; 16-bit floats are not rounded."""
    f = a.function
    if dtype.is_bool:
        truths = {"add": "xor", "mul": "and", "min": "and", "max": "or", **_BITS}
        return f.arithmetic(truths[combine], a, b)
    if combine in ("min", "max"):
        if dtype.is_float:
            return _extreme(combine, a, b)
        return f.intrinsic(f"{'s' if dtype.family == 'int' else 'u'}{combine}", a, b)
    if combine in ("add", "mul"):
        outer, f.flags = f.flags, ""
        result = f.arithmetic(combine, a, b)
        f.flags = outer
        return result
    return f.arithmetic(_BITS[combine], a, b)


def _extreme(combine: Combine, a: Value, b: Value) -> Value:
    """The minimum or maximum of two floats, a NaN if one of them is."""
    f, type = a.function, a.type
    if f.module.platform.architecture.has_extremes:
        return f.intrinsic(f"{combine}imum", a, b)
    test = "ogt" if combine == "max" else "olt"
    # Each select is one instruction of x86, with its second operand if one is a NaN. So one of the
    # two has the NaN, whose bits remain those of one together with any others.
    whole = Type(f"i{type.bits}", type.lanes)
    parts = [
        f.new(whole, f"bitcast {f.select(f.compare(test, x, y), x, y)} to {whole}")
        for x, y in ((a, b), (b, a))
    ]
    return f.new(type, f"bitcast {f.arithmetic('or', *parts)} to {type}")
