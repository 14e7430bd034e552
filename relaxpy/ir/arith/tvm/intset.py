"""Sets of integers: intervals with possibly symbolic ends, and the solutions of conditions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
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
        """Return whether the set is known to be empty."""

    @abstractmethod
    def is_everything(self) -> bool:
        """Return whether the set is known to contain every integer."""

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
        """Return whether there is one member."""
        return self.min_value is self.max_value and self.has_lower_bound()

    def has_lower_bound(self) -> bool:
        """Return whether the interval ends below."""
        return self.min_value not in (_NEG_INF, _POS_INF)

    def has_upper_bound(self) -> bool:
        """Return whether the interval ends above."""
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
        return IntervalSet(domain.min, simplify(ops.sub(domain.stop, 1)))


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
                ends = (base, simplify(ops.add(base, length)))
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
    """Return whether the union of two intervals is known to be an interval."""
    return a.is_nothing() or (_reaches(a, b) and _reaches(b, a))


def _reaches(a: IntervalSet, b: IntervalSet) -> bool:
    """Return whether `b` is known to end at or after the integer that precedes `a`."""
    if not a.has_lower_bound() or not b.has_upper_bound():
        return True
    gap = simplify(ops.compare(tir.LE, a.min_value, ops.add(b.max_value, 1)))
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
