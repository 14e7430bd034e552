"""Upper, lower and exact bounds of the box that a region covers as variables run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.canonical import entry_point
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.extents import analyzer_of
from relaxpy.ir.arith.tvm.intset import IntervalSet
from relaxpy.ir.arith.tvm.iter_expr import IterMapLevel, IterSumExpr
from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.ops import is_const
from relaxpy.ir.tir.substitution import mentions, substitute

Stretch = tuple[PrimExpr, PrimExpr]
"""The first and the last value of an index that takes every value in between."""


@entry_point
def estimate_region_strict_bound(
    region: Sequence[Range],
    var_dom: Mapping[Var, Range],
    predicate: ExprLike = True,
    analyzer: Analyzer | None = None,
) -> list[IntervalSet] | None:
    """The box that `region` covers as the variables run; None if it is not a box, or not known.

    Errors:
        MisuseError (also TypeError): a member is not a Range.
    """
    return _Estimate(region, var_dom, predicate, analyzer).exactly()


@entry_point
def estimate_region_lower_bound(
    region: Sequence[Range],
    var_dom: Mapping[Var, Range],
    predicate: ExprLike = True,
    analyzer: Analyzer | None = None,
) -> list[IntervalSet] | None:
    """A box that `region` covers as the variables run; None if none is known.

    Errors:
        MisuseError (also TypeError): a member is not a Range.
    """
    return _Estimate(region, var_dom, predicate, analyzer).exactly()


@entry_point
def estimate_region_upper_bound(
    region: Sequence[Range],
    var_dom: Mapping[Var, Range],
    predicate: ExprLike = True,
    analyzer: Analyzer | None = None,
) -> list[IntervalSet]:
    """A box that contains all that `region` covers as the variables run.

    Errors:
        MisuseError (also TypeError): a member is not a Range.
    """
    return _Estimate(region, var_dom, predicate, analyzer).hull()


class _Estimate:
    def __init__(
        self,
        region: Sequence[Range],
        iters: Mapping[Var, Range],
        predicate: ExprLike,
        known: Analyzer | None,
    ) -> None:
        self.known = known
        self.analyzer: Analyzer = analyzer_of(iters, known)
        check_type(region, (list, tuple), "expected a list of Ranges")
        for dimension in region:
            if not isinstance(dimension, Range):
                raise MisuseError(
                    f"expected a Range in a region, found {dimension!r:.60}", about=region
                )
        self.region = region
        self.iters = iters
        self.predicate = ops.truth(predicate)

    def indices(self, ranges: Sequence[Range]) -> Sequence[IterSumExpr] | None:
        """The lower bounds of some ranges as iterators that are independent of each other."""
        result = detect_iter_map(
            [r.min for r in ranges], self.iters, self.predicate, IterMapLevel.Surjective
        )
        return None if result.errors else result.indices

    def exactly(self) -> list[IntervalSet] | None:
        """The box that is covered."""
        result = self.together()
        return self.by_dimension() if result is None else result

    def together(self) -> list[IntervalSet] | None:
        """The box, where the lower bounds are independent and leave no gap."""
        indices = self.indices(self.region)
        if indices is None:
            return None
        result = [self.stretch(i, r, gaps=False) for i, r in zip(indices, self.region, strict=True)]
        return (
            [covered for covered in result if covered is not None] if None not in result else None
        )

    def stretch(self, index: IterSumExpr, dimension: Range, *, gaps: bool) -> IntervalSet | None:
        """The interval that a range from `index` covers; None where it has gaps, unless `gaps`."""
        if mentions(dimension.extent, self.iters):
            return None
        first = last = index.base
        for split in index.args:
            if is_const(split.extent, 1):
                continue
            if not isinstance(split.scale, tir.IntImm):
                return None
            step = ops.const(abs(split.scale.value), split.dtype)
            if not gaps and not self.analyzer.can_prove(
                ops.compare(tir.LE, step, dimension.extent)
            ):
                return None
            length = ops.mul(split.scale, ops.sub(split.extent, 1))
            if split.scale.value < 0:
                first = ops.add(first, length)
            else:
                last = ops.add(last, length)
        return self.interval(first, last, dimension.extent)

    def interval(self, first: PrimExpr, last: PrimExpr, extent: PrimExpr) -> IntervalSet:
        end = ops.sub(ops.add(last, extent), 1)
        return IntervalSet(self.analyzer.simplify(first), self.analyzer.simplify(end))

    def by_dimension(self) -> list[IntervalSet] | None:
        """The box, where no two ranges share a variable and no value is skipped."""
        used: set[Var] = set()
        result = []
        for dimension in self.region:
            variables = {v for v in walk(dimension.min) if isinstance(v, Var) and v in self.iters}
            if used & variables or not is_const(self.predicate, 1):
                return None
            used |= variables
            indices = self.indices([dimension])
            if indices is not None:
                covered = self.stretch(indices[0], dimension, gaps=False)
            else:
                ends = self.unbroken(dimension.min)
                has_varying_extent = mentions(dimension.extent, self.iters)
                covered = (
                    None
                    if ends is None or has_varying_extent
                    else self.interval(*ends, dimension.extent)
                )
            if covered is None:
                return None
            result.append(covered)
        return result

    def unbroken(self, expr: PrimExpr) -> Stretch | None:
        """The ends of `expr`, if it takes every value between them.

        Rule:
            A sum of independent stretches with steps s_1 <= s_2 <= … has no gap where each s_k is
            at most 1 plus the lengths of those before it; a quotient of an unbroken stretch has
            none either.
        """
        match expr:
            case tir.FloorDiv(a=a, b=tir.IntImm(value=by) as divisor) if by > 0:
                dividend = self.unbroken(a)
                return dividend and (
                    ops.floordiv(dividend[0], divisor),
                    ops.floordiv(dividend[1], divisor),
                )
            case _:
                return self.unbroken_sum(expr)

    def unbroken_sum(self, expr: PrimExpr) -> Stretch | None:
        terms: list[tuple[int, int, int]] = []
        linear: PrimExpr = ops.const(0, expr.dtype)
        for var, domain in self.iters.items():
            if not mentions(expr, (var,)):
                continue
            slope = self.analyzer.simplify(_stepped(expr, var))
            if not isinstance(slope, tir.IntImm) or not isinstance(domain.extent, tir.IntImm):
                return None
            if not isinstance(domain.min, tir.IntImm) or domain.extent.value < 1:
                return None
            terms.append((slope.value, domain.min.value, domain.extent.value))
            linear = ops.add(linear, ops.mul(ops.cast_to(var, expr.dtype), slope))
        base = self.analyzer.simplify(ops.sub(expr, linear))
        if mentions(base, self.iters):
            return None
        low = high = reach = 0
        for step, start, extent in sorted(terms, key=lambda term: abs(term[0])):
            if extent > 1 and abs(step) > reach + 1:
                return None
            reach += abs(step) * (extent - 1)
            ends = sorted((step * start, step * (start + extent - 1)))
            low, high = low + ends[0], high + ends[1]
        return ops.add(base, low), ops.add(base, high)

    def hull(self) -> list[IntervalSet]:
        """An interval that contains each range."""
        result = []
        for dimension in self.region:
            indices = self.indices([dimension])
            covered = None
            if indices is not None:
                covered = self.stretch(indices[0], dimension, gaps=True)
            if covered is None:
                last = ops.sub(dimension.stop, 1)
                low = self.analyzer.int_set(dimension.min, self.iters)
                high = self.analyzer.int_set(last, self.iters)
                covered = IntervalSet(low.min_value, high.max_value)
            result.append(covered)
        return result


def _stepped(expr: PrimExpr, var: Var) -> PrimExpr:
    """The increase of `expr` where `var` increases by one."""
    return ops.sub(substitute(expr, {var: ops.add(var, 1)}), expr)
