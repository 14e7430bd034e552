"""Minimum and maximum in canonical form: by the positive part of the difference of two operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaxpy.ir.arith import bounds, poly
from relaxpy.ir.arith.atoms import Positive, positive_atom
from relaxpy.ir.arith.poly import Poly
from relaxpy.ir.tir import expr as tir

if TYPE_CHECKING:
    from relaxpy.ir.arith.canonical import Canonical


def extremum(engine: Canonical, expr: tir.BinaryOpExpr) -> Poly:
    """The polynomial of a Min or Max; of more than two, operand by operand in order."""
    kind = type(expr)
    sign = 1 if kind is tir.Max else -1
    candidates = [engine.poly(operand) for operand in _operands(expr, kind)]
    kept: list[Poly] = []
    for p in candidates:
        if any(_at_least(engine, other, p, sign) for other in kept):
            continue
        kept = [other for other in kept if not _at_least(engine, p, other, sign)]
        kept.append(p)
    kept.sort(key=lambda p: [poly.monomial_key(monomial) for monomial, _ in poly.sorted_terms(p)])
    found = kept[0]
    for p in kept[1:]:
        apart = poly.scaled(poly.add(found, p, -1), sign)
        found = poly.add(p, positive_part(engine, apart), sign)
    return found


def _operands(expr: tir.PrimExpr, kind: type[tir.BinaryOpExpr]) -> list[tir.PrimExpr]:
    found, stack = [], [expr]
    while stack:
        part = stack.pop()
        if isinstance(part, tir.BinaryOpExpr) and type(part) is kind:
            stack += [part.b, part.a]
        else:
            found.append(part)
    return found


def _at_least(engine: Canonical, a: Poly, b: Poly, sign: int) -> bool:
    """Whether a (for a minimum, -a) is never below b (-b)."""
    return bounds.of_poly(engine, poly.scaled(poly.add(a, b, -1), sign))[0] >= 0


def positive_part(engine: Canonical, p: Poly) -> Poly:
    """max(p, 0): common factors stand outside, and max(-p, 0) = max(p, 0) - p."""
    low, high = bounds.of_poly(engine, p)
    if low >= 0:
        return p
    if high <= 0:
        return poly.ZERO
    common = poly.content(p)
    inner = poly.divide_exactly(p, common)
    head, factor = poly.leading(inner)
    if factor < 0:
        flipped = poly.scaled(inner, -1)
        found = poly.add({(positive_atom(flipped),): 1}, flipped, -1)
        return poly.scaled(found, common)
    if len(inner) == 1 and head and isinstance(head[0], Positive) and len(head) == 1:
        return p
    return {(positive_atom(inner),): common}
