"""What is known about variables, and about terms over them, in one context."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import gcd

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.algebra.interval import Interval, meet
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.tir import expr as tir

TRANSITIVE, AND_OF_ORS, BRANCHES = 1, 2, 4
"""Families of rules that are off unless somebody asks for them."""

Residue = tuple[int, int]
"""(coeff, base): the value is base modulo coeff; coeff 0 means that it is base."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`values` of bound variables, `bounds` and `residues` of atoms, and what is known of terms.

    `negative` are polynomials known to be below 0, `truths` conditions known to be true or false.
    """

    values: dict[tir.PrimExpr, tir.PrimExpr] = field(default_factory=dict)
    bounds: dict[tir.PrimExpr, Interval] = field(default_factory=dict)
    residues: dict[tir.PrimExpr, Residue] = field(default_factory=dict)
    negative: tuple[Poly, ...] = ()
    truths: dict[tir.PrimExpr, bool] = field(default_factory=dict)
    extensions: int = 0

    def with_value(self, var: tir.PrimExpr, value: tir.PrimExpr) -> Facts:
        """These facts and that `var` is `value`."""
        return replace(self, values={**self.values, var: value})

    def with_bound(self, atom: tir.PrimExpr, bound: Interval) -> Facts:
        """These facts and that `atom` lies in `bound`, too."""
        known = self.bounds.get(atom)
        found = bound if known is None else meet(known, bound)
        return replace(self, bounds={**self.bounds, atom: found})

    def with_residue(self, atom: tir.PrimExpr, residue: Residue) -> Facts:
        """These facts and that `atom` has `residue`, too."""
        known = self.residues.get(atom, (1, 0))
        return replace(self, residues={**self.residues, atom: intersect(known, residue)})

    def with_negative(self, poly: Poly) -> Facts:
        """These facts and that `poly` is below 0."""
        return replace(self, negative=(*self.negative, poly))

    def with_truth(self, condition: tir.PrimExpr, value: bool) -> Facts:
        """These facts and that `condition` is `value`."""
        return replace(self, truths={**self.truths, condition: value})


def intersect(a: Residue, b: Residue) -> Residue:
    """The values of both residue classes; `a` where there are none (Chinese remainder theorem)."""
    (m, r), (n, s) = a, b
    if m == 0 or n == 0:
        return a if m == 0 else b
    common = gcd(m, n)
    if (s - r) % common:
        return a
    total = m // common * n
    step = (s - r) // common * pow(m // common, -1, n // common) if n != common else 0
    return total, (r + m * step) % total


def checked_residue(coeff: int, base: int) -> Residue:
    """The residue class in its least form. Errors: MisuseError for a negative `coeff`."""
    if coeff < 0:
        raise MisuseError(f"a modulus is at least 0, found {coeff}")
    return (coeff, base % coeff) if coeff else (0, base)
