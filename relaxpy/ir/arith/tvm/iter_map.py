"""Index maps that only split, fuse and shift iterators: their detection, inverses and division."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.arith.algebra import folding
from relaxpy.ir.arith.canonical import entry_point
from relaxpy.ir.arith.prove import in_order
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_reader import (
    Extents,
    IterMapLevel,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    LooseReader,
    Padded,
    Reader,
    RefusedError,
    Sum,
    analyzer_of,
    marks_of,
    normalize_iter_map_to_expr,
    size_of,
    with_padding,
)
from relaxpy.ir.core.dtype import BOOL
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.ops import is_const
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class IterMapResult:
    """The indices as sums of iterators; empty where that is impossible, and `errors` say why.

    `padding_predicate` holds where an index is from padding, not from the iterators. A map that was
    checked has whether it is `one_to_one`, apart from padding.
    """

    indices: tuple[IterSumExpr, ...]
    errors: tuple[str, ...]
    padding_predicate: PrimExpr
    padded: tuple[Padded, ...] = ()
    one_to_one: bool = False


@entry_point
def detect_iter_map(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Range],
    predicate: ExprLike = True,
    check_level: IterMapLevel | str | int = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> IterMapResult:
    """The `indices` over the `input_iters`, as far as `predicate` holds, as sums of iterators.

    Onto means that together they take every value of the box their extents span, one-to-one that
    no two values of the iterators have the same indices. Below that level, an iterator that a
    divisor does not divide is padded; a map is onto as far as padding leaves no value out. Symbolic
    extents and divisors are assumed to be positive, beside the facts of an `analyzer`.
    """
    return detected_map(
        *(indices, input_iters, predicate, _level(check_level), simplify_trivial_iterators),
        analyzer,
        padded=False,
    )


def detected_map(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Range],
    predicate: ExprLike,
    level: IterMapLevel,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
    *,
    padded: bool = True,
) -> IterMapResult:
    """A result of `detect_iter_map`, or a `padded` map: with whole digits, padding included."""
    condition = ops.truth(predicate)
    values = ops.convert_all(indices)

    def detected(reader: Reader) -> tuple[Reader, tuple[IterSumExpr, ...], bool]:
        reader.assume(condition)
        read = [reader.index(value) for value in values]
        splits = iter(reader.lifted(arg for total in read for arg in total.args))
        sums = tuple(IterSumExpr([next(splits) for _ in t.args], t.base) for t in read)
        return reader, sums, _checked(reader, level, sums, padded=padded)

    try:
        reader, sums, one_to_one = with_padding(
            *(input_iters, level, simplify_trivial_iterators, detected, analyzer), whole=padded
        )
    except RefusedError as error:
        return IterMapResult((), (str(error),), ops.const(False, BOOL))
    used = set(marks_of(sums))
    pads = tuple(p for p in reader.padded.values() if p.mark in used)
    conditions = [p.is_padding(normalize_iter_map_to_expr(p.mark)) for p in pads]
    padding = ops.any_of(*conditions) if conditions else ops.const(False, BOOL)
    return IterMapResult(sums, (), padding, pads, one_to_one)


@entry_point
def normalize_to_iter_sum(
    index: ExprLike, input_iters: Mapping[Var, Range], analyzer: Analyzer | None = None
) -> IterSumExpr:
    """One index as a sum of splits, fused only where quotients need it, the coarsest first.

    Anything that is not a sum of iterators, such as a product of them, is added to the base.
    """
    value = ops.convert(index)
    total = with_padding(
        *(input_iters, IterMapLevel.NoCheck, True),
        lambda reader: reader.read(value),
        analyzer,
        reader_type=LooseReader,
    )
    terms = sorted(total.terms.items(), key=lambda term: _coarseness(term[1]), reverse=True)
    return Sum(dict(terms), total.base).expr()


def _coarseness(scale: PrimExpr) -> tuple[int, int]:
    """The literal of a product, and the number of the other factors."""
    factors = folding.operands(scale, tir.Mul)
    numbers = [factor.value for factor in factors if isinstance(factor, tir.IntImm)]
    return abs(prod(numbers)), len(factors) - len(numbers)


@entry_point
def iter_map_simplify(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Range],
    predicate: ExprLike = True,
    check_level: IterMapLevel | str | int = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[PrimExpr]:
    """The `indices` in simplest terms, as iterators where they are such a map.

    Without `simplify_trivial_iterators`, iterators of extent 1 stay where they are.
    """
    result = detect_iter_map(
        indices, input_iters, predicate, check_level, simplify_trivial_iterators, analyzer
    )
    known = input_iters
    if not simplify_trivial_iterators:
        known = {v: domain for v, domain in input_iters.items() if not is_const(domain.extent, 1)}
    simplify = analyzer_of(known, analyzer).simplify
    values = [ops.convert(index) for index in indices]
    if not result.errors:
        values = [normalize_iter_map_to_expr(index) for index in result.indices]
    return [in_order(value, simplify) for value in values]


def _level(level: IterMapLevel | str | int) -> IterMapLevel:
    if isinstance(level, str):
        return IterMapLevel.from_str(level)
    try:
        return IterMapLevel(level)
    except ValueError:
        raise unexpected(level, "expected an IterMapLevel") from None


def _checked(
    reader: Reader, level: IterMapLevel, indices: tuple[IterSumExpr, ...], *, padded: bool
) -> bool:
    """True if the map is also injective. Errors: RefusedError if it is not as `level` says."""
    if level == IterMapLevel.NoCheck:
        return False
    _Check(reader, level, indices, padded=padded).run()
    try:
        _Check(reader, IterMapLevel.Bijective, indices).run()
    except RefusedError:
        return False
    return True


class _Check:
    """True if the indices use each digit of each iterator once, and none in part."""

    def __init__(
        self,
        reader: Reader,
        level: IterMapLevel,
        indices: tuple[IterSumExpr, ...],
        *,
        padded: bool = True,
    ) -> None:
        self.reader = reader
        self.padded = {} if padded else {p.mark: p for p in reader.padded.values()}
        self.level = level
        self.indices = indices
        self.used: dict[IterMark, list[IterSplitExpr]] = {}
        self.periods: dict[IterMark, PrimExpr] = {}

    def run(self) -> None:
        self.collect(arg for index in self.indices for arg in index.args)
        if self.level == IterMapLevel.Bijective:
            for var, mark in self.reader.leaves.items():
                if mark not in self.used and not is_const(mark.extent, 1):
                    raise RefusedError(f"the iterator {var.name} is not used")
        constrained = {id(split.mark): split.mark for split in self.reader.constrained}
        unused = [mark for mark in constrained.values() if mark not in self.used]
        if unused and self.level == IterMapLevel.Bijective:
            raise RefusedError("iterators that the predicate constrains are used only in part")
        for mark in unused:  # iterators constrained together are not free by themselves
            self.collect([IterSplitExpr(mark)])
        for mark in self.used:
            self.period(mark)

    def collect(self, splits: Iterable[IterSplitExpr]) -> None:
        waiting = list(splits)
        while waiting:
            split = waiting.pop()
            mark = split.source
            if is_const(split.extent, 1) and not is_const(mark.extent, 1):
                continue
            if mark not in self.used and isinstance(mark.source, IterSumExpr):
                waiting += mark.source.args
            self.used.setdefault(mark, []).append(split)

    def period(self, mark: IterMark) -> PrimExpr:
        """The number of consecutive values of an iterator that cover its used digits."""
        if mark not in self.periods:
            self.periods[mark] = self.digits(mark, self.used[mark])
        return self.periods[mark]

    def digits(self, mark: IterMark, splits: Sequence[IterSplitExpr]) -> PrimExpr:
        reader, waiting = self.reader, list(splits)
        expected: PrimExpr = ops.const(1, mark.dtype)
        coarsest = waiting[0]
        while waiting:
            split = next((s for s in waiting if reader.same(s.lower_factor, expected)), None)
            if split is None and self.level == IterMapLevel.Surjective:
                split = min(waiting, key=lambda s: size_of(s.lower_factor))
                split = split if reader.divides(expected, split.lower_factor) else None
            if split is None:
                raise RefusedError(f"digits of `{self.text(mark)}` are used twice or left out")
            waiting.remove(split)
            coarsest, expected = split, reader.times(split.lower_factor, split.extent)
        if self.level == IterMapLevel.Bijective and not reader.same(expected, mark.extent):
            raise RefusedError(f"the highest digits of `{self.text(mark)}` are left out")
        if not reader.divides(expected, mark.extent):
            raise RefusedError(
                f"`{self.text(mark)}` of extent {mark.extent} does not fill digits up to {expected}"
            )
        inside = reader.padded.get(coarsest)
        if inside is not None and inside.mark in self.used:
            expected = reader.times(coarsest.lower_factor, self.period(inside.mark))
        padded = self.padded.get(mark)
        if padded is not None and not self.is_filled(padded, splits, expected):
            raise RefusedError(f"some digits of `{self.text(mark)}` come from padding alone")
        return expected

    def is_filled(self, padded: Padded, splits: Sequence[IterSplitExpr], period: PrimExpr) -> bool:
        """True if the values other than padding cover some digits, which repeat by `period`."""
        reader, size = self.reader, padded.end - padded.begin
        if reader.holds(period <= size):
            return True
        [step, *others] = [split.lower_factor for split in splits]
        after = padded.mark.extent - padded.end
        return not others and all(reader.holds(end < step) for end in (padded.begin, after))

    @staticmethod
    def text(mark: IterMark) -> PrimExpr:
        return normalize_iter_map_to_expr(mark)


@entry_point
def inverse_affine_iter_map(
    iter_map: Sequence[IterSumExpr], outputs: Sequence[ExprLike]
) -> dict[Var, PrimExpr]:
    """The iterators as expressions of `outputs`, the values of the indices of a detected map.

    Digits of iterators that no index uses are 0.

    Errors:
        MisuseError (also ValueError): there are more or fewer outputs than indices, or an index is
            a sum of several splits.
    """
    marks = values_of_marks(iter_map, outputs)
    return {
        var: value
        for mark, value_of_mark in marks.items()
        if not isinstance(mark.source, IterSumExpr)
        for var, value in [_variable(mark.source, value_of_mark)]
    }


def values_of_marks(
    iter_map: Sequence[IterSumExpr], outputs: Sequence[ExprLike]
) -> dict[IterMark, PrimExpr]:
    """The value of every iterator of a map, fused ones included, by the values of the indices."""
    values = ops.convert_all(outputs)
    check_type(iter_map, (list, tuple), "expected a list of indices")
    for index in iter_map:
        if not isinstance(index, IterSumExpr):
            raise MisuseError(f"expected an IterSumExpr, found {index!r:.60}", about=iter_map)
    if len(values) != len(iter_map):
        raise MisuseError(f"there are {len(iter_map)} indices and {len(values)} outputs")
    values_by_mark: dict[IterMark, PrimExpr] = {}
    for index, value in zip(iter_map, values, strict=True):
        if len(index.args) > 1:
            raise MisuseError(f"an index of several splits has no inverse: {index}", about=index)
        for arg in index.args:
            shifted = ops.cast_to(value, arg.dtype) - index.base
            _enter(values_by_mark, arg, _unscaled(shifted, arg.scale))
    for mark in marks_of(iter_map):
        if isinstance(mark.source, IterSumExpr):
            _split_fused(
                values_by_mark,
                mark.source,
                values_by_mark.setdefault(mark, ops.const(0, mark.dtype)),
            )
    return values_by_mark


def _enter(values: dict[IterMark, PrimExpr], split: IterSplitExpr, digits: PrimExpr) -> None:
    digits_value = digits * split.lower_factor
    entered = values.get(split.source)
    values[split.source] = digits_value if entered is None else entered + digits_value


def _unscaled(value: PrimExpr, scale: PrimExpr) -> PrimExpr:
    if isinstance(scale, tir.IntImm) and scale.value < 0:
        return value * -1 // ops.const(-scale.value, scale.dtype)
    return value // scale


def _split_fused(values: dict[IterMark, PrimExpr], source: IterSumExpr, value: PrimExpr) -> None:
    """Enter the operands of a fused iterator, from the coarsest to the finest."""
    if len(source.args) == 1:
        [arg] = source.args
        _enter(values, arg, _unscaled(value - source.base, arg.scale))
        return
    for position, arg in enumerate(source.args):
        factor = arg.scale
        negative = isinstance(factor, tir.IntImm) and factor.value < 0
        digits = value // (factor * -1 if negative else factor)
        if position:
            digits = digits % arg.extent
        _enter(values, arg, arg.extent - 1 - digits if negative else digits)


def _variable(source: PrimExpr, value: PrimExpr) -> tuple[Var, PrimExpr]:
    match source:
        case Var():
            return source, value
        case tir.Sub(a=Var() as var, b=start):
            return var, value + start
        case _:
            raise MisuseError(f"an iterator over `{source}` has no variable", about=source)


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
            value = divided.outer * scale + index.base
            outer = IterMark(value, self.times(divided.outer_extent, scale))
            return [outer, IterMark(divided.inner * scale, one)]
        value = divided.inner * scale + index.base
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
        conditions = [value < mark.extent]
        if not self.analyzer.can_prove(value >= 0):
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
                inner.append(operand.inner * scale)
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
            terms.append(operand.outer * self.exact_quotient(scale, border))
        return _total(terms, source.dtype)


def _total(terms: Sequence[PrimExpr], dtype: str) -> PrimExpr:
    total: PrimExpr | None = None
    for term in terms:
        total = term if total is None else total + term
    return ops.const(0, dtype) if total is None else total
