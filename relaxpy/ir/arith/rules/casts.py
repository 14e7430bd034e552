"""Casts of integers that keep the value."""

from __future__ import annotations

from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import expr as tir, ops

#: Bits of the integers that floats of these types hold without gaps.
_SIGNIFICANT = {"float16": 11, "float32": 24, "float64": 53}


def cast(engine: Engine, expr: tir.Cast) -> Poly:
    """The polynomial of the operand where the cast keeps its value, also by way of a float.

    Into a narrower datatype every intermediate result has to fit as well.
    """
    value, dtype = expr.value, expr.dtype
    match value:
        case tir.Cast(value=inner, dtype=through) if through.is_float and _is_exact(
            engine, inner, through
        ):
            value = inner
    if not _keeps_value(engine, value, dtype):
        return engine.opaque(expr)
    result = engine.poly(value)
    if dtype.bits < value.dtype.bits and not engine.fits(result, dtype):
        return engine.opaque(expr)
    return result


def _keeps_value(engine: Engine, value: tir.PrimExpr, target: DataType) -> bool:
    """True if a cast is to a signed type that holds every value, so that it cannot overflow."""
    source = value.dtype
    if source.family != "int" or target.family != "int" or source.lanes != 1:
        return False
    if target.bits >= source.bits:
        return True
    low, high = engine.bound(value)
    least, greatest = ops.int_range(target)
    return least <= low and high <= greatest


def _is_exact(engine: Engine, value: tir.PrimExpr, target: DataType) -> bool:
    """Return whether floats of `target` hold all values of the integer `value` exactly."""
    digits = _SIGNIFICANT.get(target)
    low, high = engine.bound(value)
    return digits is not None and -(1 << digits) <= low and high <= 1 << digits
