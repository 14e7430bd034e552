"""Index expressions read as sums of iterators: split, fused, padded and bounded."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from itertools import permutations
from types import NoneType
from typing import ClassVar, Self, TypeVar

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.algebra import folding, residue
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import postorder, walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, IntImm, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.ops import is_const
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass


class IterMapLevel(IntEnum):
    """The requirement on a map of iterators: bijective, surjective, or none."""

    Bijective = 0
    Surjective = 1
    NoCheck = 3

    @staticmethod
    def from_str(name: str) -> IterMapLevel:
        """The level `name`, in any case. Errors: MisuseError (also ValueError) if there is none."""
        levels = {level.name.lower(): level for level in IterMapLevel}
        result = levels.get(str(name).lower())
        if result is None:
            raise MisuseError(f"expected a level, found {name!r}; there are {', '.join(levels)}")
        return result


class IterMapExpr(PrimExpr):
    """Base of iterators, and of their splits and fusions."""

    __slots__ = ()


class IterMark(IterMapExpr):
    """An iterator: `source`, an expression or a sum of other iterators, runs from 0 to `extent`."""

    __slots__ = ("extent", "source")
    __match_args__ = ("source", "extent")
    _fields: ClassVar[tuple[str, ...]] = ("source", "extent")
    source: PrimExpr
    extent: PrimExpr

    def __new__(cls, source: PrimExpr, extent: ExprLike) -> Self:
        """An iterator over `source`."""
        start = ops.convert(source)
        return cls._make(start.dtype, start, ops.cast_to(ops.convert(extent), start.dtype))

    @override
    def __str__(self) -> str:
        return f"IterMark({self.source}, extent={self.extent})"


class IterSplitExpr(IterMapExpr):
    """`floormod(floordiv(source, lower_factor), extent) * scale`: some digits of an iterator."""

    __slots__ = ("extent", "lower_factor", "scale", "source")
    __match_args__ = ("source", "lower_factor", "extent", "scale")
    _fields: ClassVar[tuple[str, ...]] = ("source", "lower_factor", "extent", "scale")
    source: IterMark
    lower_factor: PrimExpr
    extent: PrimExpr
    scale: PrimExpr

    def __new__(
        cls,
        source: IterMark,
        lower_factor: ExprLike = 1,
        extent: ExprLike | None = None,
        scale: ExprLike = 1,
    ) -> Self:
        """Errors: MisuseError (also TypeError) if `source` is not an IterMark."""
        check_type(source, IterMark, "expected an IterMark to split")
        numbers = (lower_factor, source.extent if extent is None else extent, scale)
        fields = (ops.cast_to(ops.convert(n), source.dtype) for n in numbers)
        return cls._make(source.dtype, source, *fields)

    @override
    def __str__(self) -> str:
        return (
            f"IterSplitExpr({self.source}, lower_factor={self.lower_factor}, "
            f"extent={self.extent}, scale={self.scale})"
        )


class IterSumExpr(IterMapExpr):
    """The sum of the `args` and of `base`, in which no iterator occurs."""

    __slots__ = ("args", "base")
    __match_args__ = ("args", "base")
    _fields: ClassVar[tuple[str, ...]] = ("args", "base")
    args: tuple[IterSplitExpr, ...]
    base: PrimExpr

    def __new__(cls, args: Sequence[IterSplitExpr], base: ExprLike = 0) -> Self:
        """Errors: MisuseError (also TypeError) if an arg is not an IterSplitExpr."""
        check_type(args, (list, tuple), "expected a list of splits")
        for arg in args:
            check_type(arg, IterSplitExpr, "expected an IterSplitExpr to add")
        addend = ops.convert(base)
        if args:
            addend = ops.cast_to(addend, args[0].dtype)
        return cls._make(addend.dtype, tuple(args), addend)

    @override
    def __str__(self) -> str:
        return f"IterSumExpr([{', '.join(map(str, self.args))}], {self.base})"


def normalize_iter_map_to_expr(expr: PrimExpr) -> PrimExpr:
    """An iterator, a split or a sum of them in ordinary arithmetic."""
    match expr:
        case IterMark(source=source):
            return normalize_iter_map_to_expr(source)
        case IterSplitExpr(source=mark, lower_factor=factor, extent=extent, scale=scale):
            if is_const(extent, 1) and not is_const(mark.extent, 1):
                return ops.const(0, expr.dtype)
            value = normalize_iter_map_to_expr(mark)
            if not is_const(factor, 1):
                value = value // factor
            if not prove_equal(factor * extent, mark.extent):
                value = value % extent
            return value * scale
        case IterSumExpr(args=args, base=base):
            total: PrimExpr | None = None
            for arg in args:
                value = normalize_iter_map_to_expr(arg)
                total = value if total is None else total + value
            return base if total is None else total + base
        case _:
            return expr


def marks_of(indices: Sequence[IterSumExpr]) -> list[IterMark]:
    """All iterators in these sums, each before the operands that it fuses."""

    def fused(mark: IterMark) -> list[IterMark]:
        parts = mark.source.args if isinstance(mark.source, IterSumExpr) else ()
        return [arg.source for arg in parts][::-1]

    roots = [arg.source for index in indices for arg in index.args]
    return [*postorder(roots[::-1], fused)][::-1]


def analyzer_of(iters: Mapping[Var, Range], known: Analyzer | None = None) -> Analyzer:
    """An Analyzer with the facts that are `known` and the Ranges of the iterators.

    Errors:
        MisuseError: an iterator has no Range.
    """
    check_type(iters, Mapping, "expected a table of Ranges by tir.Var as input_iters")
    check_type(known, (Analyzer, NoneType), "expected an Analyzer of facts that are known")
    analyzer = Analyzer() if known is None else known.clone()
    for var, domain in iters.items():
        if not isinstance(var, Var) or not isinstance(domain, Range):
            raise MisuseError(
                f"expected a Range for each tir.Var in input_iters, "
                f"found {var!r:.60}: {domain!r:.60}",
                about=domain,
            )
        analyzer.bind(var, domain, allow_override=True)
    return analyzer


class Extents:
    """Arithmetic under the facts of `analyzer`."""

    analyzer: Analyzer

    def simple(self, value: PrimExpr) -> PrimExpr:
        """`value` simplified under the bounds of the iterators."""
        return value if isinstance(value, IntImm) else self.analyzer.simplify(value)

    def times(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a * b."""
        return self.simple(a * b)

    def quotient(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a / b, rounded down."""
        return self.simple(a // b)

    def remainder(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The remainder of `quotient`."""
        return self.simple(a % b)

    def divides(self, divisor: PrimExpr, value: PrimExpr) -> bool:
        """True if `value` is known to be a multiple of `divisor`."""
        return not is_const(divisor, 0) and is_const(self.remainder(value, divisor), 0)

    def same(self, a: PrimExpr, b: PrimExpr) -> bool:
        """True if the two are known to be equal."""
        return a is b or self.analyzer.can_prove_equal(a, b)

    def holds(self, condition: PrimExpr) -> bool:
        """True if `condition` is known to hold."""
        return self.analyzer.can_prove(condition)


def absolute(value: PrimExpr) -> PrimExpr:
    """The absolute value of a literal; any other value unchanged."""
    return ops.const(-value.value, value.dtype) if is_negative(value) else value  # type: ignore[attr-defined]


def is_negative(value: PrimExpr) -> bool:
    """True if `value` is a negative literal."""
    return isinstance(value, IntImm) and value.value < 0


def size_of(value: PrimExpr) -> float:
    """The absolute value of a literal; infinity for anything else."""
    return abs(value.value) if isinstance(value, IntImm) else math.inf


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Padded:
    """An iterator padded at its ends to a `multiple`, and the stretch of its original values."""

    mark: IterMark
    begin: PrimExpr
    end: PrimExpr
    multiple: PrimExpr

    def is_padding(self, value: PrimExpr) -> PrimExpr:
        """True if a value of the iterator is padding."""
        after = value >= self.end
        return after if is_const(self.begin, 0) else ops.any_of(value < self.begin, after)

    def sides(self, value: PrimExpr, simplify: Callable[[PrimExpr], PrimExpr]) -> list[PrimExpr]:
        """The conditions on which a value is padding, by its quotient and remainder.

        Only the first multiple has padding before the values, and only the last one after them.
        """
        high = simplify(value // self.multiple)
        low = simplify(value % self.multiple)
        whole, rest = (simplify(f(self.end, self.multiple)) for f in (ops.floordiv, ops.floormod))
        last_only = is_const(simplify(self.multiple - rest), 1)
        before = ops.all_of(ops.compare(tir.EQ, high, 0), low < self.begin)
        after = ops.compare(tir.EQ if last_only else tir.GE, low, rest)
        after = ops.all_of(ops.compare(tir.EQ, high, whole), after)
        return [
            side for side, count in ((before, self.begin), (after, rest)) if not is_const(count, 0)
        ]


class RefusedError(Exception):
    """The indices are not such a map; the message says why."""


class RetryError(Exception):
    """The padding of an iterator changed, so that all indices must be read again."""


@dataclass(slots=True)
class Sum:
    """Splits of scale 1, each with its factor, and an addend without iterators."""

    terms: dict[IterSplitExpr, PrimExpr]
    base: PrimExpr

    def expr(self) -> IterSumExpr:
        """This sum as a node."""
        return IterSumExpr([_scaled(split, s) for split, s in self.terms.items()], self.base)


@dataclass(frozen=True, slots=True)
class Constrained:
    """A condition on a sum of splits times their `scales`, which is `mark` less `offset`."""

    scales: Mapping[IterSplitExpr, PrimExpr]
    mark: IterMark
    offset: PrimExpr


def _scaled(split: IterSplitExpr, scale: PrimExpr) -> IterSplitExpr:
    return IterSplitExpr(split.source, split.lower_factor, split.extent, scale)


@dataclass
class Reader(Extents):
    """Reads expressions over iterators; `pads`, which outlives it, has the divisors to pad for.

    Digits are `whole` if an iterator is padded even where it is below its divisor.
    """

    iters: Mapping[Var, Range]
    level: IterMapLevel
    simplify_trivial: bool
    pads: dict[IterSplitExpr, list[tuple[PrimExpr, PrimExpr]]]
    known: Analyzer | None = None
    whole: bool = False
    padded: dict[IterSplitExpr, Padded] = field(default_factory=dict)
    constrained: list[Constrained] = field(default_factory=list)
    leaves: dict[Var, IterMark] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.analyzer = analyzer_of(self.iters, self.known)
        for var, domain in self.iters.items():
            if mentions(domain.min, self.iters) or mentions(domain.extent, self.iters):
                raise RefusedError(f"the range of {var.name} depends on other iterators")
            if not is_const(domain.extent, 1) or not self.simplify_trivial:
                start = ops.cast_to(domain.min, var.dtype)
                self.leaves[var] = IterMark(var - start, domain.extent)

    # --- sums

    def add(self, a: Sum, b: Sum, sign: int = 1) -> Sum:
        """a + sign * b."""
        terms = dict(a.terms)
        for split, scale in b.terms.items():
            step = scale * sign
            terms[split] = self.simple(terms[split] + step) if split in terms else step
        base = self.simple(a.base + ops.mul(b.base, sign))
        return self.tidy({s: k for s, k in terms.items() if not is_const(k, 0)}, base)

    def multiply(self, total: Sum, factor: PrimExpr) -> Sum:
        """`total` times a factor without iterators."""
        terms = {split: self.times(scale, factor) for split, scale in total.terms.items()}
        nonzero = {s: k for s, k in terms.items() if not is_const(k, 0)}
        return Sum(nonzero, self.times(total.base, factor))

    # --- from expressions to sums

    def index(self, expr: PrimExpr) -> IterSumExpr:
        """An index as one split, shifted and scaled."""
        total = self.read(expr)
        if len(total.terms) < 2:
            return total.expr()
        split, scale, base = self.fused(total)
        return IterSumExpr([_scaled(split, scale)], base)

    def read(self, expr: PrimExpr) -> Sum:
        """An expression as a sum of splits."""
        if not mentions(expr, self.iters):
            return Sum({}, self.simple(expr))
        match expr:
            case Var():
                start = ops.cast_to(self.iters[expr].min, expr.dtype)
                mark = self.leaves.get(expr)
                terms = {} if mark is None else {IterSplitExpr(mark): ops.const(1, expr.dtype)}
                return self.tidy(terms, self.simple(start))
            case tir.Add(a=a, b=b):
                return self.add(self.read(a), self.read(b))
            case tir.Sub(a=a, b=b):
                return self.add(self.read(a), self.read(b), -1)
            case tir.Mul(a=a, b=b):
                left, right = self.read(a), self.read(b)
                if left.terms and right.terms:
                    raise RefusedError(f"`{expr}` multiplies iterators")
                return (
                    self.multiply(left, right.base)
                    if left.terms
                    else self.multiply(right, left.base)
                )
            case tir.FloorDiv(a=a, b=b) | tir.FloorMod(a=a, b=b):
                return self.divided(expr, self.read(a), self.read(b))
            case tir.Div(a=a, b=b) | tir.Mod(a=a, b=b) if self.is_natural(a):
                return self.divided(expr, self.read(a), self.read(b))
            case _:
                raise RefusedError(f"`{expr}` is not a sum, quotient or remainder of iterators")

    def is_natural(self, value: PrimExpr) -> bool:
        """True if `value` is known not to be negative."""
        return self.holds(value >= 0)

    def tidy(self, terms: dict[IterSplitExpr, PrimExpr], base: PrimExpr) -> Sum:
        """Replace each constrained sum by one iterator, and join adjacent digits."""
        lifted = self.lifted(terms)
        total = Sum({new: terms[old] for old, new in zip(terms, lifted, strict=True)}, base)
        for constraint in self.constrained:
            total = self.under(constraint, total)
        joined = True
        while joined:
            joined = False
            for low, high in _pairs(total.terms):
                scale = total.terms[low]
                if (
                    low.source is high.source
                    and self.same(high.lower_factor, low.lower_factor * low.extent)
                    and self.same(total.terms[high], scale * low.extent)
                ):
                    extent = self.times(low.extent, high.extent)
                    del total.terms[low], total.terms[high]
                    split = IterSplitExpr(low.source, low.lower_factor, extent)
                    return self.add(total, Sum({split: scale}, ops.const(0, base.dtype)))
        return total

    def lifted(self, splits: Iterable[IterSplitExpr]) -> list[IterSplitExpr]:
        """Splits of an iterator that another split fuses with others, as digits of the fusion."""
        every = list(splits)
        has_fusions = any(isinstance(split.source.source, IterSumExpr) for split in every)
        if not has_fusions or self.level == IterMapLevel.NoCheck:  # these skip values
            return every
        fusions = {
            mark: mark.source
            for mark in marks_of([IterSumExpr(every)])
            if isinstance(mark.source, IterSumExpr) and len(mark.source.args) > 1
            if is_const(mark.source.base, 0)  # as of a fusion of iterators that run forwards
        }
        quotients = {
            mark: (whole, divisor)
            for (mark, total), (whole, of_whole) in permutations(fusions.items(), 2)
            if (divisor := self.divisor_of(total.args, of_whole.args, fusions)) is not None
        }
        parts = {
            part.source: (part, mark)
            for mark, total in fusions.items()
            if mark not in quotients
            for part in total.args
        }
        new = [self.lift(split, parts, quotients) for split in every]
        return new if len(set(new)) == len(every) else every

    def divisor_of(
        self,
        args: Sequence[IterSplitExpr],
        whole: Sequence[IterSplitExpr],
        fusions: Mapping[IterMark, IterSumExpr],
    ) -> PrimExpr | None:
        """d where a sum is, or is part of, another one, `whole`, divided by d; None if it is not.

        The finest parts of `whole` may be one of the `fusions`.
        """
        if _ends_with(whole, args):
            return ops.const(1, args[0].dtype)
        for mark, total in fusions.items():
            if total.args is not args and _ends_with(whole, total.args):
                finest = IterSplitExpr(mark)
                divisor = self.divisor_of(args, [*whole[: -len(total.args)], finest], {})
                if divisor is not None:
                    return divisor
        *coarser, finest = args
        if len(whole) <= len(coarser) or finest.source is not whole[len(coarser)].source:
            return None
        part, one = whole[len(coarser)], ops.const(1, finest.dtype)
        step = self.quotient(finest.lower_factor, part.lower_factor)
        divisor = self.times(step, part.scale)
        same = (
            self.divides(part.lower_factor, finest.lower_factor)
            and self.same(self.times(step, finest.extent), part.extent)
            and all(
                _scaled(low, one) is _scaled(high, one)
                and self.same(self.times(low.scale, divisor), high.scale)
                for low, high in zip(coarser, whole, strict=False)
            )
        )
        return divisor if same else None

    def lift(
        self,
        split: IterSplitExpr,
        parts: Mapping[IterMark, tuple[IterSplitExpr, IterMark]],
        quotients: Mapping[IterMark, tuple[IterMark, PrimExpr]],
    ) -> IterSplitExpr:
        """A split as digits of the fusion of which its iterator is one of the `parts`."""
        if split.source in quotients:
            whole, divisor = quotients[split.source]
            covered = self.times(split.lower_factor, split.extent)
            if not self.divides(covered, split.source.extent):
                return split
            factor = self.times(split.lower_factor, divisor)
            split = IterSplitExpr(whole, factor, split.extent, split.scale)
            return self.lift(split, parts, quotients)
        if split.source not in parts:
            return split
        part, mark = parts[split.source]
        step = self.quotient(split.lower_factor, part.lower_factor)
        if not (
            self.divides(part.lower_factor, split.lower_factor)
            and self.divides(self.times(step, split.extent), part.extent)
        ):
            return split
        factor = self.times(step, part.scale)
        lifted = IterSplitExpr(mark, factor, split.extent, split.scale)
        return self.lift(lifted, parts, quotients)

    def under(self, constraint: Constrained, total: Sum) -> Sum:
        """`total` with the sum that a condition constrains as an iterator of its own."""
        if not all(split in total.terms for split in constraint.scales):
            return total
        factors = [
            self.quotient(total.terms[split], scale) for split, scale in constraint.scales.items()
        ]
        factor = factors[0]
        for split, scale in constraint.scales.items():
            if not self.same(self.times(scale, factor), total.terms[split]):
                return total
        others = {s: k for s, k in total.terms.items() if s not in constraint.scales}
        base = self.simple(total.base - constraint.offset * factor)
        return Sum({**others, IterSplitExpr(constraint.mark): factor}, base)

    # --- fusing and splitting

    def fused(self, total: Sum) -> tuple[IterSplitExpr, PrimExpr, PrimExpr]:
        """A sum as one split, its positive factor, and an addend."""
        every = list(total.terms.items())
        items = [(s, k) for s, k in every if not is_const(s.extent, 1)]
        if not items:
            items = every[:1]  # every split is 0
        if not self.simplify_trivial and len(items) < len(every):
            fused = self.fused_items(total, every)
            if fused is not None:
                return fused
        fused = self.fused_items(total, items)
        if fused is not None:
            return fused
        text = " + ".join(f"({normalize_iter_map_to_expr(s)}) * {k}" for s, k in items)
        raise RefusedError(f"`{text}` skips values, or takes a value several times")

    def fused_items(
        self, total: Sum, items: list[tuple[IterSplitExpr, PrimExpr]]
    ) -> tuple[IterSplitExpr, PrimExpr, PrimExpr] | None:
        """Some splits of a sum as one split, its positive factor, and an addend."""
        zero = ops.const(0, total.base.dtype)
        finest = sorted(items, key=lambda i: (size_of(i[1]), not is_const(i[0].extent, 1)))
        for first, scale in finest:
            chain = self.chain(items, first)
            if chain is None:
                continue
            unit = absolute(scale)
            if len(chain) == 1 and unit is scale:
                return first, scale, total.base
            args, shift, extent = [], zero, zero
            for split, factor in chain:
                negative = is_negative(total.terms[split])
                args.append(_scaled(split, factor * -1 if negative else factor))
                if negative:
                    last = split.extent - 1
                    shift = self.simple(shift + factor * last)
                extent = self.times(factor, split.extent)
            mark = IterMark(IterSumExpr(args[::-1], shift), extent)
            base = self.simple(total.base - shift * unit)
            return IterSplitExpr(mark), unit, base
        return None

    def chain(
        self, items: list[tuple[IterSplitExpr, PrimExpr]], first: IterSplitExpr
    ) -> list[tuple[IterSplitExpr, PrimExpr]] | None:
        """The splits from `first`, the finest, to the coarsest, with their relative scales."""
        scales = {split: absolute(scale) for split, scale in items}
        unit = scales.pop(first)
        chain: list[tuple[IterSplitExpr, PrimExpr]] = [(first, ops.const(1, unit.dtype))]
        factor: PrimExpr = self.simple(first.extent)
        while scales:
            expected = self.times(unit, factor)
            fitting = [s for s, k in scales.items() if self.same(k, expected)]
            units = (s for s in fitting if is_const(s.extent, 1))
            coarser = next(units, fitting[0] if fitting else None)
            if coarser is None and self.level == IterMapLevel.NoCheck:
                coarser, factor = self.beyond(scales, unit, expected) or (None, factor)
            if coarser is None:
                return None
            chain.append((coarser, factor))
            factor = self.times(factor, coarser.extent)
            del scales[coarser]
        return chain

    def beyond(
        self, scales: Mapping[IterSplitExpr, PrimExpr], unit: PrimExpr, least: PrimExpr
    ) -> tuple[IterSplitExpr, PrimExpr] | None:
        """The split with the next scale that leaves a gap, and its relative scale."""
        larger = [
            (k.value, s)
            for s, k in scales.items()
            if isinstance(k, IntImm)
            and isinstance(least, IntImm)
            and isinstance(unit, IntImm)
            and k.value > least.value
            and k.value % unit.value == 0
        ]
        if not larger:
            return None
        _, split = min(larger, key=lambda item: item[0])
        return split, self.quotient(scales[split], unit)

    def divided(self, expr: PrimExpr, total: Sum, by: Sum) -> Sum:
        """The quotient or the remainder of a sum."""
        divisor = by.base
        if by.terms or (isinstance(divisor, IntImm) and divisor.value <= 0):
            raise RefusedError(f"`{expr}` does not divide by a positive number")
        is_quotient = isinstance(expr, (tir.FloorDiv, tir.Div))
        multiples = {s: k for s, k in total.terms.items() if self.divides(divisor, k)}
        remaining = Sum({s: k for s, k in total.terms.items() if s not in multiples}, total.base)
        quotients = {s: self.quotient(k, divisor) for s, k in multiples.items()}
        ratio = Sum(quotients, ops.const(0, total.base.dtype))
        if not remaining.terms:
            if is_quotient:
                return self.add(ratio, Sum({}, self.quotient(remaining.base, divisor)))
            return Sum({}, self.remainder(remaining.base, divisor))
        split, scale, base = self.fused(remaining)
        last = base + ops.mul(scale, ops.sub(split.extent, 1))
        if not self.whole and self.is_natural(base) and self.holds(last < divisor):
            return ratio if is_quotient else remaining
        if not self.divides(scale, divisor):
            raise RefusedError(
                f"`{expr}` divides by {divisor}, which is not a multiple of the step {scale}"
            )
        high, low = self.split(
            split, self.quotient(base, scale), self.quotient(divisor, scale), expr
        )
        if is_quotient:
            return self.add(ratio, high)
        return self.add(self.multiply(low, scale), Sum({}, self.remainder(base, scale)))

    def split(
        self, split: IterSplitExpr, shift: PrimExpr, divisor: PrimExpr, expr: PrimExpr
    ) -> tuple[Sum, Sum]:
        """Quotient and remainder of `split + shift` by `divisor`."""
        one, zero = ops.const(1, split.dtype), ops.const(0, split.dtype)
        over = self.remainder(shift, divisor)
        if not self.whole and self.holds(over + split.extent <= divisor):
            return Sum({}, self.quotient(shift, divisor)), Sum({split: one}, over)
        even = is_const(over, 0) and self.divides(divisor, split.extent)
        if even and split not in self.pads:
            mark, step = split.source, split.lower_factor
            high = IterSplitExpr(
                mark, self.times(step, divisor), self.quotient(split.extent, divisor)
            )
            low = IterSplitExpr(mark, step, divisor)
            return Sum({high: one}, self.quotient(shift, divisor)), Sum({low: one}, zero)
        if self.level == IterMapLevel.Bijective:
            raise RefusedError(
                f"`{expr}` divides an iterator of extent {split.extent} by {divisor}, "
                "which leaves a remainder"
            )
        padded = self.pad(split, shift, divisor, expr)
        mark = padded.mark
        high = IterSplitExpr(mark, divisor, self.quotient(mark.extent, divisor))
        offset = self.quotient(shift - padded.begin, divisor)
        return Sum({high: one}, offset), Sum({IterSplitExpr(mark, 1, divisor): one}, zero)

    def pad(
        self, split: IterSplitExpr, shift: PrimExpr, divisor: PrimExpr, expr: PrimExpr
    ) -> Padded:
        """`split` padded for all of its divisors, each after its shift."""
        uses = self.pads.setdefault(split, [])
        if (shift, divisor) not in uses:
            uses.append((shift, divisor))
            raise RetryError
        if split in self.padded:
            return self.padded[split]
        common = _common(uses)
        if common is None:
            raise RefusedError(
                f"`{expr}` and others pad an iterator of extent {split.extent} in different ways"
            )
        begin, multiple = common
        end = self.simple(begin + split.extent)
        extent = self.times(self.simple(ops.ceildiv(end, multiple)), multiple)
        mark = IterMark(IterSumExpr([split], begin), extent)
        self.padded[split] = Padded(mark, begin, end, multiple)
        return self.padded[split]

    # --- conditions

    def assume(self, condition: PrimExpr) -> None:
        """Read a condition: comparisons of sums, all of which hold.

        Conditions on fewer iterators come first, as those on more may contain them. One that
        mentions no iterator is assumed to hold.
        """
        groups: dict[frozenset[Node], list[PrimExpr]] = {}
        for conjunct in folding.conjuncts(condition):
            if not self.holds(conjunct):
                used = frozenset(node for node in walk(conjunct) if node in self.leaves)
                if not used and not isinstance(self.simple(conjunct), IntImm):
                    continue
                groups.setdefault(used, []).append(conjunct)
        for used in sorted(groups, key=len):
            self.assume_together(groups[used])

    def assume_together(self, comparisons: Iterable[PrimExpr]) -> None:
        """Read comparisons of sums of the same iterators."""
        limits: dict[IterSplitExpr, list[PrimExpr]] = {}
        for comparison in comparisons:
            total, low, high = self.limits(comparison)
            split, scale, base = self.fused(total)
            ends = limits.setdefault(split, [ops.const(0, split.dtype), split.extent])
            if low is not None:
                least = self.simple(ops.ceildiv(low - base, scale))
                ends[0] = self.simple(ops.maximum(ends[0], least))
            if high is not None:
                most = self.simple(ops.ceildiv(high - base, scale))
                ends[1] = self.simple(ops.minimum(ends[1], most))
        for split, (begin, end) in limits.items():
            extent = self.simple(end - begin)
            if isinstance(extent, IntImm) and extent.value <= 0:
                raise RefusedError("the predicate holds for no value of the iterators")
            shifted = IterSumExpr([split], self.simple(begin * -1))
            mark = IterMark(shifted, extent)
            unit: dict[IterSplitExpr, PrimExpr] = {split: ops.const(1, split.dtype)}
            self.constrained.append(Constrained(unit, mark, shifted.base))
            source = split.source.source
            if isinstance(source, IterSumExpr) and IterSplitExpr(split.source) is split:
                flat = {_scaled(arg, ops.const(1, arg.dtype)): arg.scale for arg in source.args}
                offset = self.simple(shifted.base + source.base)
                self.constrained.append(Constrained(flat, mark, offset))

    def limits(self, comparison: PrimExpr) -> tuple[Sum, PrimExpr | None, PrimExpr | None]:
        """A comparison as a sum of iterators that is at least one value, or below another."""
        low: int | None
        high: int | None
        match comparison:
            case tir.LT(a=a, b=b):
                sides, low, high = (a, b), None, 0
            case tir.LE(a=a, b=b):
                sides, low, high = (a, b), None, 1
            case tir.GT(a=a, b=b):
                sides, low, high = (a, b), 1, None
            case tir.GE(a=a, b=b):
                sides, low, high = (a, b), 0, None
            case tir.EQ(a=a, b=b):
                sides, low, high = (a, b), 0, 1
            case _:
                raise RefusedError(f"the predicate `{comparison}` is not a comparison of iterators")
        total = self.add(self.read(sides[0]), self.read(sides[1]), -1)
        if not total.terms:
            raise RefusedError(f"the predicate `{comparison}` is neither proved nor disproved")
        dtype = total.base.dtype
        least, beyond = (None if e is None else ops.const(e, dtype) for e in (low, high))
        return total, least, beyond


class LooseReader(Reader):
    """Reads anything that is not a sum of iterators as an addend without iterators."""

    @override
    def read(self, expr: PrimExpr) -> Sum:
        if isinstance(expr, (tir.Add, tir.Sub)):
            return super().read(expr)
        try:
            total = super().read(expr)
        except RefusedError:
            return Sum({}, self.simple(expr))
        if any(self.varies(split, scale) for split, scale in total.terms.items()):
            return Sum({}, self.simple(expr))
        return total

    def varies(self, split: IterSplitExpr, scale: PrimExpr) -> bool:
        """True if the digits of an iterator depend on others, as in `(x + max(y, a)) // 4`."""
        source = split.source.source
        shift = [source.base] if isinstance(source, IterSumExpr) else []
        sizes = (scale, split.lower_factor, split.extent, split.source.extent)
        return any(mentions(part, self.iters) for part in (*sizes, *shift))


def _ends_with(whole: Sequence[IterSplitExpr], args: Sequence[IterSplitExpr]) -> bool:
    """True if the finest parts of a sum are `args`."""
    finest = whole[-len(args) :]
    return len(finest) < len(whole) and all(map(operator.is_, finest, args))


def _pairs(terms: Iterable[IterSplitExpr]) -> Iterator[tuple[IterSplitExpr, IterSplitExpr]]:
    splits = list(terms)
    for low in splits:
        for high in splits:
            if low is not high:
                yield low, high


def _common(uses: list[tuple[PrimExpr, PrimExpr]]) -> tuple[PrimExpr, PrimExpr] | None:
    """The shift of an iterator, and the divisor of its padded extent."""
    shift, divisor = uses[0]
    if len(uses) == 1:
        return shift % divisor, divisor
    numbers = [
        (s.value, d.value) for s, d in uses if isinstance(s, IntImm) and isinstance(d, IntImm)
    ]
    if len(numbers) != len(uses):
        return None
    common = residue.EVERYTHING
    for s, d in numbers:
        if residue.are_disjoint(common, (d, s)):
            return None
        common = residue.meet(common, (d, s))
    multiple, begin = common
    if multiple > ops.int_range(divisor.dtype)[1]:
        return None
    return ops.const(begin, shift.dtype), ops.const(multiple, divisor.dtype)


def with_padding(
    iters: Mapping[Var, Range],
    level: IterMapLevel,
    simplify_trivial: bool,
    work: Callable[[Reader], T],
    known: Analyzer | None = None,
    *,
    whole: bool = False,
    reader_type: type[Reader] = Reader,
) -> T:
    """The result of `work` with a Reader that has the padding of every iterator."""
    pads: dict[IterSplitExpr, list[tuple[PrimExpr, PrimExpr]]] = {}
    while True:
        try:
            return work(reader_type(iters, level, simplify_trivial, pads, known, whole))
        except RetryError:
            continue
