"""The canonical form of integer expressions, which decides equality by being the same."""

from __future__ import annotations

from relaxpy.ir.arith import poly as po
from relaxpy.ir.dtype import DataType
from relaxpy.ir.tir import expr as tir, ops


class Canonical:
    """Canonical polynomials of expressions."""

    def __init__(self) -> None:
        self._polys: dict[tir.PrimExpr, po.Poly] = {}

    def poly(self, expr: tir.PrimExpr) -> po.Poly:
        """The polynomial of an integer expression."""
        found = self._polys.get(expr)
        if found is None:
            found = self._polys[expr] = self._poly(expr)
        return found

    def _poly(self, expr: tir.PrimExpr) -> po.Poly:
        match expr:
            case tir.IntImm(value=value):
                return po.constant(value)
            case tir.Add(a=a, b=b):
                return po.add(self.poly(a), self.poly(b))
            case tir.Sub(a=a, b=b):
                return po.add(self.poly(a), self.poly(b), -1)
            case tir.Mul(a=a, b=b):
                return po.multiply(self.poly(a), self.poly(b))
            case _:
                return po.atom(expr)

    def prove_equal(self, a: tir.PrimExpr, b: tir.PrimExpr) -> bool | None:
        """Whether the two are equal, unequal, or undecided."""
        if not (a.dtype.is_int and b.dtype.is_int):
            if isinstance(a, tir.FloatImm) and isinstance(b, tir.FloatImm) and a.value != b.value:
                return False
            return None
        p, q = self.poly(a), self.poly(b)
        if p == q:
            return True
        difference = po.add(p, q, -1)
        if po.constant_of(difference) is not None:
            return False
        return None

    def simplify(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """The expression of the canonical form."""
        if not expr.dtype.is_int:
            return expr
        return self.expression(self.poly(expr), expr.dtype)

    def expression(self, poly: po.Poly, dtype: DataType) -> tir.PrimExpr:
        """A polynomial as an expression."""
        total: tir.PrimExpr | None = None
        for monomial, coefficient in po.sorted_terms(poly):
            term: tir.PrimExpr | None = None
            for factor in monomial:
                piece = ops.cast_to(factor, dtype)
                term = piece if term is None else tir.Mul(term, piece)
            if term is None:
                term = tir.IntImm(dtype, abs(coefficient))
            elif abs(coefficient) != 1:
                term = tir.Mul(term, tir.IntImm(dtype, abs(coefficient)))
            if total is None:
                if coefficient < 0:
                    term = ops.mul(term, ops.const(-1, dtype))
                total = term
            else:
                total = tir.Add(total, term) if coefficient > 0 else tir.Sub(total, term)
        return ops.const(0, dtype) if total is None else total


GENERAL = Canonical()
