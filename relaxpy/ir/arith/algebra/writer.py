"""Polynomials written as readable expressions."""

from __future__ import annotations

from relaxpy.ir.arith.algebra import poly
from relaxpy.ir.arith.algebra.atoms import Positive, Quotient
from relaxpy.ir.arith.algebra.poly import Monomial, Poly
from relaxpy.ir.arith.algebra.terms import Extremum, Product, Remainder, Term, grouped
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import expr as tir, ops


class OutOfRangeError(Exception):
    """A literal does not fit the datatype: the expression is left unchanged."""


def expression(p: Poly, dtype: DataType) -> tir.PrimExpr | None:
    """p as an expression of `dtype`; None where a literal is too large.

    As in TVM, positive terms precede negative ones, and a constant is the last one of its sign.
    """
    try:
        return _Writer(dtype).sum(p)
    except OutOfRangeError:
        return None


class _Writer:
    """Writes polynomials in one datatype."""

    def __init__(self, dtype: DataType) -> None:
        self.dtype = dtype
        self.range = ops.int_range(dtype)

    def literal(self, value: int) -> tir.PrimExpr:
        if self.dtype.family == "uint":
            value = ops.wrap_int(value, self.dtype)
        if not self.range[0] <= value <= self.range[1]:
            raise OutOfRangeError
        return tir.IntImm(self.dtype, value)

    def sum(self, p: Poly) -> tir.PrimExpr:
        """The sum of all terms, the positive ones first, so that no minus sign leads."""
        groups = grouped(p)
        if all(group.coefficient < 0 for group in groups):
            groups = [_negated(group) for group in groups]
        terms = [(self.factors(group), group.coefficient) for group in groups]
        terms.sort(key=lambda term: (term[1] < 0, poly.monomial_key(term[0])))
        total: tir.PrimExpr | None = None
        for factors, coefficient in terms:
            if total is None:
                total = self.term(factors, coefficient)
            elif coefficient > 0:
                total = tir.Add(total, self.term(factors, coefficient))
            else:
                total = tir.Sub(total, self.term(factors, -coefficient))
        return self.literal(0) if total is None else total

    def term(self, factors: Monomial, coefficient: int) -> tir.PrimExpr:
        """coefficient * factors, the literal last."""
        if not factors:
            return self.literal(coefficient)
        product = self.typed(factors[0])
        for factor in factors[1:]:
            product = tir.Mul(product, self.typed(factor))
        if coefficient == 1:
            return product
        return tir.Mul(product, self.literal(coefficient))

    def typed(self, factor: tir.PrimExpr) -> tir.PrimExpr:
        """A factor in the datatype of the sum."""
        return factor if factor.dtype == self.dtype else ops.cast_to(factor, self.dtype)

    def factors(self, term: Term) -> Monomial:
        """The factors of a term, as expressions."""
        match term:
            case Product(monomial=monomial):
                return tuple(self.atom(f) for f in monomial)
            case Remainder(cofactor=cofactor, num=num, den=den, floor=floor):
                factors = (self.atom(f) for f in cofactor)
                digit = self.digit(num, den, floor=floor)
                if digit is not None:
                    return (*factors, digit)
                kind = tir.FloorMod if floor else tir.Mod
                return (*factors, kind(self.sum(num), self.sum(den)))
            case Extremum(kind=extreme, a=a, b=b):
                return (extreme(self.sum(a), self.sum(b)),)

    def digit(self, num: Poly, den: Poly, *, floor: bool) -> tir.PrimExpr | None:
        """x // c % d, of positive literals c and d, as x % (c * d) // c; None for anything else."""
        match list(num.items()):
            case [((Quotient(num=inner, den=step, floor=inner_floor),), 1)] if inner_floor == floor:
                low, size = poly.constant_of(dict(step)), poly.constant_of(den)
                if low is None or size is None or low <= 0 or size <= 0:
                    return None
                if low * size > self.range[1]:
                    return None
                quotient, remainder = (tir.FloorDiv, tir.FloorMod) if floor else (tir.Div, tir.Mod)
                digits = remainder(self.sum(dict(inner)), self.literal(low * size))
                return quotient(digits, self.literal(low))
        return None

    def atom(self, factor: tir.PrimExpr) -> tir.PrimExpr:
        """An atom as an expression of TIR."""
        match factor:
            case Quotient(num=num, den=den, floor=floor):
                kind = tir.FloorDiv if floor else tir.Div
                return kind(self.sum(dict(num)), self.sum(dict(den)))
            case Positive(inner=inner):
                return tir.Max(self.sum(dict(inner)), self.literal(0))
            case _:
                return factor


def _negated(term: Term) -> Term:
    """-max(a, b) as min(-a, -b), so that a sum of such terms begins without a sign."""
    if not isinstance(term, Extremum) or term.coefficient != -1:
        return term
    kind = tir.Min if term.kind is tir.Max else tir.Max
    a, b, unit = (poly.scaled(p, -1) for p in (term.a, term.b, term.unit))
    return Extremum(1, kind, a, b, unit)
