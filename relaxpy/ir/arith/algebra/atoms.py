"""Atoms of canonical polynomials that are not leaves: quotients, and positive parts.

They are interned as all PrimExprs are, so that equal values share one atom, and stay inside this
package: `writer` turns them back into FloorDiv, FloorMod, Div, Mod, Min and Max.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from relaxpy.ir.arith.algebra import poly
from relaxpy.ir.arith.algebra.poly import ONE, Monomial, Poly, sorted_terms
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir import expr as tir

Terms: TypeAlias = tuple[tuple[Monomial, int], ...]


class Quotient(tir.PrimExpr):
    """num / den, rounded down or (`floor` False) toward zero."""

    __slots__ = ("den", "floor", "num")
    _fields = ("num", "den", "floor")
    num: Terms
    den: Terms
    floor: bool


class Positive(tir.PrimExpr):
    """max(inner, 0)."""

    __slots__ = ("inner",)
    _fields = ("inner",)
    inner: Terms


def quotient_atom(num: Poly, den: Poly, *, floor: bool) -> Quotient:
    """The atom num / den."""
    return Quotient._make(INT64, tuple(sorted_terms(num)), tuple(sorted_terms(den)), floor)


def positive_atom(inner: Poly) -> Positive:
    """The atom max(inner, 0)."""
    return Positive._make(INT64, tuple(sorted_terms(inner)))


@lru_cache(maxsize=1 << 10)
def _weight(atom: tir.PrimExpr) -> int:
    match atom:
        case Quotient(num=num, den=den):
            return len(num) + len(den) + weight(dict(num)) + weight(dict(den))
        case Positive(inner=inner):
            return len(inner) + weight(dict(inner))
        case _:
            return 0


def weight(p: Poly) -> int:
    """The number of terms inside the atoms of `p`, at every depth."""
    return sum(_weight(factor) for monomial in p for factor in monomial)


def divisor(quotient: Quotient) -> int | None:
    """The divisor where it is a literal."""
    den = quotient.den
    return den[0][1] if len(den) == 1 and den[0][0] == ONE else None


def without_squares(p: Poly) -> Poly:
    """p with d * max(d, 0) for max(d, 0) * max(d, 0)."""
    out: dict[Monomial, int] = {}
    for monomial, factor in p.items():
        twice = next(
            (
                atom
                for position, atom in enumerate(monomial[1:])
                if isinstance(atom, Positive) and monomial[position] is atom
            ),
            None,
        )
        if twice is None:
            poly.accumulate(out, {monomial: factor})
        else:
            rest = poly.quotient(monomial, (twice,))
            assert rest is not None
            lower = poly.multiply({rest: factor}, dict(twice.inner))
            poly.accumulate(out, without_squares(lower))
    return out
