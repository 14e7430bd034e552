"""The atoms and terms of polynomials, and polynomials written as readable expressions.

Atoms are interned as all PrimExprs are, so that equal values share one atom, and stay inside this
package: what is written has FloorDiv, FloorMod, Div, Mod, Min and Max instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeAlias

from relaxpy.ir.arith.algebra import poly
from relaxpy.ir.arith.algebra.poly import ONE, Monomial, Poly, sorted_terms
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import dataclass

Terms: TypeAlias = tuple[tuple[Monomial, int], ...]


class Quotient(tir.PrimExpr):
    """num / den, rounded down or (`floor` False) toward zero."""

    __slots__ = ("den", "floor", "num")
    _fields = ("num", "den", "floor")
    num: Terms
    den: Terms
    floor: bool


class Positive(tir.PrimExpr):
    """max(inner, 0)."""

    __slots__ = ("inner",)
    _fields = ("inner",)
    inner: Terms


def quotient_atom(num: Poly, den: Poly, *, floor: bool) -> Quotient:
    """The atom num / den."""
    return Quotient._make(INT64, tuple(sorted_terms(num)), tuple(sorted_terms(den)), floor)


def positive_atom(inner: Poly) -> Positive:
    """The atom max(inner, 0)."""
    return Positive._make(INT64, tuple(sorted_terms(inner)))


@lru_cache(maxsize=1 << 10)
def _weight(atom: tir.PrimExpr) -> int:
    match atom:
        case Quotient(num=num, den=den):
            return len(num) + len(den) + weight(dict(num)) + weight(dict(den))
        case Positive(inner=inner):
            return len(inner) + weight(dict(inner))
        case _:
            return 0


def weight(p: Poly) -> int:
    """The number of terms inside the atoms of `p`, at every depth."""
    return sum(_weight(factor) for monomial in p for factor in monomial)


def divisor(quotient: Quotient) -> int | None:
    """The divisor where it is a literal."""
    den = quotient.den
    return den[0][1] if len(den) == 1 and den[0][0] == ONE else None


def without_squares(p: Poly) -> Poly:
    """p with d * max(d, 0) for max(d, 0) * max(d, 0)."""
    out: dict[Monomial, int] = {}
    for monomial, factor in p.items():
        twice = next(
            (
                atom
                for position, atom in enumerate(monomial[1:])
                if isinstance(atom, Positive) and monomial[position] is atom
            ),
            None,
        )
        if twice is None:
            poly.accumulate(out, {monomial: factor})
        else:
            rest = poly.quotient(monomial, (twice,))
            assert rest is not None
            lower = poly.multiply({rest: factor}, dict(twice.inner))
            poly.accumulate(out, without_squares(lower))
    return out


@dataclass(frozen=True, slots=True)
class Remainder:
    """`coefficient * cofactor * (num % den)`; `unit` is its polynomial for the coefficient 1."""

    coefficient: int
    cofactor: Monomial
    num: Poly
    den: Poly
    floor: bool
    unit: Poly

    @property
    def modulus(self) -> int | None:
        """The divisor, where this is exactly a FloorMod by a literal."""
        return poly.constant_of(self.den) if self.floor and not self.cofactor else None


@dataclass(frozen=True, slots=True)
class Extremum:
    """`coefficient` times the minimum or maximum of two polynomials."""

    coefficient: int
    kind: type[tir.BinaryOpExpr]
    a: Poly
    b: Poly
    unit: Poly


@dataclass(frozen=True, slots=True)
class Product:
    """`coefficient` times a product of atoms."""

    coefficient: int
    monomial: Monomial

    @property
    def unit(self) -> Poly:
        """The product alone."""
        return {self.monomial: 1}

    @property
    def modulus(self) -> None:
        """None: this is not a remainder."""


Term = Remainder | Extremum | Product


def has_only_leaves(p: Poly) -> bool:
    """True if every factor is a leaf, so that no terms form a group."""
    return not any(isinstance(f, (Quotient, Positive)) for monomial in p for f in monomial)


def grouped(p: Poly) -> list[Term]:
    """Group the terms of p that form a remainder or an extremum; others stay single."""
    if has_only_leaves(p):
        return [Product(c, m) for m, c in p.items()]
    groups: list[Term] = []
    remaining = dict(p)
    extrema = [m for m in p if len(m) == 1 and isinstance(m[0], Positive)]
    if len(extrema) > 1:
        # An extremum that contains others comes first, as it uses some of their terms.
        extrema.sort(key=lambda m: (-weight({m: 1}), poly.monomial_key(m)))
    for monomial in extrema:
        [atom] = monomial
        if monomial in remaining and isinstance(atom, Positive):
            group = _extremum(remaining, atom, remaining[monomial])
            poly.accumulate(remaining, group.unit, -group.coefficient)
            groups.append(group)
    return [*groups, *remainders(remaining)]


def remainders(p: Poly) -> list[Remainder | Product]:
    """Group the terms of p that form a remainder; others stay single."""
    groups: list[Remainder | Product] = []
    remaining = dict(p)
    quotients: dict[Quotient, list[Monomial]] = {}
    for monomial in p:
        for factor in dict.fromkeys(monomial):
            if isinstance(factor, Quotient):
                quotients.setdefault(factor, []).append(monomial)
    for candidate in sorted(quotients, key=poly.atom_key):
        for monomial in quotients[candidate]:
            group = _remainder(remaining, monomial, candidate, list(quotients))
            if group is not None:
                poly.accumulate(remaining, group.unit, -group.coefficient)
                groups.append(group)
    return [*groups, *(Product(c, m) for m, c in remaining.items())]


def _remainder(
    remaining: Poly, monomial: Monomial, candidate: Quotient, others: list[Quotient]
) -> Remainder | None:
    """The remainder that has the term -den * cofactor * candidate of `remaining`."""
    if monomial not in remaining:
        return None
    for num, den in _dividends(candidate, others):
        head, factor = poly.leading(den)
        cofactor = poly.quotient(monomial, (candidate, *head))
        times, odd = divmod(-remaining[monomial], factor)
        if cofactor is None or odd:
            continue
        subtracted = poly.multiply(den, poly.multiply({cofactor: 1}, poly.atom(candidate)))
        value = poly.multiply({cofactor: 1}, num)
        exact = all(remaining.get(m, 0) == -times * c for m, c in subtracted.items())
        if exact and _contains(remaining, value, times):
            unit = poly.add(value, subtracted, -1)
            return Remainder(times, cofactor, num, den, candidate.floor, unit)
    return None


def _dividends(candidate: Quotient, others: list[Quotient]) -> Iterator[tuple[Poly, Poly]]:
    """The dividends and divisors of `candidate`: num/(a*b) is also (num/a)/b."""
    num = dict(candidate.num)
    yield num, dict(candidate.den)
    by = divisor(candidate)
    for other in others:
        step = divisor(other)
        if by is None or step is None or other is candidate or by % step:
            continue
        difference = poly.constant_of(poly.add(num, dict(other.num), -1))
        same_rounding = other.floor == candidate.floor and (other.floor or difference == 0)
        if difference is not None and difference % step == 0 and same_rounding and by != step:
            shifted = poly.add(poly.atom(other), poly.constant(difference // step))
            yield shifted, poly.constant(by // step)


def _contains(remaining: Poly, terms: Poly, times: int) -> bool:
    """True if `times` times `terms` can be subtracted from `remaining` without changing a sign."""
    for monomial, coefficient in terms.items():
        if monomial != ONE:
            have, need = remaining.get(monomial, 0), times * coefficient
            if have * need <= 0 or abs(have) < abs(need):
                return False
    return True


def _extremum(remaining: Poly, atom: Positive, times: int) -> Extremum:
    """times * max(p - n, 0) as an extremum of p and n, together with their terms in `remaining`.

    Rule:
        max(p, n) = n + max(p - n, 0) and min(p, n) = p - max(p - n, 0); the constant of `remaining`
        moves inside where `times` divides it.
    """
    inner = dict(atom.inner)
    shift = inner.pop(ONE, 0)
    p, n = _sides(atom)
    size, rest = abs(times), remaining.get(ONE, 0)
    sign = 1 if times > 0 else -1
    moved = rest // size if rest % size == 0 else 0
    positive = poly.atom(atom)
    if n and _contains(remaining, inner, -times):
        offset = sign * moved + shift
        turned = poly.add(poly.scaled(inner, -1), poly.constant(offset - shift))
        unit = poly.add(poly.add(positive, inner, -1), poly.constant(offset - shift))
        return Extremum(times, tir.Max, turned, poly.constant(offset), unit)
    if sign > 0 and n and _contains(remaining, n, size):
        return _maximum(p, n, shift, moved, positive, size)
    if _contains(remaining, p, -times):
        offset = -sign * moved
        a, b = poly.add(p, poly.constant(offset)), poly.add(n, poly.constant(offset - shift))
        return Extremum(-times, tir.Min, a, b, poly.add(a, positive, -1))
    if sign < 0 and n and _contains(remaining, n, times):
        return _maximum(p, n, shift, -moved, positive, times)
    if size == 1:
        wrapped = _with_rest_inside(remaining, atom, sign)
        if wrapped is not None:
            return wrapped
    return _maximum(inner, poly.ZERO, shift, sign * moved, positive, times)


@lru_cache(maxsize=1 << 10)
def _sides(atom: Positive) -> tuple[Poly, Poly]:
    """The operand of `atom` as p - n: its positive terms p, and its negative terms negated, n.

    They have no constants: that of a dividend is on both sides.
    """
    p: dict[Monomial, int] = {}
    n: dict[Monomial, int] = {}
    for term in grouped({m: c for m, c in atom.inner if m}):
        side, sign = (p, 1) if term.coefficient > 0 else (n, -1)
        poly.accumulate(side, term.unit, sign * term.coefficient)
    for side in p, n:
        side.pop(ONE, None)
    return p, n


def _with_rest_inside(remaining: Poly, atom: Positive, sign: int) -> Extremum | None:
    """r + max(d, 0) = max(r + d, r) and r - max(d, 0) = min(r - d, r), where that is shorter."""
    rest = {m: c for m, c in remaining.items() if m != (atom,)}
    other = poly.add(rest, dict(atom.inner), sign)
    if not rest or len(other) >= len(atom.inner) or not has_only_leaves(rest):
        return None
    kind = tir.Max if sign > 0 else tir.Min
    return Extremum(1, kind, other, rest, poly.add(rest, {(atom,): sign}))


def _maximum(p: Poly, n: Poly, shift: int, moved: int, positive: Poly, times: int) -> Extremum:
    a, b = poly.add(p, poly.constant(shift + moved)), poly.add(n, poly.constant(moved))
    return Extremum(times, tir.Max, a, b, poly.add(b, positive))


class OutOfRangeError(Exception):
    """A value does not fit the datatype: the expression is left unchanged."""


Fits: TypeAlias = Callable[[Poly, DataType], bool]
"""True if an expression of a polynomial in a datatype has the value of the polynomial."""


def expression(
    p: Poly, dtype: DataType, fits: Fits | None = None, *, exact: bool = True
) -> tir.PrimExpr | None:
    """p as an expression of `dtype`; None where a literal is too large, or a sum does not fit.

    As in TVM, positive terms precede negative ones, and a constant is the last one of its sign.
    Without `fits`, no sum overflows. Unless `exact`, p itself may, and wraps around.
    """
    try:
        writer = _Writer(dtype, fits)
        return writer.operand(p) if exact else writer.sum(p)
    except OutOfRangeError:
        return None


class _Writer:
    """Writes polynomials in one datatype."""

    def __init__(self, dtype: DataType, fits: Fits | None) -> None:
        self.dtype = dtype
        self.fits = fits
        self.range = ops.int_range(dtype)

    def operand(self, p: Poly) -> tir.PrimExpr:
        """The sum of all terms where that must not wrap around, as in a quotient."""
        if self.fits is not None and not self.fits(p, self.dtype):
            raise OutOfRangeError
        return self.sum(p)

    def literal(self, value: int) -> tir.PrimExpr:
        if self.dtype.family == "uint":
            value = ops.wrap_int(value, self.dtype)
        if not self.range[0] <= value <= self.range[1]:
            raise OutOfRangeError
        return tir.IntImm(self.dtype, value)

    def sum(self, p: Poly) -> tir.PrimExpr:
        """The sum of all terms, the positive ones first, so that no minus sign leads."""
        groups = grouped(p)
        if all(group.coefficient < 0 for group in groups):
            groups = [_negated(group) for group in groups]
        terms = [(self.factors(group), group.coefficient) for group in groups]
        terms.sort(key=lambda term: (term[1] < 0, poly.monomial_key(term[0])))
        total: tir.PrimExpr | None = None
        for factors, coefficient in terms:
            if total is None:
                total = self.term(factors, coefficient)
            elif coefficient > 0:
                total = tir.Add(total, self.term(factors, coefficient))
            else:
                total = tir.Sub(total, self.term(factors, -coefficient))
        return self.literal(0) if total is None else total

    def term(self, factors: Monomial, coefficient: int) -> tir.PrimExpr:
        """coefficient * factors, the literal last."""
        if not factors:
            return self.literal(coefficient)
        product = self.typed(factors[0])
        for factor in factors[1:]:
            product = tir.Mul(product, self.typed(factor))
        if coefficient == 1:
            return product
        return tir.Mul(product, self.literal(coefficient))

    def typed(self, factor: tir.PrimExpr) -> tir.PrimExpr:
        """A factor in the datatype of the sum."""
        return factor if factor.dtype == self.dtype else ops.cast_to(factor, self.dtype)

    def factors(self, term: Term) -> Monomial:
        """The factors of a term, as expressions."""
        match term:
            case Product(monomial=monomial):
                return tuple(self.atom(f) for f in monomial)
            case Remainder(cofactor=cofactor, num=num, den=den, floor=floor):
                factors = (self.atom(f) for f in cofactor)
                digit = self.digit(num, den, floor=floor)
                if digit is not None:
                    return (*factors, digit)
                kind = tir.FloorMod if floor else tir.Mod
                return (*factors, kind(self.operand(num), self.operand(den)))
            case Extremum(kind=extreme, a=a, b=b):
                return (extreme(self.operand(a), self.operand(b)),)

    def digit(self, num: Poly, den: Poly, *, floor: bool) -> tir.PrimExpr | None:
        """x // c % d, of positive literals c and d, as x % (c * d) // c; None for anything else."""
        match list(num.items()):
            case [((Quotient(num=inner, den=step, floor=inner_floor),), 1)] if inner_floor == floor:
                low, size = poly.constant_of(dict(step)), poly.constant_of(den)
                if low is None or size is None or low <= 0 or size <= 0:
                    return None
                if low * size > self.range[1]:
                    return None
                quotient, remainder = (tir.FloorDiv, tir.FloorMod) if floor else (tir.Div, tir.Mod)
                digits = remainder(self.operand(dict(inner)), self.literal(low * size))
                return quotient(digits, self.literal(low))
        return None

    def atom(self, factor: tir.PrimExpr) -> tir.PrimExpr:
        """An atom as an expression of TIR."""
        match factor:
            case Quotient(num=num, den=den, floor=floor):
                kind = tir.FloorDiv if floor else tir.Div
                return kind(self.operand(dict(num)), self.operand(dict(den)))
            case Positive(inner=inner):
                return tir.Max(self.operand(dict(inner)), self.literal(0))
            case _:
                return factor


def _negated(term: Term) -> Term:
    """-max(a, b) as min(-a, -b), so that a sum of such terms begins without a sign."""
    if not isinstance(term, Extremum) or term.coefficient != -1:
        return term
    kind = tir.Min if term.kind is tir.Max else tir.Max
    a, b, unit = (poly.scaled(p, -1) for p in (term.a, term.b, term.unit))
    return Extremum(1, kind, a, b, unit)
