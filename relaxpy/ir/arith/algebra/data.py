"""Expressions that hold data, whose arithmetic wraps around.

Loop variables and sizes are small enough that their sums and products do not overflow, as in TVM.
Elements of tensors, scalar arguments of kernels, and results of calls and of casts that lose bits
may have any value of their datatypes: what is computed from them wraps around where that overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import reduce
from operator import or_

from relaxpy.ir.arith.algebra.terms import Positive, Quotient
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import mentions

_ARITHMETIC = (
    *(tir.Var, tir.ConstExpr, tir.BinaryOpExpr, tir.Junction, tir.Not, tir.Select, tir.Let),
    *(tir.Ramp, tir.Broadcast, tir.Shuffle, tir.Cast, tir.Call, Quotient, Positive),
)
_SOURCES = ~reduce(or_, (kind._bits for kind in _ARITHMETIC))
_RESULTS = tir.Cast._bits | tir.Call._bits
#: The calls whose result is arithmetic on their arguments.
_BUILTINS = frozenset(
    [f"tir.bitwise_{name}" for name in ("and", "or", "xor", "not")]
    + [f"tir.{name}" for name in ("shift_left", "shift_right", "if_then_else", "likely")]
    + [f"tir.{name}" for name in ("clz", "popcount", "vscale")]
)


def holds_data(
    expr: tir.PrimExpr,
    data: Container[tir.Var] = (),
    keeps_value: Callable[[tir.Cast], bool] | None = None,
) -> bool:
    """True if `expr` is computed from data, so that it wraps around where it overflows.

    Rule:
        Loads, reductions, calls, and casts of floats and of wider integers are data, unless bounds
        show that such a cast `keeps_value`, and so are the variables in `data`; other variables are
        loop variables or sizes.
    """
    if isinstance(expr, tir.Var):
        return expr in data
    inside = expr._bits_inside
    if inside & _SOURCES or (data and mentions(expr, data)):
        return True
    if not inside & _RESULTS:
        return False
    casts = _results(expr)
    if casts is None or keeps_value is None:
        return casts != ()
    return not all(map(keeps_value, casts))


@memoised
def _results(expr: tir.PrimExpr) -> tuple[tir.Cast, ...] | None:
    """The casts that may lose bits in an expression without loads; None if there is a call."""
    if any(getattr(call.op, "name", "") not in _BUILTINS for call in occurrences(expr, tir.Call)):
        return None
    casts = occurrences(expr, tir.Cast)
    return tuple(cast for cast in casts if _loses_bits(cast.value.dtype, cast.dtype))


def _loses_bits(source: DataType, target: DataType) -> bool:
    """True if a cast to the integers of `target` may change a value."""
    if target.family != "int":
        return False
    if not source.is_int:
        return True
    return source.bits + (source.family == "uint" and not source.is_bool) > target.bits
