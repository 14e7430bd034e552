"""Facts that follow from conditions that are assumed to hold."""

from __future__ import annotations

from math import gcd

from relaxpy.ir.arith.algebra import folding, poly, terms
from relaxpy.ir.arith.algebra.facts import Facts
from relaxpy.ir.arith.algebra.poly import ONE, Poly
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.tir import expr as tir


def assume(engine: Engine, facts: Facts, condition: tir.PrimExpr) -> Facts:
    """Add to `facts` those that follow where `condition` holds."""
    for conjunct in folding.operands(condition, tir.And):
        for simple in folding.operands(engine.simplify(conjunct), tir.And):
            facts = _assume_conjunct(engine, facts, simple)
    return facts


def _assume_conjunct(engine: Engine, facts: Facts, simple: tir.PrimExpr) -> Facts:
    """Add to `facts` those that follow from a simplified condition that is not a conjunction."""
    if isinstance(simple, tir.IntImm):
        return facts
    facts = facts.with_truth(simple, True).with_truth(engine.negation(simple), False)
    if isinstance(simple, tir.EQ) and simple.a.dtype.family == "int":
        p = poly.add(engine.poly(simple.a), engine.poly(simple.b), -1)
        facts = _assume_residue(_assume_congruence(facts, p), p)
        facts = _assume_negative(facts, poly.add(p, poly.constant(-1)))
        return _assume_negative(facts, poly.add(poly.scaled(p, -1), poly.constant(-1)))
    if isinstance(simple, tir.CmpExpr):
        below = engine.below_zero(simple)
        return facts if below is None else _assume_negative(facts, below)
    return facts


def _assume_negative(facts: Facts, p: Poly) -> Facts:
    """Add p < 0 to `facts`: as a bound, where p has one atom."""
    number = p.get(ONE, 0)
    match [(m, c) for m, c in p.items() if m]:
        case [((atom,), coefficient)]:
            if coefficient > 0:
                return facts.with_bound(atom, (-float("inf"), (-number - 1) // coefficient))
            return facts.with_bound(atom, (number // -coefficient + 1, float("inf")))
        case _:
            return facts.with_negative(p)


def _assume_congruence(facts: Facts, p: Poly) -> Facts:
    """Add p == 0 to `facts`, where p is an atom less multiples of a number: its residue.

    So are the truncated remainder of x by 4, which is x - 4 * truncdiv(x, 4), and x - 4 * y.
    """
    number = p.get(ONE, 0)
    terms_of = {m: c for m, c in p.items() if m}
    units = [m for m, c in terms_of.items() if len(m) == 1 and abs(c) == 1]
    if len(units) != 1 or len(terms_of) == 1:
        return facts
    [unit] = units
    modulus = gcd(*(c for m, c in terms_of.items() if m != unit))
    if modulus == 1:
        return facts
    return facts.with_residue(unit[0], (modulus, -number * terms_of[unit] % modulus))


def _assume_residue(facts: Facts, p: Poly) -> Facts:
    """Add p == 0 to `facts`, where p is a remainder less a constant: a residue of its dividend."""
    groups = [g for g in terms.remainders(p) if isinstance(g, terms.Remainder)]
    number = -p.get(ONE, 0)
    if len(groups) != 1 or groups[0].modulus is None:
        return facts
    group = groups[0]
    value = poly.constant_of(poly.add(p, group.unit, -group.coefficient))
    if value is None or value % group.coefficient:
        return facts
    number = -value // group.coefficient
    match [(m, c) for m, c in group.num.items() if m]:
        case [((atom,), 1)]:
            modulus = group.modulus or 1
            return facts.with_residue(atom, (modulus, (number - group.num.get(ONE, 0)) % modulus))
        case _:
            return facts
