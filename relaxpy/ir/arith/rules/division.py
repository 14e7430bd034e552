"""Quotients and extrema of polynomials in canonical form.

An extremum is written by the positive part of the difference of two operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import gcd

from relaxpy.ir.arith.algebra import folding, poly, terms
from relaxpy.ir.arith.algebra.poly import ONE, Poly
from relaxpy.ir.arith.algebra.terms import Positive, Quotient, divisor, positive_atom, quotient_atom
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.tir import expr as tir, ops


def quotient(engine: Engine, p: Poly, q: Poly, *, floor: bool) -> Poly | None:
    """p / q as a polynomial, or None where q is 0: that has no value (PX-3)."""
    by = poly.constant_of(q)
    if by == 0:
        return None
    if by is None:
        return _symbolic(engine, p, q, floor=floor)
    if by < 0:
        p, by = poly.scaled(p, -1), -by
    if by == 1:
        return p
    return floor_by(engine, p, by) if floor else _truncate_by(engine, p, by)


def floor_by(engine: Engine, p: Poly, by: int) -> Poly:
    """p // by for a literal by > 1.

    Rule:
        (by*q + r) // by = q + r // by; common factors of r and `by` cancel, the constant rounded
        down; -r // by = -((r + by - 1) // by) gives r a positive first term, a remainder being one.
    """
    ratio, remainder = _split(p, by)
    number = remainder.get(ONE, 0)
    if len(remainder) == (number != 0):
        return ratio
    common = gcd(poly.content(remainder, with_constant=False), by)
    if common > 1:
        remainder = {m: c // common for m, c in remainder.items() if c // common}
        by //= common
        if by == 1:
            return poly.add(ratio, remainder)
    head, _ = poly.leading(remainder)
    if any(coefficient < 0 and head in unit for coefficient, unit, _ in _units(remainder)):
        remainder = poly.add(poly.scaled(remainder, -1), poly.constant(by - 1))
        return poly.add(ratio, _floor_irreducible(engine, remainder, by), -1)
    return poly.add(ratio, _floor_irreducible(engine, remainder, by))


def _split(p: Poly, by: int) -> tuple[Poly, Poly]:
    """(q, r) with p = by*q + r and r small; a remainder stays whole unless `by` fits its range."""
    ratio: dict[poly.Monomial, int] = {}
    remainder: dict[poly.Monomial, int] = {}
    for coefficient, unit, modulus in _units(p):
        if modulus is not None and coefficient % by and coefficient * modulus % by == 0:
            for monomial, factor in unit.items():
                product = {monomial: coefficient * factor}
                is_exact = coefficient * factor % by == 0
                if is_exact:
                    poly.accumulate(ratio, _divided(product, by))
                else:
                    poly.accumulate(remainder, product)
            continue
        times = coefficient // by if unit.keys() == {ONE} else ops.trunc_div(coefficient, by)
        poly.accumulate(ratio, unit, times)
        poly.accumulate(remainder, unit, coefficient - times * by)
    if not ratio:
        return poly.ZERO, p
    nested_ratio, nested_remainder = _split(remainder, by)
    return poly.add(ratio, nested_ratio), nested_remainder


def _divided(terms: Poly, by: int) -> Poly:
    return {m: c // by for m, c in terms.items()}


def _units(p: Poly) -> Iterator[tuple[int, Poly, int | None]]:
    """The terms of p: a coefficient, its factor, and of a remainder the modulus."""
    if not any(isinstance(factor, Quotient) for monomial in p for factor in monomial):
        for monomial, coefficient in p.items():
            yield coefficient, {monomial: 1}, None
        return
    for group in terms.remainders(p):
        yield group.coefficient, group.unit, group.modulus


def _floor_irreducible(engine: Engine, num: Poly, by: int) -> Poly:
    """rest // by, where no term can be taken out."""
    nested = _nested(num)
    if nested is not None:
        step = divisor(nested)
        assert step is not None
        addend = poly.add(num, poly.atom(nested), -1)
        return floor_by(engine, poly.add(dict(nested.num), addend, step), by * step)
    low, high = engine.bound_of_poly(num)
    if isinstance(low, int) and isinstance(high, int) and low // by == high // by:
        return poly.constant(low // by)
    reduced = _without_small_terms(engine, num, by)
    if reduced is None:
        reduced = _inside_extremum(engine, num, by)
    if reduced is not None:
        return reduced
    return poly.atom(quotient_atom(num, poly.constant(by), floor=True))


def _nested(num: Poly) -> Quotient | None:
    """A term y // a by itself: (y//a + m) // b = (y + a*m) // (a*b)."""
    candidates = [
        monomial[0]
        for monomial, coefficient in num.items()
        if coefficient == 1 and len(monomial) == 1
        if isinstance(monomial[0], Quotient) and monomial[0].floor and divisor(monomial[0])
    ]
    return min(candidates, key=poly.atom_key) if candidates else None


def _without_small_terms(engine: Engine, num: Poly, by: int) -> Poly | None:
    """(g*a + b) // (g*c) = (a + b//g) // c where b // g is a constant."""
    units = list(_units(num))
    for step in sorted({gcd(c, by) for c, unit, _ in units if ONE not in unit}, reverse=True):
        if step == 1:
            continue
        large: dict[poly.Monomial, int] = {}
        small: dict[poly.Monomial, int] = {}
        for coefficient, unit, _ in units:
            poly.accumulate(large if coefficient % step == 0 else small, unit, coefficient)
        low, high = engine.bound_of_poly(small)
        if isinstance(low, int) and isinstance(high, int) and low // step == high // step:
            shifted = poly.add(_divided(large, step), poly.constant(low // step))
            return floor_by(engine, shifted, by // step) if by > step else shifted
    return None


def _inside_extremum(engine: Engine, num: Poly, by: int) -> Poly | None:
    """max(a, b) // c = max(a // c, b // c), where c divides one of the two; a minimum likewise."""
    positive = [m for m in num if any(isinstance(factor, Positive) for factor in m)]
    if len(positive) != 1 or len(positive[0]) != 1:
        return None
    [monomial] = positive
    [atom] = monomial
    assert isinstance(atom, Positive)
    without = {m: c for m, c in num.items() if m != monomial}
    raised = poly.add(without, dict(atom.inner), num[monomial])
    if all(poly.content(side, with_constant=False) % by for side in (without, raised)):
        return None
    sides = [floor_by(engine, side, by) for side in (without, raised)]
    return engine.extremum_of(1 if num[monomial] > 0 else -1, sides)


def _truncate_by(engine: Engine, p: Poly, by: int) -> Poly:
    """p / by toward zero: by the sign of p, else by common factors and nesting only."""
    low, high = engine.bound_of_poly(p)
    if low >= 0:
        return floor_by(engine, p, by)
    if high <= 0:
        return poly.scaled(floor_by(engine, poly.scaled(p, -1), by), -1)
    if isinstance(low, int) and isinstance(high, int) and -by < low and high < by:
        return poly.ZERO
    common = gcd(poly.content(p), by)
    p, by = poly.divide_exactly(p, common), by // common
    if by == 1:
        return p
    result = _truncated_remainder(engine, p, by)
    if result is not None:
        return result
    if poly.leading(p)[1] < 0:
        return poly.scaled(_truncate_by(engine, poly.scaled(p, -1), by), -1)
    inner = _truncated(p)
    if inner is not None:
        return _truncate_by(engine, dict(inner.num), by * (divisor(inner) or 1))
    return poly.atom(quotient_atom(p, poly.constant(by), floor=False))


def _truncated(p: Poly) -> Quotient | None:
    """The quotient y / a toward zero, for a literal a, that is all of p."""
    match list(p.items()):
        case [((Quotient(floor=False) as inner,), 1)] if divisor(inner) is not None:
            return inner
        case _:
            return None


def _truncated_remainder(engine: Engine, p: Poly, by: int) -> Poly | None:
    """p / by toward zero, where p is one remainder, or its negative.

    Rule:
        (n - m*q) / by = n / by - m/by * q toward zero, where q = n / m: all have the sign of n.
        (y/a - m*q) / by = (y - a*m*q) / (a*by), as q = y / (a*m) has that of y.
    """
    match terms.remainders(p):
        case [terms.Remainder(coefficient=1 | -1 as sign, cofactor=(), floor=False) as rest]:
            num, whole = (
                poly.scaled(rest.num, sign),
                poly.scaled(poly.add(rest.num, p, -sign), sign),
            )
            if poly.content(rest.den) % by == 0:
                whole = poly.divide_exactly(whole, by)
                return poly.add(_truncate_by(engine, num, by), whole, -1)
            inner = _truncated(rest.num)
            if inner is not None and poly.constant_of(rest.den) is not None:
                step = divisor(inner) or 1
                num = poly.add(poly.scaled(dict(inner.num), sign), whole, -step)
                return _truncate_by(engine, num, by * step)
            return None
        case _:
            return None


def _symbolic(engine: Engine, p: Poly, q: Poly, *, floor: bool) -> Poly:
    """p / q for a q with variables, which is not 0 where the quotient has a value."""
    if not floor and engine.bound_of_poly(q)[0] >= 0 and engine.bound_of_poly(p)[0] >= 0:
        floor = True
    ratio, remainder = _long_division(p, q)
    if not remainder:
        return ratio
    if not floor:
        ratio, remainder = poly.ZERO, p
    shared = poly.common_factor([*remainder, *q])
    common = gcd(poly.content(remainder), poly.content(q))
    if poly.leading(q)[1] < 0:
        common = -common
    if _is_small(engine, remainder, q):
        return ratio
    if shared or common != 1:
        remainder, q = _cancelled(remainder, shared, common), _cancelled(q, shared, common)
        result = quotient(engine, remainder, q, floor=floor)
        assert result is not None
        return poly.add(ratio, result)
    return poly.add(ratio, poly.atom(quotient_atom(remainder, q, floor=floor)))


def _is_small(engine: Engine, p: Poly, q: Poly) -> bool:
    """True if 0 <= p < q, so that p / q is 0."""
    if engine.bound_of_poly(p)[0] < 0:
        return False
    return engine.is_negative(poly.add(p, q, -1)) is True


def _cancelled(p: Poly, shared: poly.Monomial, common: int) -> Poly:
    out = {}
    for monomial, coefficient in p.items():
        reduced = poly.quotient(monomial, shared)
        assert reduced is not None
        out[reduced] = coefficient // common
    return out


def _long_division(p: Poly, q: Poly) -> tuple[Poly, Poly]:
    """(h, r) with p = q*h + r, dividing by the leading term of q while it goes into a term."""
    head, factor = poly.leading(q)
    ratio: dict[poly.Monomial, int] = {}
    remainder, open_terms = dict(p), dict(p)
    while open_terms:
        monomial, coefficient = poly.leading(open_terms)
        step = poly.quotient(monomial, head)
        times = ops.trunc_div(coefficient, factor) if step is not None else 0
        if step is None or times == 0:
            del open_terms[monomial]
            continue
        poly.accumulate(ratio, {step: times})
        subtracted = poly.multiply({step: times}, q)
        poly.accumulate(remainder, subtracted, -1)
        poly.accumulate(open_terms, subtracted, -1)
        open_terms.pop(monomial, None)
    return ratio, remainder


def extremum(engine: Engine, expr: tir.BinaryOpExpr) -> Poly:
    """The polynomial of a chain of Min or Max, operand by operand in order."""
    kind = type(expr)
    sign = 1 if kind is tir.Max else -1
    operands = folding.operands(expr, kind)
    opposite = tir.Min if kind is tir.Max else tir.Max
    if any(type(node) is opposite for node in operands):
        nested = [[engine.exact(p) for p in folding.operands(node, opposite)] for node in operands]
        shared = [p for p in nested[0] if all(p in others for others in nested[1:])]
        if shared:
            return _with_shared(engine, sign, nested, shared)
    candidates = [engine.exact(node) for node in operands]
    chosen = _of_choices(engine, kind, candidates)
    return extremum_of_polys(engine, sign, candidates) if chosen is None else chosen


def _of_choices(
    engine: Engine, kind: type[tir.BinaryOpExpr], candidates: list[Poly]
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
        extrema = [extremum_of_polys(engine, -sign, rest) for rest in rests]
        shared = [*shared, extremum_of_polys(engine, sign, extrema)]
    return extremum_of_polys(engine, -sign, shared)


def extremum_of_polys(engine: Engine, sign: int, candidates: list[Poly]) -> Poly:
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
    num = extremum_of_polys(engine, sign * outer_sign, [q[0] for q in quotients if q is not None])
    result = engine.quotient(num, poly.constant(by), floor=floor)
    return None if result is None else poly.scaled(result, outer_sign)


def _at_least(engine: Engine, a: Poly, b: Poly, sign: int) -> bool:
    """True if a (for a minimum, -a) is never below b (-b)."""
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
