"""Minimum and maximum in canonical form: by the positive part of the difference of two operands."""

from __future__ import annotations

from functools import reduce

from relaxpy.ir.arith.algebra import folding, poly
from relaxpy.ir.arith.algebra.atoms import Positive, Quotient, divisor, positive_atom
from relaxpy.ir.arith.algebra.poly import ONE, Poly
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import expr as tir


def extremum(engine: Engine, expr: tir.BinaryOpExpr) -> Poly:
    """The polynomial of a chain of Min or Max, operand by operand in order."""
    kind = type(expr)
    sign = 1 if kind is tir.Max else -1
    operands = folding.operands(expr, kind)
    opposite = tir.Min if kind is tir.Max else tir.Max
    if any(type(node) is opposite for node in operands):
        nested = [[engine.poly(p) for p in folding.operands(node, opposite)] for node in operands]
        shared = [p for p in nested[0] if all(p in others for others in nested[1:])]
        if shared:
            return _with_shared(engine, sign, nested, shared)
    candidates = [engine.poly(node) for node in operands]
    chosen = _of_choices(engine, kind, candidates, expr.dtype)
    return of_polys(engine, sign, candidates) if chosen is None else chosen


def _of_choices(
    engine: Engine, kind: type[tir.BinaryOpExpr], candidates: list[Poly], dtype: DataType
) -> Poly | None:
    """min(Select(c, a, b), Select(c, d, e)) = Select(c, min(a, d), min(b, e))."""
    if not any(isinstance(f, (tir.Select, tir.Call)) for m in candidates[0] for f in m):
        return None
    atoms = [next(iter(p))[0] for p in candidates if len(p) == 1 and len(next(iter(p))) == 1]
    choices = [folding.operands_of_choice(atom) for atom in atoms]
    if len(choices) < len(candidates) or any(next(iter(p.values())) != 1 for p in candidates):
        return None
    tests = {choice[0] if choice is not None else None for choice in choices}
    if len(tests) != 1 or None in tests or len({type(atom) for atom in atoms}) != 1:
        return None
    sides = [[choice[k] for choice in choices if choice is not None] for k in (1, 2)]
    yes, no = (engine.simplify(reduce(kind, side)) for side in sides)
    result = folding.chosen(atoms[0], choices[0][0], yes, no)  # type: ignore[index]
    return poly.atom(result) if folding.operands_of_choice(result) else engine.poly(result)


def _with_shared(engine: Engine, sign: int, nested: list[list[Poly]], shared: list[Poly]) -> Poly:
    """min(max(a, b), max(a, c)) = max(min(b, c), a), and the same with both exchanged."""
    rests = [[p for p in polys if p not in shared] for polys in nested]
    if all(rests):
        extrema = [of_polys(engine, -sign, rest) for rest in rests]
        shared = [*shared, of_polys(engine, sign, extrema)]
    return of_polys(engine, -sign, shared)


def of_polys(engine: Engine, sign: int, candidates: list[Poly]) -> Poly:
    """The maximum of some polynomials; with `sign` -1 the minimum."""
    largest: list[Poly] = []
    for p in candidates:
        if any(_at_least(engine, q, p, sign) for q in largest):
            continue
        largest = [q for q in largest if not _at_least(engine, p, q, sign)]
        largest.append(p)
    if len(largest) > 1:
        quotients = [_single_quotient(p) for p in largest]
        result = _of_quotients(engine, sign, quotients)
        if result is not None:
            return result
    largest.sort(
        key=lambda p: [poly.monomial_key(monomial) for monomial, _ in poly.sorted_terms(p)]
    )
    result = largest[0]
    for p in largest[1:]:
        difference = poly.scaled(poly.add(result, p, -1), sign)
        result = poly.add(p, positive_part(engine, difference), sign)
    return result


def _single_quotient(p: Poly) -> tuple[Poly, int, int, bool] | None:
    """(n, c, s, floor) where p is s * (n / c) for a literal c > 1 and a sign s."""
    number = p.get(ONE, 0)
    match [(m, c) for m, c in p.items() if m]:
        case [((Quotient(floor=floor) as atom,), 1 | -1 as sign)] if divisor(atom) is not None:
            by = divisor(atom) or 1
            if number and not floor:
                return None
            return poly.add(dict(atom.num), poly.constant(sign * number * by)), by, sign, floor
        case _:
            return None


def _of_quotients(
    engine: Engine, sign: int, quotients: list[tuple[Poly, int, int, bool] | None]
) -> Poly | None:
    """The extremum of quotients by one literal: division by it keeps the order."""
    if quotients[0] is None or any(q is None or q[1:] != quotients[0][1:] for q in quotients):
        return None
    _, by, outer_sign, floor = quotients[0]
    num = of_polys(engine, sign * outer_sign, [q[0] for q in quotients if q is not None])
    result = engine.quotient(num, poly.constant(by), floor=floor)
    return None if result is None else poly.scaled(result, outer_sign)


def _at_least(engine: Engine, a: Poly, b: Poly, sign: int) -> bool:
    """Return whether a (for a minimum, -a) is never below b (-b)."""
    difference = poly.scaled(poly.add(a, b, -1), sign)
    if engine.facts.negative:
        return engine.is_negative(difference) is False
    return engine.bound_by_cases(difference)[0] >= 0


def positive_part(engine: Engine, p: Poly) -> Poly:
    """max(p, 0), with common factors moved outside; max(-p, 0) is max(p, 0) - p."""
    low, high = engine.bound_of_poly(p)
    if low >= 0:
        return p
    if high <= 0:
        return poly.ZERO
    common = poly.content(p)
    inner = poly.divide_exactly(p, common)
    head, factor = poly.leading(inner)
    if factor < 0:
        flipped = poly.scaled(inner, -1)
        result = poly.add({(positive_atom(flipped),): 1}, flipped, -1)
        return poly.scaled(result, common)
    if len(inner) == 1 and head and isinstance(head[0], Positive) and len(head) == 1:
        return p
    return {(positive_atom(inner),): common}
