"""Facts about variables, and about terms over them, in one context."""

from __future__ import annotations

from dataclasses import field

from relaxpy.ir.arith.algebra import residue as residues
from relaxpy.ir.arith.algebra.interval import Interval, meet
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.algebra.residue import Residue
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace

TRANSITIVE, AND_OF_ORS, BRANCHES = 1, 2, 4
"""Families of rules that are off by default."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`values` of bound variables, `bounds` and `residues` of atoms, and facts about terms.

    `negative` are polynomials known to be below 0, `truths` conditions with known values.
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
        combined = bound if known is None else meet(known, bound)
        return replace(self, bounds={**self.bounds, atom: combined})

    def with_residue(self, atom: tir.PrimExpr, residue: Residue) -> Facts:
        """These facts and that `atom` has `residue`, too."""
        known = self.residues.get(atom, residues.EVERYTHING)
        return replace(self, residues={**self.residues, atom: residues.meet(known, residue)})

    def with_negative(self, poly: Poly) -> Facts:
        """These facts and that `poly` is below 0."""
        return replace(self, negative=(*self.negative, poly))

    def with_truth(self, condition: tir.PrimExpr, value: bool) -> Facts:
        """These facts and that `condition` is `value`."""
        return replace(self, truths={**self.truths, condition: value})
