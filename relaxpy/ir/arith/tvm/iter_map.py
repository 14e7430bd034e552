"""Detection of index maps that only split, fuse and shift iterators, and so are invertible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from relaxpy.errors import unexpected
from relaxpy.ir.arith.algebra import folding
from relaxpy.ir.arith.canonical import entry_point
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.extents import analyzer_of, size_of
from relaxpy.ir.arith.tvm.iter_expr import (
    IterMapLevel,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    marks_of,
    normalize_iter_map_to_expr,
)
from relaxpy.ir.arith.tvm.iter_reader import (
    LooseReader,
    Padded,
    Reader,
    RefusedError,
    Sum,
    with_padding,
)
from relaxpy.ir.core.dtype import BOOL
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.ops import is_const
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
        sums = tuple(reader.index(value) for value in values)
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
    if result.errors:
        return [simplify(index) for index in indices]
    return [simplify(normalize_iter_map_to_expr(index)) for index in result.indices]


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
        reader, size = self.reader, ops.sub(padded.end, padded.begin)
        if reader.holds(ops.compare(tir.LE, period, size)):
            return True
        [step, *others] = [split.lower_factor for split in splits]
        after = ops.sub(padded.mark.extent, padded.end)
        return not others and all(
            reader.holds(ops.compare(tir.LT, end, step)) for end in (padded.begin, after)
        )

    @staticmethod
    def text(mark: IterMark) -> PrimExpr:
        return normalize_iter_map_to_expr(mark)
