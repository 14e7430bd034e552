"""Interval sets: what an expression covers as variables run through intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from relaxpy.ir.arith import poly, readable
from relaxpy.ir.arith.interval import Interval
from relaxpy.ir.arith.poly import Poly
from relaxpy.ir.dtype import DataType
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Range
from relaxpy.ir.traverse import walk

if TYPE_CHECKING:
    from relaxpy.ir.arith.canonical import Canonical


@dataclass(frozen=True, slots=True)
class IntervalSet:
    """The integers from `min_value` to `max_value`, both included; None where there is no end."""

    min_value: tir.PrimExpr | None
    max_value: tir.PrimExpr | None

    def is_everything(self) -> bool:
        """Whether neither end is known."""
        return self.min_value is None and self.max_value is None

    def is_single_point(self) -> bool:
        """Whether there is one member."""
        return self.min_value is not None and self.min_value is self.max_value

    @staticmethod
    def single_point(point: tir.ExprLike) -> IntervalSet:
        """The set of `point` alone."""
        value = ops.convert(point)
        return IntervalSet(value, value)

    @staticmethod
    def of(domain: IntervalSet | Range) -> IntervalSet:
        """The members of a Range, or an interval itself."""
        if isinstance(domain, IntervalSet):
            return domain
        return IntervalSet(domain.min, ops.sub(domain.stop, 1))


def evaluate_set(
    engine: Canonical, expr: tir.PrimExpr, dom_map: Mapping[tir.Var, IntervalSet | Range]
) -> IntervalSet:
    """An interval around `expr`: symbolic where it is linear in the variables, else by literals."""
    domains = {var: IntervalSet.of(domain) for var, domain in dom_map.items()}
    linear = _linear(engine, engine.poly(expr), domains)
    if linear is not None:
        ends = [None if p is None else readable.expression(engine, p, expr.dtype) for p in linear]
        return IntervalSet(ends[0], ends[1])
    return _literal_set(_by_bounds(engine, expr, domains), expr.dtype)


def _linear(
    engine: Canonical, p: Poly, domains: Mapping[tir.Var, IntervalSet]
) -> tuple[Poly | None, Poly | None] | None:
    """Both ends of p, if its variables with a domain stand in terms of their own."""
    ends: list[Poly | None] = [poly.ZERO, poly.ZERO]
    for monomial, coefficient in p.items():
        inside = {v for f in monomial for v in walk(f) if isinstance(v, tir.Var) and v in domains}
        if not inside:
            parts: list[Poly | None] = [{monomial: coefficient}] * 2
        elif len(monomial) == 1 and monomial[0] in inside:
            (var,) = inside
            sides = (domains[var].min_value, domains[var].max_value)
            ordered = sides if coefficient > 0 else sides[::-1]
            parts = [
                None if side is None else poly.scaled(engine.poly(side), coefficient)
                for side in ordered
            ]
        else:
            return None
        ends = [
            None if end is None or part is None else poly.add(end, part)
            for end, part in zip(ends, parts, strict=True)
        ]
    return ends[0], ends[1]


def _by_bounds(
    engine: Canonical, expr: tir.PrimExpr, domains: Mapping[tir.Var, IntervalSet]
) -> Interval:
    facts = engine.facts
    for var, domain in domains.items():
        low = -inf if domain.min_value is None else engine.bound(domain.min_value)[0]
        high = inf if domain.max_value is None else engine.bound(domain.max_value)[1]
        facts = facts.with_bound(var, (low, high))
    return type(engine)(facts).bound(expr)


def _literal_set(bound: Interval, dtype: DataType) -> IntervalSet:
    low, high = (None if abs(end) == inf else ops.const(int(end), dtype) for end in bound)
    return IntervalSet(low, high)
