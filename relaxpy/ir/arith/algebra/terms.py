"""The terms of a polynomial as people write them: quotients grouped into remainders and extrema."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from relaxpy.ir.arith.algebra import poly
from relaxpy.ir.arith.algebra.atoms import Positive, Quotient, divisor, weight
from relaxpy.ir.arith.algebra.poly import ONE, Monomial, Poly
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass


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
    """Return whether every factor is a leaf, so that no terms form a group."""
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
    """The operand of `atom` as p - n: its positive terms p, and its negative terms negated, n."""
    p: dict[Monomial, int] = {}
    n: dict[Monomial, int] = {}
    for term in grouped({m: c for m, c in atom.inner if m}):
        side, sign = (p, 1) if term.coefficient > 0 else (n, -1)
        poly.accumulate(side, term.unit, sign * term.coefficient)
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
