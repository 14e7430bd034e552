"""Choices by a condition, Select and if_then_else: values are simplified where they are chosen."""

from __future__ import annotations

from relaxpy.ir.arith.algebra import folding, poly
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir

ChoiceOperands = tuple[tir.PrimExpr, tir.PrimExpr, tir.PrimExpr]
"""The condition of a choice, and its values where that holds and where it does not."""


def choice(engine: Engine, expr: tir.PrimExpr, operands: ChoiceOperands) -> Poly:
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


def simplify(engine: Engine, expr: tir.PrimExpr, operands: ChoiceOperands) -> tir.PrimExpr:
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
    """Return whether `expr` has a condition, which may be decided where another holds."""
    if isinstance(expr, (tir.Var, tir.ConstExpr)):
        return False
    return any(isinstance(n, (tir.Select, tir.CmpExpr, tir.Min, tir.Max)) for n in walk(expr))
