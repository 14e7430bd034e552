"""Casts, builtins and choices of integers, and arithmetic that may wrap around.

Expressions are rewritten, and comparisons decided, as if signed arithmetic on loop variables and
sizes never overflowed, as in TVM. But where the bounds of all variables are known, and show that a
sum or a product may exceed its datatype, no rewriting introduces it. Arithmetic on data wraps
around (`algebra/data.py`).
"""

from __future__ import annotations

from math import inf

from relaxpy.ir.arith.algebra import folding, interval, poly
from relaxpy.ir.arith.algebra.interval import EVERYTHING, Interval
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.tir import expr as tir, ops

#: Bits of the integers that floats of these types hold without gaps.
_SIGNIFICANT = {"float16": 11, "float32": 24, "float64": 53}


def cast(engine: Engine, expr: tir.Cast) -> poly.Poly:
    """The polynomial of the operand where the cast keeps its value, also by way of a float.

    Into a narrower datatype every intermediate result has to fit as well.
    """
    value, dtype = expr.value, expr.dtype
    match value:
        case tir.Cast(value=inner, dtype=through) if through.is_float and _is_exact(
            engine, inner, through
        ):
            value = inner
    return engine.exact(value) if _is_kept(engine, value, dtype) else engine.opaque(expr)


def keeps_value(engine: Engine, expr: tir.Cast) -> bool:
    """True if an integer and all that makes it up are known to be in the range of a cast."""
    return _is_kept(engine, expr.value, expr.dtype)


def _is_kept(engine: Engine, value: tir.PrimExpr, dtype: DataType) -> bool:
    if not _keeps_value(engine, value, dtype):
        return False
    return dtype.bits >= value.dtype.bits or engine.fits(engine.exact(value), dtype)


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
    """True if floats of `target` hold all values of the integer `value` exactly."""
    digits = _SIGNIFICANT.get(target)
    low, high = engine.bound(value)
    return digits is not None and -(1 << digits) <= low and high <= 1 << digits


def may_wrap(engine: Engine, expr: tir.PrimExpr) -> bool:
    """True if known bounds let a signed sum or product in an expression wrap around."""
    return _range(engine, expr)[1]


def _range(engine: Engine, root: tir.PrimExpr) -> tuple[Interval, bool]:
    """An interval of an expression by its operands, and whether some operand may wrap."""
    known = engine.ranges
    stack = [root]
    while stack:
        expr = stack[-1]
        if expr in known:
            stack.pop()
            continue
        operands = [child for child in children(expr) if isinstance(child, tir.PrimExpr)]
        rest = [operand for operand in operands if operand not in known]
        if rest:
            stack += rest
            continue
        stack.pop()
        found = _of_node(engine, expr, [known[operand][0] for operand in operands])
        wraps = any(known[operand][1] for operand in operands)
        if expr.dtype.family == "int" and -inf < found[0] and found[1] < inf:
            least, greatest = ops.int_range(expr.dtype)
            wraps = wraps or found[0] < least or greatest < found[1]
        known[expr] = found, wraps
    return known[root]


def _of_node(engine: Engine, expr: tir.PrimExpr, operands: list[Interval]) -> Interval:
    match expr, operands:
        case tir.IntImm(value=value), _:
            return value, value
        case tir.Var(), _:
            return engine.facts.bounds.get(expr, EVERYTHING)
        case tir.Add(), [a, b]:
            return interval.add(a, b)
        case tir.Sub(), [a, b]:
            return interval.add(a, interval.scale(b, -1))
        case tir.Mul(), [a, b]:
            return interval.multiply(a, b)
        case ((tir.FloorDiv() | tir.Div()), [a, b]):
            return interval.divide(a, b, floor=isinstance(expr, tir.FloorDiv))
        case ((tir.FloorMod() | tir.Mod()), [a, b]):
            return interval.remainder(a, b, floor=isinstance(expr, tir.FloorMod))
        case ((tir.Min() | tir.Max()), [a, b]):
            kind = min if isinstance(expr, tir.Min) else max
            return kind(a[0], b[0]), kind(a[1], b[1])
        case tir.Cast(value=value), [a] if value.dtype.bits <= expr.dtype.bits:
            return a if value.dtype.is_int and expr.dtype.family == "int" else EVERYTHING
        case _:
            return EVERYTHING


def call(engine: Engine, expr: tir.Call) -> poly.Poly:
    """The polynomial of a call."""
    signed, bits = expr.dtype.family == "int", expr.dtype.bits
    match getattr(expr.op, "name", ""), expr.args:
        case "tir.likely", (a,):
            return engine.poly(a)
        case "tir.shift_left", (a, tir.IntImm(value=by)) if 0 <= by < bits:
            return poly.scaled(engine.poly(a), 1 << by)
        case "tir.shift_right", (a, tir.IntImm(value=by)) if signed and 0 <= by < bits:
            result = engine.quotient(engine.exact(a), poly.constant(1 << by), floor=True)
            return engine.opaque(expr) if result is None else result
        case "tir.bitwise_and", (a, tir.IntImm(value=mask)) if signed and _is_mask(mask, a):
            return engine.poly(tir.FloorMod(a, tir.IntImm(a.dtype, mask + 1)))
        case _:
            return engine.opaque(expr)


def _is_mask(mask: int, value: tir.PrimExpr) -> bool:
    """True if `& mask` is the remainder by a power of two that the datatype has."""
    return 0 < mask < ops.int_range(value.dtype)[1] and mask & (mask + 1) == 0


ChoiceOperands = tuple[tir.PrimExpr, tir.PrimExpr, tir.PrimExpr]
"""The condition of a choice, and its values where that holds and where it does not."""


def choice(engine: Engine, expr: tir.PrimExpr, operands: ChoiceOperands) -> poly.Poly:
    """The polynomial of a choice between integers."""
    condition, a, b = operands
    test = engine.simplify(condition)
    if isinstance(test, tir.IntImm):
        return engine.poly(a if test.value else b)
    if not (_chooses(a) or _chooses(b)):
        p = engine.poly(a)
        return p if p == engine.poly(b) else engine.opaque(expr)
    result = _chosen(engine, expr, test, a, b)
    return poly.atom(result) if folding.operands_of_choice(result) else engine.poly(result)


def simplify_choice(engine: Engine, expr: tir.PrimExpr, operands: ChoiceOperands) -> tir.PrimExpr:
    """A choice between values that have no polynomial."""
    condition, a, b = operands
    if not (_chooses(a) or _chooses(b)):
        return engine.over_simple_operands(expr)
    return _chosen(engine, expr, engine.simplify(condition), a, b)


def _chosen(
    engine: Engine, expr: tir.PrimExpr, test: tir.PrimExpr, a: tir.PrimExpr, b: tir.PrimExpr
) -> tir.PrimExpr:
    """A choice whose values are simplified where they are chosen.

    The operand that a Select does not choose is evaluated too, and must not fail for that.
    """
    engines = engine.where(test, a), engine.where(engine.negation(test), b)
    is_lazy = not isinstance(expr, tir.Select)
    yes, no = (
        (where if is_lazy or folding.is_safe(side) else engine).simplify(side)
        for where, side in zip(engines, (a, b), strict=True)
    )
    return folding.chosen(expr, test, yes, no)


def _chooses(expr: tir.PrimExpr) -> bool:
    """True if `expr` has a condition, which may be decided where another holds."""
    if isinstance(expr, (tir.Var, tir.ConstExpr)):
        return False
    return any(isinstance(n, (tir.Select, tir.CmpExpr, tir.Min, tir.Max)) for n in walk(expr))
