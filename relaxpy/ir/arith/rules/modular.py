"""Residue classes: what values are known to be modulo what."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from relaxpy.ir.arith.algebra import folding
from relaxpy.ir.arith.algebra.facts import Residue
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.rules import logic
from relaxpy.ir.tir import expr as tir

if TYPE_CHECKING:
    from relaxpy.ir.arith.canonical import Canonical

UNKNOWN: Residue = (1, 0)


def add(a: Residue, b: Residue) -> Residue:
    """The class of all sums."""
    return _least(gcd(a[0], b[0]), a[1] + b[1])


def multiply(a: Residue, b: Residue) -> Residue:
    """The class of all products."""
    (m, r), (n, s) = a, b
    return _least(gcd(m * n, m * s, n * r), r * s)


def join(a: Residue, b: Residue) -> Residue:
    """The class around both."""
    return _least(gcd(a[0], b[0], a[1] - b[1]), a[1])


def _least(coeff: int, base: int) -> Residue:
    return (coeff, base % coeff) if coeff else (0, base)


def of_poly(engine: Canonical, p: Poly) -> Residue:
    """The class of a polynomial: its atoms are integers."""
    total: Residue = (0, 0)
    for monomial, coefficient in p.items():
        term: Residue = (0, coefficient)
        for factor in monomial:
            term = multiply(term, of_atom(engine, factor))
        total = add(total, term)
        if total == UNKNOWN:
            return UNKNOWN
    return total


def of_atom(engine: Canonical, atom: tir.PrimExpr) -> Residue:
    """The class of an atom: as known, or that of the values it chooses among."""
    found = engine.facts.residues.get(atom) or engine.atom_residues.get(atom)
    if found is None:
        found = engine.remember(engine.atom_residues, atom, lambda atom: _of_atom(engine, atom))
    return found


def _of_atom(engine: Canonical, atom: tir.PrimExpr) -> Residue:
    if isinstance(atom, (tir.Min, tir.Max)):
        return join(of_expr(engine, atom.a), of_expr(engine, atom.b))
    parts = folding.parts_of_choice(atom)
    if parts is None or parts[0].dtype.vector:
        return UNKNOWN
    test, a, b = parts
    places = engine.where(test, a), engine.where(logic.negation(engine, test), b)
    return join(of_expr(places[0], a), of_expr(places[1], b))


def of_expr(engine: Canonical, expr: tir.PrimExpr) -> Residue:
    """The class of an expression; unsigned arithmetic goes round and keeps powers of two only."""
    if not expr.dtype.is_int or expr.dtype.lanes != 1 or expr.dtype.is_bool:
        return UNKNOWN
    found = of_poly(engine, engine.poly(expr))
    if expr.dtype.family != "uint" or expr in engine.facts.residues:
        return found
    whole = 1 << expr.dtype.bits
    coeff = gcd(found[0], whole)
    return _least(0 if coeff == whole else coeff, found[1] % whole)
