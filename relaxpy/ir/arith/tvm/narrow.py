"""Conditions strengthened so that they do not depend on some of their variables."""

from __future__ import annotations

from collections.abc import Mapping

from relaxpy.errors import check_type, unexpected
from relaxpy.ir.arith.canonical import GENERAL, entry_point
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import BOOL, DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import mentions


@entry_point
def narrow_predicate_expression(expr: ExprLike, ranges: Mapping[Var, Range]) -> PrimExpr:
    """A condition that implies `expr` for every value of the variables in `ranges`, without them.

    A comparison takes the values that are hardest to satisfy. Where those are not known, as of
    remainders, of loads, and of quotients by such a variable, it is False.

    Errors:
        MisuseError (also TypeError): `expr` is not Bool, or a variable has no Range.
    """
    check_type(ranges, Mapping, "expected a table of ranges by tir.Var")
    ends = {}
    for var, domain in ranges.items():
        if not isinstance(var, Var) or not isinstance(domain, Range):
            raise unexpected(domain, "expected a Range for each tir.Var in ranges")
        ends[var] = (domain.min, simplify(ops.sub(domain.stop, 1)))
    return _Narrow(ends).condition(ops.truth(expr), strict=True)


class _UnknownError(Exception):
    """Neither the least nor the greatest value is known."""


class _Narrow:
    def __init__(self, ends: Mapping[Var, tuple[PrimExpr, PrimExpr]]) -> None:
        self.ends = ends

    def condition(self, expr: PrimExpr, *, strict: bool) -> PrimExpr:
        """A condition that implies `expr` (or, if not `strict`, follows from it) for all values."""
        match expr:
            case tir.Junction(a=a, b=b):
                operands = self.condition(a, strict=strict), self.condition(b, strict=strict)
                return type(expr)(*operands)
            case tir.Not(a=a):
                negated = self.condition(a, strict=not strict)
                return ops.logical_not(negated)
            case tir.CmpExpr():
                try:
                    result = self.comparison(expr, strict=strict)
                except _UnknownError:
                    return ops.const(not strict, BOOL)
                return ops.const(not strict, BOOL) if self.is_free(result) else result
            case _ if self.is_free(expr) or _loads(expr):
                return ops.const(not strict, BOOL)
            case _:
                return expr

    def comparison(self, expr: tir.CmpExpr, *, strict: bool) -> PrimExpr:
        a, b = expr.a, expr.b
        if not a.dtype.is_int and (self.is_free(expr) or _loads(expr)):
            raise _UnknownError
        match expr:
            case tir.LT() | tir.LE():
                return type(expr)(self.end(a, up=strict), self.end(b, up=not strict))
            case tir.GT() | tir.GE():
                return type(expr)(self.end(a, up=not strict), self.end(b, up=strict))
            case _:
                self.end(a, up=strict)
                self.end(b, up=strict)
                if not self.is_free(expr):
                    return expr
        first = self.end(a, up=strict), self.end(b, up=not strict)
        second = self.end(b, up=strict), self.end(a, up=not strict)
        if isinstance(expr, tir.EQ):
            return tir.And(tir.LE(*first), tir.LE(*second))
        return tir.Or(tir.LT(*first), tir.LT(*second))

    def is_free(self, expr: PrimExpr) -> bool:
        return mentions(expr, self.ends)

    def end(self, expr: PrimExpr, *, up: bool) -> PrimExpr:
        """The greatest (`up`) or least value of `expr`. Errors: _UnknownError if it is unknown."""
        match expr:
            case Var() if expr in self.ends:
                remaining = {var: ends for var, ends in self.ends.items() if var is not expr}
                return _Narrow(remaining).end(ops.cast_to(self.ends[expr][up], expr.dtype), up=up)
            case tir.Add() | tir.Sub() | tir.Mul() if expr.dtype.family == "uint":
                if self.is_free(expr) or _loads(expr):
                    raise _UnknownError  # it wraps around
                return expr
            case tir.FloorMod() | tir.Mod() | BufferLoad():
                raise _UnknownError
            case tir.Add(a=a, b=b) | tir.Min(a=a, b=b) | tir.Max(a=a, b=b):
                return type(expr)(self.end(a, up=up), self.end(b, up=up))
            case tir.Sub(a=a, b=b):
                return tir.Sub(self.end(a, up=up), self.end(b, up=not up))
            case tir.Mul(a=a, b=tir.IntImm(value=factor) as b):
                return tir.Mul(self.end(a, up=up == (factor >= 0)), b)
            case tir.Mul(a=tir.IntImm(value=factor) as a, b=b):
                return tir.Mul(a, self.end(b, up=up == (factor >= 0)))
            case tir.FloorDiv(a=a, b=b) | tir.Div(a=a, b=b) if not self.is_free(b):
                low, high = GENERAL.bound(b)
                if low <= 0 <= high:
                    raise _UnknownError
                return type(expr)(self.end(a, up=up == (low > 0)), b)
            case tir.Cast(dtype=dtype, value=value) if _widens(value, dtype):
                return tir.Cast(dtype, self.end(value, up=up))
            case _ if self.is_free(expr) or _loads(expr):
                raise _UnknownError
            case _:
                return expr


def _widens(value: PrimExpr, dtype: DataType) -> bool:
    source = value.dtype
    return source.family == dtype.family and source.is_int and source.bits <= dtype.bits


def _loads(expr: PrimExpr) -> bool:
    return any(isinstance(node, BufferLoad) for node in walk(expr))
