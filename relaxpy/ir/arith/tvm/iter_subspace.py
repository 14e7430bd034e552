"""Index maps divided into one over some of the iterators and one over the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from relaxpy.ir.arith.canonical import entry_point
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.extents import Extents, analyzer_of
from relaxpy.ir.arith.tvm.iter_expr import (
    IterMapLevel,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    normalize_iter_map_to_expr,
)
from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
from relaxpy.ir.arith.tvm.iter_reader import RefusedError
from relaxpy.ir.core.dtype import BOOL
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.ops import is_const
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass


@entry_point
def subspace_divide(
    bindings: Sequence[ExprLike],
    input_iters: Mapping[Var, Range],
    sub_iters: Sequence[Var],
    predicate: ExprLike = True,
    check_level: IterMapLevel | str | int = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[list[IterMark]]:
    """Each binding as outer * (extent of inner) + inner, inner over the `sub_iters` alone.

    Each binding has its outer and its inner iterator. Last come two marks whose extents are the
    conjuncts of the predicate over the outer and over the inner iterators. The list is empty if the
    bindings cannot be divided so.

    Errors:
        MisuseError (also TypeError): an iterator is not a tir.Var, or has no Range.
    """
    inner_vars = set(ops.check_variables(sub_iters))
    result = detect_iter_map(
        bindings, input_iters, predicate, check_level, simplify_trivial_iterators, analyzer
    )
    if result.errors:
        return []
    marks = {padded.mark for padded in result.padded}
    divider = _Divider(input_iters, inner_vars, marks, analyzer)
    try:
        pairs = [divider.index(index) for index in result.indices]
    except RefusedError:
        return []
    limits = [_mark(ops.const(0), divider.predicates[is_inner]) for is_inner in (False, True)]
    return [*pairs, limits]


def _mark(source: PrimExpr, extent: PrimExpr) -> IterMark:
    """A mark whose extent may be a condition."""
    return IterMark._make(source.dtype, source, extent)


@dataclass(frozen=True, slots=True)
class _Divided:
    """outer * inner_extent + inner; a side without an iterator is 0, and its extent 1."""

    outer: PrimExpr
    outer_extent: PrimExpr
    inner: PrimExpr
    inner_extent: PrimExpr

    @property
    def is_outer(self) -> bool:
        return is_const(self.inner_extent, 1)

    @property
    def is_inner(self) -> bool:
        return is_const(self.outer_extent, 1) and not self.is_outer


class _Divider(Extents):
    def __init__(
        self,
        iters: Mapping[Var, Range],
        inner: Collection[Var],
        padded: Collection[IterMark],
        known: Analyzer | None,
    ) -> None:
        self.analyzer = analyzer_of(iters, known)
        self.inner = inner
        self.outer = [var for var in iters if var not in inner]
        self.padded = padded
        self.predicates: dict[bool, PrimExpr] = dict.fromkeys((False, True), ops.const(True, BOOL))
        self.divided_marks: dict[IterMark, _Divided] = {}

    def exact_quotient(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a / b. Errors: RefusedError if b is not known to divide a."""
        if not self.divides(b, a):
            raise RefusedError
        return self.quotient(a, b)

    def undivided(self, value: PrimExpr, extent: PrimExpr) -> _Divided | None:
        """`value` as one side, if all of its iterators are outer or all are inner."""
        zero, one = ops.const(0, value.dtype), ops.const(1, value.dtype)
        if not mentions(value, self.inner):
            return _Divided(value, extent, zero, one)
        return None if mentions(value, self.outer) else _Divided(zero, one, value, extent)

    def index(self, index: IterSumExpr) -> list[IterMark]:
        """The outer and the inner iterator of a binding."""
        zero, one = ops.const(0, index.dtype), ops.const(1, index.dtype)
        if not index.args:
            return [IterMark(zero, one), IterMark(index.base, one)]
        [split] = index.args
        divided = self.split(split)
        scale = split.scale
        if divided.is_outer:
            value = ops.add(ops.mul(divided.outer, scale), index.base)
            return [IterMark(value, self.times(divided.outer_extent, scale)), IterMark(zero, one)]
        value = ops.add(ops.mul(divided.inner, scale), index.base)
        inner = IterMark(value, self.times(divided.inner_extent, scale))
        return [IterMark(divided.outer, divided.outer_extent), inner]

    def split(self, split: IterSplitExpr) -> _Divided:
        """Some digits of an iterator, not scaled."""
        mark, low = split.source, split.lower_factor
        divided = self.mark(mark)
        digits_expr = normalize_iter_map_to_expr(IterSplitExpr(mark, low, split.extent))
        undivided = self.undivided(digits_expr, split.extent)
        if undivided is not None:
            return undivided
        high, border = self.times(low, split.extent), divided.inner_extent
        zero, one = ops.const(0, mark.dtype), ops.const(1, mark.dtype)
        if self.divides(high, border):
            digits = IterSplitExpr(IterMark(divided.inner, border), low, split.extent)
            unit = is_const(divided.outer_extent, 1) and self.divides(border, high)
            outer_value = divided.outer if unit else zero
            return _Divided(outer_value, one, normalize_iter_map_to_expr(digits), split.extent)
        outer = IterMark(divided.outer, divided.outer_extent)
        if self.divides(border, low):
            digits = IterSplitExpr(outer, self.exact_quotient(low, border), split.extent)
            return _Divided(normalize_iter_map_to_expr(digits), split.extent, zero, one)
        inner_extent, outer_extent = (
            self.exact_quotient(border, low),
            self.exact_quotient(high, border),
        )
        inner = IterSplitExpr(IterMark(divided.inner, border), low, inner_extent)
        upper = IterSplitExpr(outer, 1, outer_extent)
        return _Divided(
            normalize_iter_map_to_expr(upper),
            outer_extent,
            normalize_iter_map_to_expr(inner),
            inner_extent,
        )

    def mark(self, mark: IterMark) -> _Divided:
        divided = self.divided_marks.get(mark)
        if divided is None:
            divided = self.divided_marks[mark] = self.divide(mark)
        return divided

    def divide(self, mark: IterMark) -> _Divided:
        value = normalize_iter_map_to_expr(mark)
        undivided = self.undivided(value, mark.extent)
        source = mark.source
        if not isinstance(source, IterSumExpr):
            if undivided is None:
                raise RefusedError
            return undivided
        operands = [self.split(arg) for arg in source.args]
        if undivided is not None:
            if mark not in self.padded:
                self.limit(mark, value, inner=undivided.is_inner)
            return undivided
        if not is_const(source.base, 0) or not self.is_full(mark):
            raise RefusedError  # a bound on both kinds together divides neither
        return self.joined(source, operands)

    def is_full(self, mark: IterMark) -> bool:
        """True if the extent of a fused iterator is the product of the extents of its operands."""
        total = ops.const(1, mark.dtype)
        assert isinstance(mark.source, IterSumExpr)
        for arg in mark.source.args:
            total = self.times(total, arg.extent)
        return self.analyzer.can_prove_equal(total, mark.extent)

    def limit(self, mark: IterMark, value: PrimExpr, *, inner: bool) -> None:
        """Enter the condition of a predicate on an iterator of one kind."""
        assert isinstance(mark.source, IterSumExpr)
        if is_const(mark.source.base, 0) and self.is_full(mark):
            return
        conditions = [ops.compare(tir.LT, value, mark.extent)]
        if not self.analyzer.can_prove(ops.compare(tir.GE, value, 0)):
            conditions.insert(0, ops.compare(tir.LE, 0, value))
        self.predicates[inner] = ops.all_of(self.predicates[inner], *conditions)

    def joined(self, source: IterSumExpr, operands: list[_Divided]) -> _Divided:
        """Join the divided operands of a sum, coarsest first: outer ones precede inner ones."""
        inner: list[PrimExpr] = []
        outer_extent = ops.const(1, source.dtype)
        border: PrimExpr | None = None
        for arg, operand in zip(source.args, operands, strict=True):
            scale = arg.scale
            if isinstance(scale, tir.IntImm) and scale.value < 0:
                raise RefusedError
            if border is None and not operand.is_outer:
                border = self.times(scale, operand.inner_extent)
            elif border is not None and not operand.is_inner:
                raise RefusedError
            if not is_const(operand.outer_extent, 1):
                outer_extent = self.times(outer_extent, operand.outer_extent)
            if not operand.is_outer:
                inner.append(ops.mul(operand.inner, scale))
        if border is None:
            border = ops.const(1, source.dtype)
        return _Divided(
            self.shrunk(source, operands, border), outer_extent, _total(inner, source.dtype), border
        )

    def shrunk(self, source: IterSumExpr, operands: list[_Divided], border: PrimExpr) -> PrimExpr:
        """The outer side of a sum, divided by the extent of the inner side."""
        terms = []
        for arg, operand in zip(source.args, operands, strict=True):
            scale = self.times(arg.scale, operand.inner_extent)
            unit = is_const(operand.outer_extent, 1)
            if is_const(operand.outer, 0) or (unit and not self.divides(border, scale)):
                continue
            terms.append(ops.mul(operand.outer, self.exact_quotient(scale, border)))
        return _total(terms, source.dtype)


def _total(terms: Sequence[PrimExpr], dtype: str) -> PrimExpr:
    total: PrimExpr | None = None
    for term in terms:
        total = term if total is None else ops.add(total, term)
    return ops.const(0, dtype) if total is None else total
