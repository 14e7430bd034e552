"""Calls of builtins on integers: shifts and masks as products and remainders."""

from __future__ import annotations

from relaxpy.ir.arith.algebra import poly
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.tir import expr as tir, ops


def call(engine: Engine, expr: tir.Call) -> Poly:
    """The polynomial of a call."""
    signed, bits = expr.dtype.family == "int", expr.dtype.bits
    match getattr(expr.op, "name", ""), expr.args:
        case "tir.likely", (a,):
            return engine.poly(a)
        case "tir.shift_left", (a, tir.IntImm(value=by)) if 0 <= by < bits:
            return poly.scaled(engine.poly(a), 1 << by)
        case "tir.shift_right", (a, tir.IntImm(value=by)) if signed and 0 <= by < bits:
            result = engine.quotient(engine.poly(a), poly.constant(1 << by), floor=True)
            return engine.opaque(expr) if result is None else result
        case "tir.bitwise_and", (a, tir.IntImm(value=mask)) if signed and _is_mask(mask, a):
            return engine.poly(tir.FloorMod(a, tir.IntImm(a.dtype, mask + 1)))
        case _:
            return engine.opaque(expr)


def _is_mask(mask: int, value: tir.PrimExpr) -> bool:
    """Return whether `& mask` is the remainder by a power of two that the datatype has."""
    return 0 < mask < ops.int_range(value.dtype)[1] and mask & (mask + 1) == 0
