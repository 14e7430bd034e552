"""Arithmetic that may wrap around, as the bounds of its variables show.

Expressions are rewritten, and comparisons decided, as if signed arithmetic never overflowed, as in
TVM. But where the bounds of all variables are known, and show that a sum or a product may exceed
its datatype, no rewriting introduces it.
"""

from __future__ import annotations

from math import inf

from relaxpy.ir.arith.algebra import interval
from relaxpy.ir.arith.algebra.interval import EVERYTHING, Interval
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.core.traverse import children
from relaxpy.ir.tir import expr as tir, ops


def may_wrap(engine: Engine, expr: tir.PrimExpr) -> bool:
    """Return whether known bounds let a signed sum or product in an expression wrap around."""
    return _range(engine, expr)[1]


def _range(engine: Engine, root: tir.PrimExpr) -> tuple[Interval, bool]:
    """Return an interval of an expression by its operands, and whether some operand may wrap."""
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
