"""Facts in one context, and the interface between the rules and the engine that uses them.

The engine has canonical forms, intervals, residues, and proofs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Protocol, TypeVar

from relaxpy.ir.arith.algebra import residue as residues
from relaxpy.ir.arith.algebra.data import holds_data
from relaxpy.ir.arith.algebra.interval import Interval, meet
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.algebra.residue import Residue
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace

TRANSITIVE, AND_OF_ORS, BRANCHES = 1, 2, 4
"""Families of rules that are off by default."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`values` of bound variables, `bounds` and `residues` of atoms, and facts about terms.

    `negative` are polynomials known to be below 0, `truths` conditions with known values. The
    variables in `data` may have any value, so that sums of them wrap around.
    """

    values: dict[tir.PrimExpr, tir.PrimExpr] = field(default_factory=dict)
    bounds: dict[tir.PrimExpr, Interval] = field(default_factory=dict)
    residues: dict[tir.PrimExpr, Residue] = field(default_factory=dict)
    negative: tuple[Poly, ...] = ()
    truths: dict[tir.PrimExpr, bool] = field(default_factory=dict)
    extensions: int = 0
    data: frozenset[tir.Var] = frozenset()

    def with_value(self, var: tir.Var, value: tir.PrimExpr) -> Facts:
        """These facts and that `var` is `value`."""
        known = self.with_data(var) if holds_data(value, self.data) else self
        return replace(known, values={**self.values, var: value})

    def with_data(self, *variables: tir.Var) -> Facts:
        """These facts and that `variables` may have any value of their datatypes."""
        return replace(self, data=self.data.union(variables))

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


K = TypeVar("K", bound=tir.PrimExpr)
T = TypeVar("T")


class Engine(Protocol):
    """Canonical forms under `facts`, and the intervals, residues and proofs that follow.

    A rule takes the engine as its first argument and calls no other rule by name, so that rules may
    need each other while no file of theirs imports another.
    """

    facts: Facts
    ranges: dict[tir.PrimExpr, tuple[Interval, bool]]
    atom_bounds: dict[tir.PrimExpr, Interval]
    atom_residues: dict[tir.PrimExpr, Residue]

    def remember(self, table: dict[K, T], key: K, work: Callable[[K], T]) -> T:
        """Call `work` with `key`, which is not in `table`, and store the result there."""

    def where(self, condition: tir.PrimExpr, *exprs: tir.PrimExpr) -> Engine:
        """The engine for `exprs` where `condition`, which is simplified, holds as well."""

    @property
    def without_inequalities(self) -> Engine:
        """The engine under the same facts but for the inequalities between several terms."""

    def inequalities_with(self, p: Poly) -> list[Poly]:
        """The polynomials assumed to be negative that share a term with p."""

    # --- expressions

    def poly(self, expr: tir.PrimExpr) -> Poly:
        """The polynomial of a scalar integer expression, of data modulo 2**bits."""

    def exact(self, expr: tir.PrimExpr) -> Poly:
        """The polynomial that has the value of a scalar signed expression, also of data."""

    def simplify(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """`expr` in canonical, readable form."""

    def over_simple_operands(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """`expr` with its operands simplified."""

    def opaque(self, expr: tir.PrimExpr) -> Poly:
        """The atom of an expression of which only the operands are simplified."""

    def bound(self, expr: tir.PrimExpr) -> Interval:
        """An interval that contains all values of an expression."""

    def residue(self, expr: tir.PrimExpr) -> Residue:
        """The residue class of an expression."""

    def let(self, expr: tir.Let) -> tir.PrimExpr:
        """A Let of floats or bools, simplified."""

    # --- conditions

    def negation(self, condition: tir.PrimExpr) -> tir.PrimExpr:
        """not `condition`, which is simplified, pushed inside."""

    def below_zero(self, ordering: tir.CmpExpr) -> Poly | None:
        """The polynomial that is below 0 exactly where an ordering of signed integers holds."""

    def junction(self, expr: tir.Junction) -> tir.PrimExpr:
        """A conjunction or a disjunction, simplified."""

    # --- polynomials

    def written(self, p: Poly, dtype: DataType, *, exact: bool = False) -> tir.PrimExpr | None:
        """p as an expression of `dtype`, equal modulo 2**bits, or (`exact`) equal.

        None where a literal is too large, or data could wrap around where that is not meant.
        """

    def holds_data(self, expr: tir.PrimExpr) -> bool:
        """True if `expr` is computed from data; what a cast provably keeps is not."""

    def has_data(self, p: Poly) -> bool:
        """True if p holds data, so that an expression of it wraps around where it overflows."""

    def is_exact(self, p: Poly, dtype: DataType) -> bool:
        """True if an expression of p in the signed `dtype` has the value of p, without wrapping."""

    def bound_of_poly(self, p: Poly) -> Interval:
        """An interval that contains all values of p, term by term."""

    def bound_by_cases(self, p: Poly) -> Interval:
        """An interval that contains p, by the two cases of its only positive part."""

    def fits(self, p: Poly, dtype: DataType) -> bool:
        """True if p and the operands of its atoms lie in the range of `dtype`."""

    def residue_of_poly(self, p: Poly) -> Residue:
        """The residue class of p."""

    def is_negative(self, p: Poly) -> bool | None:
        """True if p is always below 0, False if it never is, None if unknown."""

    def is_nonzero(self, p: Poly) -> bool:
        """True if p is provably different from 0."""

    def quotient(self, p: Poly, q: Poly, *, floor: bool) -> Poly | None:
        """p / q, rounded down or toward zero; None where q is 0."""

    def floor_by(self, p: Poly, by: int) -> Poly:
        """p // by for a literal by > 1."""

    def extremum_of(self, sign: int, candidates: list[Poly]) -> Poly:
        """The maximum of some polynomials; with `sign` -1 the minimum."""
