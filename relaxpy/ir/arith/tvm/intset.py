"""Sets of integers: intervals with possibly symbolic ends, and the intervals of expressions."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import inf

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.algebra import folding, poly
from relaxpy.ir.arith.algebra.interval import Interval
from relaxpy.ir.arith.canonical import Canonical
from relaxpy.ir.arith.prove import data_may_wrap, simplify
from relaxpy.ir.arith.rules import bounds
from relaxpy.ir.arith.stack import from_below, is_nested
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

_POS_INF = tir.Var("pos_inf", "handle")
_NEG_INF = tir.Var("neg_inf", "handle")


def pos_inf() -> tir.Var:
    """The upper end of an interval without an upper bound; always the same variable."""
    return _POS_INF


def neg_inf() -> tir.Var:
    """The lower end of an interval without a lower bound; always the same variable."""
    return _NEG_INF


class IntSet(ABC):
    """A set of integers."""

    __slots__ = ()

    @abstractmethod
    def is_nothing(self) -> bool:
        """True if the set is known to be empty."""

    @abstractmethod
    def is_everything(self) -> bool:
        """True if the set is known to contain every integer."""

    @staticmethod
    def single_point(point: tir.ExprLike) -> IntervalSet:
        """The set of `point` alone."""
        value = ops.convert(point)
        return IntervalSet(value, value)

    @staticmethod
    def vector(vec: tir.ExprLike) -> IntervalSet:
        """An interval that contains all lanes of a vector.

        Errors:
            MisuseError (also TypeError): `vec` is not a vector of integers.
        """
        value = ops.convert(vec)
        if not value.dtype.is_int:
            raise MisuseError(f"expected an integer vector, found {value!r:.60}", about=vec)
        return hull_of_lanes(value)


@dataclass(frozen=True, slots=True, init=False)
class IntervalSet(IntSet):
    """The integers from `min_value` to `max_value`, both included.

    `neg_inf()` and `pos_inf()` are the ends of an interval without bounds, and exchanged those of
    the empty set; None is read as such an end.
    """

    min_value: tir.PrimExpr
    max_value: tir.PrimExpr

    def __init__(self, min_value: tir.ExprLike | None, max_value: tir.ExprLike | None) -> None:
        """Errors: MisuseError (also TypeError) if an end is not an integer."""
        ends = (
            _NEG_INF if min_value is None else ops.convert(min_value),
            _POS_INF if max_value is None else ops.convert(max_value),
        )
        for end in ends:
            if end not in (_NEG_INF, _POS_INF) and (not end.dtype.is_int or end.dtype.vector):
                raise MisuseError(f"expected an integer end, found `{end}`", about=end)
        object.__setattr__(self, "min_value", ends[0])
        object.__setattr__(self, "max_value", ends[1])

    @override
    def is_nothing(self) -> bool:
        if self.min_value is _POS_INF or self.max_value is _NEG_INF:
            return True
        match self.min_value, self.max_value:
            case tir.IntImm(value=low), tir.IntImm(value=high):
                return low > high
            case _:
                return False

    @override
    def is_everything(self) -> bool:
        return self.min_value is _NEG_INF and self.max_value is _POS_INF

    def is_single_point(self) -> bool:
        """True if there is one member."""
        return self.min_value is self.max_value and self.has_lower_bound()

    def has_lower_bound(self) -> bool:
        """True if the interval ends below."""
        return self.min_value not in (_NEG_INF, _POS_INF)

    def has_upper_bound(self) -> bool:
        """True if the interval ends above."""
        return self.max_value not in (_NEG_INF, _POS_INF)

    @staticmethod
    def of(domain: IntervalSet | Range) -> IntervalSet:
        """The members of a Range, or an interval itself.

        Errors:
            MisuseError (also TypeError): it is neither.
        """
        if isinstance(domain, IntervalSet):
            return domain
        check_type(domain, Range, "expected an IntervalSet or a Range")
        return IntervalSet(domain.min, simplify(domain.stop - 1))


def domains_of(table: Mapping[tir.Var, IntervalSet | Range]) -> dict[tir.Var, IntervalSet]:
    """The intervals that variables run through.

    Errors:
        MisuseError (also TypeError): `table` does not map tir.Var to IntervalSets or Ranges.
    """
    check_type(table, Mapping, "expected a table of intervals or Ranges by tir.Var")
    for var in table:
        ops.check_variable(var, "a table of domains")
    return {var: IntervalSet.of(domain) for var, domain in table.items()}


EVERYTHING = IntervalSet(None, None)
NOTHING = IntervalSet(_POS_INF, _NEG_INF)


@dataclass(frozen=True, slots=True, init=False)
class PresburgerSet(IntSet):
    """The values of some variables for which `condition`, built of linear comparisons, holds."""

    condition: tir.PrimExpr

    def __init__(self, condition: tir.ExprLike = True) -> None:
        """Errors: MisuseError (also TypeError) if the condition is not Bool."""
        object.__setattr__(self, "condition", simplify(ops.truth(condition)))

    @override
    def is_nothing(self) -> bool:
        return isinstance(self.condition, tir.IntImm) and not self.condition.value

    @override
    def is_everything(self) -> bool:
        return isinstance(self.condition, tir.IntImm) and bool(self.condition.value)


def hull_of_lanes(value: tir.PrimExpr) -> IntervalSet:
    """An interval that contains all lanes; scalable vectors have no end."""
    match value:
        case tir.Broadcast(value=scalar):
            return IntervalSet(scalar, scalar)
        case tir.Ramp() if value.dtype.family == "uint":
            return EVERYTHING  # lanes may wrap around
        case tir.Ramp(base=base, stride=tir.IntImm(value=stride), lanes=lanes):
            if value.dtype.is_scalable:
                ends: tuple[tir.ExprLike | None, ...] = (base, None if stride else base)
            else:
                length, (low, high) = stride * (lanes - 1), ops.int_range(base.dtype)
                start = base.value if isinstance(base, tir.IntImm) else 0
                if not low <= length <= high or not low <= start + length <= high:
                    return EVERYTHING  # it overflows
                last = base + length
                if data_may_wrap(last):
                    return EVERYTHING
                ends = (base, simplify(last))
            return IntervalSet(*(ends if stride >= 0 else ends[::-1]))
        case _ if not value.dtype.vector:
            return IntervalSet(value, value)
        case _:
            return EVERYTHING


@user_facing
def union_lower_bound(sets: Sequence[IntervalSet]) -> IntervalSet:
    """An interval within the union of `sets`; those that cannot be joined to it are dropped.

    Errors:
        MisuseError (also TypeError): a member is not an IntervalSet.
    """
    check_type(sets, (list, tuple), "expected a list of intervals")
    result = NOTHING
    waiting = []
    for interval in sets:
        if not isinstance(interval, IntervalSet):
            raise MisuseError(f"expected an IntervalSet, found {interval!r:.60}", about=sets)
        if not interval.is_nothing():
            waiting.append(interval)
    while waiting:
        joined = next((interval for interval in waiting if touches(result, interval)), None)
        if joined is None:
            break
        waiting.remove(joined)
        result = joined if result.is_nothing() else hull(result, joined)
    return result


def touches(a: IntervalSet, b: IntervalSet) -> bool:
    """True if the union of two intervals is known to be an interval."""
    return a.is_nothing() or (_reaches(a, b) and _reaches(b, a))


def _reaches(a: IntervalSet, b: IntervalSet) -> bool:
    """True if `b` is known to end at or after the integer that precedes `a`."""
    if not a.has_lower_bound() or not b.has_upper_bound():
        return True
    gap = simplify(a.min_value <= b.max_value + 1)
    return isinstance(gap, tir.IntImm) and bool(gap.value)


def hull(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """The least interval that contains both."""
    if a.is_nothing() or b.is_nothing():
        return b if a.is_nothing() else a
    both_below = a.has_lower_bound() and b.has_lower_bound()
    both_above = a.has_upper_bound() and b.has_upper_bound()
    return IntervalSet(
        simplify(ops.minimum(a.min_value, b.min_value)) if both_below else None,
        simplify(ops.maximum(a.max_value, b.max_value)) if both_above else None,
    )


Domains = Mapping[tir.Var, IntervalSet]
End = tir.PrimExpr | None
Operation = type[tir.BinaryOpExpr]
_UNBOUNDED: dict[Operation, Callable[[int, int], int]] = {
    tir.Add: operator.add,
    tir.Sub: operator.sub,
    tir.Mul: operator.mul,
}


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
        if bounds.data_may_wrap(self.inside, expr):
            return None, None  # data may wrap around between the ends
        linear = self.linear(self.engine.poly(expr), expr.dtype)
        return linear if linear is not None else self.by_operands(expr)

    def lanes(self, expr: tir.PrimExpr) -> tuple[End, End]:
        hull = hull_of_lanes(expr)
        if hull.is_everything():
            return None, None
        low = self.of(hull.min_value)[0] if hull.has_lower_bound() else None
        high = self.of(hull.max_value)[1] if hull.has_upper_bound() else None
        return low, high

    def linear(self, p: poly.Poly, dtype: DataType) -> tuple[End, End] | None:
        """Both ends of p, if every variable with a domain is a term of its own."""
        ends: list[poly.Poly | None] = [poly.ZERO, poly.ZERO]
        for monomial, coefficient in p.items():
            inside = {
                v for f in monomial for v in walk(f) if isinstance(v, tir.Var) and v in self.domains
            }
            if not inside:
                terms: list[poly.Poly | None] = [{monomial: coefficient}] * 2
            elif len(monomial) == 1 and monomial[0] in inside:
                (var,) = inside
                sides = self.of(var)
                ordered = sides if coefficient > 0 else sides[::-1]
                terms = [
                    None if side is None else poly.scaled(self.engine.exact(side), coefficient)
                    for side in ordered
                ]
            else:
                return None
            ends = [
                None if end is None or term is None else poly.add(end, term)
                for end, term in zip(ends, terms, strict=True)
            ]
        low, high = (
            None if end is None else self.engine.written(end, dtype, exact=True) for end in ends
        )
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
        """True if a cast changes no value."""
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
        if isinstance(a, tir.IntImm) and isinstance(b, tir.IntImm) and op in _UNBOUNDED:
            return result if ops.is_const(result, _UNBOUNDED[op](a.value, b.value)) else None
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
