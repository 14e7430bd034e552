"""Residue classes of expressions and polynomials."""

from __future__ import annotations

from math import gcd

from relaxpy.ir.arith.algebra import folding, residue
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.algebra.residue import Residue
from relaxpy.ir.arith.engine import Engine
from relaxpy.ir.tir import expr as tir


def of_poly(engine: Engine, p: Poly) -> Residue:
    """The class of a polynomial over integer atoms."""
    total: Residue = (0, 0)
    for monomial, coefficient in p.items():
        term: Residue = (0, coefficient)
        for factor in monomial:
            term = residue.multiply(term, of_atom(engine, factor))
        total = residue.add(total, term)
        if total == residue.EVERYTHING:
            return residue.EVERYTHING
    return total


def of_atom(engine: Engine, atom: tir.PrimExpr) -> Residue:
    """The class of an atom: by the facts, or by the values that it chooses from."""
    result = engine.facts.residues.get(atom) or engine.atom_residues.get(atom)
    if result is None:
        result = engine.remember(engine.atom_residues, atom, lambda atom: _of_atom(engine, atom))
    return result


def _of_atom(engine: Engine, atom: tir.PrimExpr) -> Residue:
    if isinstance(atom, (tir.Min, tir.Max)):
        return residue.join(of_expr(engine, atom.a), of_expr(engine, atom.b))
    operands = folding.operands_of_choice(atom)
    if operands is None or operands[0].dtype.vector:
        return residue.EVERYTHING
    test, a, b = operands
    yes, no = engine.where(test, a), engine.where(engine.negation(test), b)
    return residue.join(yes.residue(a), no.residue(b))


def of_expr(engine: Engine, expr: tir.PrimExpr) -> Residue:
    """The class of an expression; unsigned arithmetic wraps around and keeps powers of two only."""
    if not expr.dtype.is_int or expr.dtype.lanes != 1 or expr.dtype.is_bool:
        return residue.EVERYTHING
    result = of_poly(engine, engine.poly(expr))
    if expr.dtype.family != "uint" or expr in engine.facts.residues:
        return result
    modulus = 1 << expr.dtype.bits
    coeff = gcd(result[0], modulus)
    return residue.least(0 if coeff == modulus else coeff, result[1] % modulus)
