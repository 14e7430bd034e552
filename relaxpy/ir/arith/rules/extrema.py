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
    """The polynomial of a Min or Max; of more than two, operand by operand in order."""
    kind = type(expr)
    sign = 1 if kind is tir.Max else -1
    parts = folding.operands(expr, kind)
    opposite = tir.Min if kind is tir.Max else tir.Max
    if any(type(part) is opposite for part in parts):
        inner = [[engine.poly(p) for p in folding.operands(part, opposite)] for part in parts]
        shared = [p for p in inner[0] if all(p in others for others in inner[1:])]
        if shared:
            return _around_shared(engine, sign, inner, shared)
    candidates = [engine.poly(part) for part in parts]
    chosen = _of_choices(engine, kind, candidates, expr.dtype)
    return of_polys(engine, sign, candidates) if chosen is None else chosen


def _of_choices(
    engine: Engine, kind: type[tir.BinaryOpExpr], parts: list[Poly], dtype: DataType
) -> Poly | None:
    """min(Select(c, a, b), Select(c, d, e)) = Select(c, min(a, d), min(b, e))."""
    if not any(isinstance(f, (tir.Select, tir.Call)) for m in parts[0] for f in m):
        return None
    atoms = [next(iter(p))[0] for p in parts if len(p) == 1 and len(next(iter(p))) == 1]
    choices = [folding.parts_of_choice(atom) for atom in atoms]
    if len(choices) < len(parts) or any(next(iter(p.values())) != 1 for p in parts):
        return None
    tests = {choice[0] if choice is not None else None for choice in choices}
    if len(tests) != 1 or None in tests or len({type(atom) for atom in atoms}) != 1:
        return None
    sides = [[choice[k] for choice in choices if choice is not None] for k in (1, 2)]
    yes, no = (engine.simplify(reduce(kind, side)) for side in sides)
    result = folding.chosen(atoms[0], choices[0][0], yes, no)  # type: ignore[index]
    return poly.atom(result) if folding.parts_of_choice(result) else engine.poly(result)


def _around_shared(engine: Engine, sign: int, inner: list[list[Poly]], shared: list[Poly]) -> Poly:
    """min(max(a, b), max(a, c)) = max(min(b, c), a), and the same with both exchanged."""
    rests = [[p for p in polys if p not in shared] for polys in inner]
    if all(rests):
        parts = [of_polys(engine, -sign, rest) for rest in rests]
        shared = [*shared, of_polys(engine, sign, parts)]
    return of_polys(engine, -sign, shared)


def of_polys(engine: Engine, sign: int, candidates: list[Poly]) -> Poly:
    """The greatest of some polynomials; with `sign` -1 the least."""
    kept: list[Poly] = []
    for p in candidates:
        if any(_at_least(engine, other, p, sign) for other in kept):
            continue
        kept = [other for other in kept if not _at_least(engine, p, other, sign)]
        kept.append(p)
    if len(kept) > 1:
        quotients = [_lone_quotient(p) for p in kept]
        result = _of_quotients(engine, sign, quotients)
        if result is not None:
            return result
    kept.sort(key=lambda p: [poly.monomial_key(monomial) for monomial, _ in poly.sorted_terms(p)])
    result = kept[0]
    for p in kept[1:]:
        difference = poly.scaled(poly.add(result, p, -1), sign)
        result = poly.add(p, positive_part(engine, difference), sign)
    return result


def _lone_quotient(p: Poly) -> tuple[Poly, int, int, bool] | None:
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
    engine: Engine, sign: int, parts: list[tuple[Poly, int, int, bool] | None]
) -> Poly | None:
    """The extremum of quotients by one literal: division by it keeps the order."""
    if parts[0] is None or any(part is None or part[1:] != parts[0][1:] for part in parts):
        return None
    _, by, turn, floor = parts[0]
    inner = of_polys(engine, sign * turn, [part[0] for part in parts if part is not None])
    result = engine.quotient(inner, poly.constant(by), floor=floor)
    return None if result is None else poly.scaled(result, turn)


def _at_least(engine: Engine, a: Poly, b: Poly, sign: int) -> bool:
    """Whether a (for a minimum, -a) is never below b (-b)."""
    difference = poly.scaled(poly.add(a, b, -1), sign)
    if engine.facts.negative:
        return engine.is_negative(difference) is False
    return engine.bound_by_cases(difference)[0] >= 0


def positive_part(engine: Engine, p: Poly) -> Poly:
    """max(p, 0): common factors stand outside, and max(-p, 0) = max(p, 0) - p."""
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
