"""The interval that an expression covers as variables run through intervals, with symbolic ends."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from relaxpy.ir.arith.algebra import folding, poly, writer
from relaxpy.ir.arith.algebra.interval import Interval
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.canonical import Canonical
from relaxpy.ir.arith.stack import from_below, is_nested
from relaxpy.ir.arith.tvm.intset import EVERYTHING, IntervalSet, domains_of, hull_of_lanes
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import mentions

Domains = Mapping[tir.Var, IntervalSet]
End = tir.PrimExpr | None
Operation = type[tir.BinaryOpExpr]


def evaluate_set(
    engine: Canonical, expr: tir.PrimExpr, dom_map: Mapping[tir.Var, IntervalSet | Range]
) -> IntervalSet:
    """An interval that contains `expr`, its ends over variables that are not in `dom_map`."""
    domains = domains_of(dom_map)
    domains = {v: d for v, d in domains.items() if d.min_value is not v or d.max_value is not v}
    if any(domain.is_nothing() for domain in domains.values()):
        return EVERYTHING
    image = _Image(engine, domains)
    low, high = image.closed(expr)
    if low is None or high is None:
        least, greatest = image.literal(expr)
        low, high = least if low is None else low, greatest if high is None else high
    return IntervalSet(low, high)


class _Image:
    def __init__(self, engine: Canonical, domains: Domains) -> None:
        self.engine = engine
        self.domains = domains
        facts = engine.facts
        for var, domain in domains.items():
            low = engine.bound(domain.min_value)[0] if domain.has_lower_bound() else -inf
            high = engine.bound(domain.max_value)[1] if domain.has_upper_bound() else inf
            facts = facts.with_bound(var, (low, high))
        self.inside = Canonical(facts)
        self.ends: dict[tir.PrimExpr, tuple[End, End]] = {}

    def literal(self, expr: tir.PrimExpr) -> tuple[End, End]:
        """Both ends as literals, where the intervals of the variables give them."""
        if not expr.dtype.is_int or not mentions(expr, self.domains):
            return None, None
        bound: Interval = self.inside.bound(expr)
        dtype = DataType(expr.dtype.element)
        least, greatest = ops.int_range(dtype)
        low, high = (
            None if abs(end) == inf or not least <= end <= greatest else ops.const(int(end), dtype)
            for end in bound
        )
        return low, high

    def closed(self, expr: tir.PrimExpr) -> tuple[End, End]:
        """Both ends without running variables, which the ends of domains may contain."""
        low, high = self.at_any_depth(expr)
        for _ in self.domains:
            low = None if low is None else self.at_any_depth(low)[0]
            high = None if high is None else self.at_any_depth(high)[1]
        low, high = (
            None if end is None or mentions(end, self.domains) else end for end in (low, high)
        )
        return low, high

    def at_any_depth(self, expr: tir.PrimExpr) -> tuple[End, End]:
        """Both ends; those of a nested expression are derived innermost first."""
        if is_nested(expr):
            for node in from_below(expr, self.ends):
                self.of(node)
        return self.of(expr)

    def of(self, expr: tir.PrimExpr) -> tuple[End, End]:
        """Both ends; None where an end does not exist or is not known."""
        result = self.ends.get(expr)
        if result is None:
            result = self.ends[expr] = self.derive(expr)
        return result

    def derive(self, expr: tir.PrimExpr) -> tuple[End, End]:
        if not expr.dtype.is_int or expr.dtype.is_bool:
            return None, None
        if expr.dtype.vector:
            return self.lanes(expr)
        if isinstance(expr, tir.Var) and expr in self.domains:
            domain = self.domains[expr]
            low = ops.cast_to(domain.min_value, expr.dtype) if domain.has_lower_bound() else None
            high = ops.cast_to(domain.max_value, expr.dtype) if domain.has_upper_bound() else None
            return low, high
        if not mentions(expr, self.domains):
            return expr, expr
        if expr.dtype.family == "uint":
            return None, None
        linear = self.linear(self.engine.poly(expr), expr.dtype)
        return linear if linear is not None else self.by_operands(expr)

    def lanes(self, expr: tir.PrimExpr) -> tuple[End, End]:
        hull = hull_of_lanes(expr)
        if hull.is_everything():
            return None, None
        low = self.of(hull.min_value)[0] if hull.has_lower_bound() else None
        high = self.of(hull.max_value)[1] if hull.has_upper_bound() else None
        return low, high

    def linear(self, p: Poly, dtype: DataType) -> tuple[End, End] | None:
        """Both ends of p, if every variable with a domain is a term of its own."""
        ends: list[Poly | None] = [poly.ZERO, poly.ZERO]
        for monomial, coefficient in p.items():
            inside = {
                v for f in monomial for v in walk(f) if isinstance(v, tir.Var) and v in self.domains
            }
            if not inside:
                terms: list[Poly | None] = [{monomial: coefficient}] * 2
            elif len(monomial) == 1 and monomial[0] in inside:
                (var,) = inside
                sides = self.of(var)
                ordered = sides if coefficient > 0 else sides[::-1]
                terms = [
                    None if side is None else poly.scaled(self.engine.poly(side), coefficient)
                    for side in ordered
                ]
            else:
                return None
            ends = [
                None if end is None or term is None else poly.add(end, term)
                for end, term in zip(ends, terms, strict=True)
            ]
        low, high = (None if end is None else writer.expression(end, dtype) for end in ends)
        return low, high

    def by_operands(self, expr: tir.PrimExpr) -> tuple[End, End]:
        match expr:
            case tir.Add(a=a, b=b):
                (l1, h1), (l2, h2) = self.of(a), self.of(b)
                return self.over(tir.Add, l1, l2), self.over(tir.Add, h1, h2)
            case tir.Sub(a=a, b=b):
                (l1, h1), (l2, h2) = self.of(a), self.of(b)
                return self.over(tir.Sub, l1, h2), self.over(tir.Sub, h1, l2)
            case tir.Min(a=a, b=b) | tir.Max(a=a, b=b):
                (l1, h1), (l2, h2) = self.of(a), self.of(b)
                low, high = self.over(type(expr), l1, l2), self.over(type(expr), h1, h2)
                if isinstance(expr, tir.Min):
                    return low, h1 if h2 is None else h2 if h1 is None else high
                return l1 if l2 is None else l2 if l1 is None else low, high
            case tir.Mul(a=a, b=b):
                if mentions(b, self.domains):
                    a, b = b, a
                return self.monotone(a, b, tir.Mul)
            case tir.FloorDiv(a=a, b=b) | tir.Div(a=a, b=b):
                return self.monotone(a, b, type(expr))
            case tir.FloorMod(a=a, b=b):
                return self.remainder(a, b)
            case tir.Mod(a=a, b=b) if self.inside.bound(a)[0] >= 0:
                return self.remainder(a, b)
            case tir.Select(condition=c, true_value=a, false_value=b):
                return self.choice(c, a, b)
            case tir.Call(args=(c, a, b)) if getattr(expr.op, "name", "") == "tir.if_then_else":
                return self.choice(c, a, b)
            case tir.Cast(value=value) if self.keeps(value.dtype, expr.dtype):
                low, high = self.of(value)
                return (
                    low if low is None else ops.cast_to(low, expr.dtype),
                    high if high is None else ops.cast_to(high, expr.dtype),
                )
            case tir.Let():
                return self.at_any_depth(folding.inlined(expr))
            case _:
                return None, None

    @staticmethod
    def keeps(source: DataType, target: DataType) -> bool:
        """Return whether a cast changes no value."""
        return source.family == target.family == "int" and source.bits <= target.bits

    def choice(self, condition: tir.PrimExpr, a: tir.PrimExpr, b: tir.PrimExpr) -> tuple[End, End]:
        """Both ends of the branches that can be chosen."""
        result: list[tuple[End, End]] = []
        for branch, test in ((a, condition), (b, tir.Not(condition))):
            decided = self.inside.simplify(test)
            if not (isinstance(decided, tir.IntImm) and not decided.value):
                result.append(self.of(branch))
        if len(result) == 1:
            return result[0]
        (l1, h1), (l2, h2) = result
        return self.over(tir.Min, l1, l2), self.over(tir.Max, h1, h2)

    def over(self, op: Operation, a: End, b: End) -> End:
        """op(a, b), if both are known and the datatype holds it."""
        if a is None or b is None:
            return None
        result = self.engine.simplify(op(a, b))
        number = poly.constant_of(self.engine.poly(result))
        return result if number is None or isinstance(result, tir.IntImm) else None

    def monotone(self, a: tir.PrimExpr, b: tir.PrimExpr, op: Operation) -> tuple[End, End]:
        """op(a, b) for a `b` of known sign without running variables."""
        if mentions(b, self.domains):
            return None, None
        least, greatest = self.engine.bound(b)
        if op is not tir.Mul and least <= 0 <= greatest:
            return None, None
        low, high = (self.over(op, end, b) for end in self.of(a))
        if least >= 0:
            return low, high
        return (high, low) if greatest <= 0 else (None, None)

    def remainder(self, a: tir.PrimExpr, b: tir.PrimExpr) -> tuple[End, End]:
        """a % b for b > 0: a less its block, where all of `a` lies in one, else all remainders."""
        if mentions(b, self.domains) or self.engine.bound(b)[0] <= 0:
            return None, None
        low, high = self.of(a)
        simple = self.engine.simplify
        if low is not None and high is not None:
            block, last = simple(tir.FloorDiv(low, b)), simple(tir.FloorDiv(high, b))
            if self.engine.prove_equal(block, last):
                start = tir.Mul(block, b)
                return simple(tir.Sub(low, start)), simple(tir.Sub(high, start))
        return ops.const(0, a.dtype), simple(tir.Sub(b, ops.const(1, b.dtype)))
