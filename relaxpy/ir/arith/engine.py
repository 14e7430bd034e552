"""The interface between rules and the engine: canonical forms, intervals, residues, and proofs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from relaxpy.ir.arith.algebra.facts import Facts
from relaxpy.ir.arith.algebra.interval import Interval
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.algebra.residue import Residue
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import expr as tir

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
        """The polynomial of a scalar integer expression."""

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

    def written(self, p: Poly, dtype: DataType) -> tir.PrimExpr | None:
        """p as an expression of `dtype`; None where a literal is too large."""

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
