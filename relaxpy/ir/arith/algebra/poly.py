"""Polynomials with integer coefficients over PrimExprs, the form in which terms are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import count
from math import gcd
from typing import TypeAlias

from relaxpy.ir.core.memo import NodeTable
from relaxpy.ir.core.node import Node
from relaxpy.ir.tir import expr as tir

Monomial: TypeAlias = tuple[tir.PrimExpr, ...]
Poly: TypeAlias = Mapping[Monomial, int]
"""Coefficients by monomial, none of them 0; `()` is the monomial of the constant."""

ONE: Monomial = ()
ZERO: Poly = {}
_MOST_TERMS = 256
"""A product of more terms is not expanded: it has one for every choice of a term from each sum."""
_MOST_FACTORS = 256
"""Nor is one of more factors: a square of a square of a square ... doubles them at each step."""
_KEY_PARTS = 256


@lru_cache(maxsize=1 << 10)
def _text_key(node: tir.PrimExpr) -> tuple[str, tuple[int, ...]]:
    """A deterministic string to sort by and the numbers of its variables.

    Variables sort by name, before anything compound. Only the first few hundred nodes count, so
    that the cost does not grow with shared subexpressions.
    """
    numbers: list[int] = []
    tokens: list[str] = []
    stack: list[object] = [node]
    while stack and len(tokens) < _KEY_PARTS:
        match stack.pop():
            case tir.Var(name=name, number=number):
                tokens.append(name)
                numbers.append(number)
            case tir.ConstExpr(value=value):
                tokens.append(f"{value!r:>20}")
            case tir.PrimExpr() as compound:
                tokens.append(f"~{type(compound).__name__}")
                stack += [getattr(compound, name) for name in reversed(compound._fields)]
            case tuple() as items:
                stack += reversed(items)
            case Node() as leaf:
                tokens.append(str(getattr(leaf, "name", "")))
            case value:
                tokens.append(str(value))
    return ",".join(tokens), tuple(numbers)


Key: TypeAlias = tuple[str, tuple[int, ...], int]


_first_seen: NodeTable[int] = NodeTable()
_numbers = count()


def atom_key(atom: tir.PrimExpr) -> Key:
    """The sort key of an atom: its text, then its variables, as names are only hints.

    Atoms that differ in nothing of this, such as elements of two buffers of one name, are in the
    order in which they were first compared, so that it is the same in every run.
    """
    if isinstance(atom, tir.Var):
        return atom.name, (atom.number,), 0
    number = _first_seen.get(atom)
    if number is None:
        number = _first_seen[atom] = next(_numbers)
    return *_text_key(atom), number


def monomial_key(monomial: Monomial) -> tuple[int, list[Key]]:
    """The sort key of a monomial: higher degree first, the constant last."""
    return -len(monomial), [atom_key(atom) for atom in monomial]


def sorted_terms(poly: Poly) -> list[tuple[Monomial, int]]:
    """The terms in the order in which they are written."""
    if len(poly) < 2:
        return list(poly.items())
    return sorted(poly.items(), key=lambda term: monomial_key(term[0]))


def constant(value: int) -> Poly:
    """The polynomial that is `value` everywhere."""
    return {ONE: value} if value else ZERO


def atom(expr: tir.PrimExpr) -> Poly:
    """The polynomial that is `expr` alone."""
    return {(expr,): 1}


def constant_of(poly: Poly) -> int | None:
    """The value of a constant polynomial, or None for another."""
    if not poly:
        return 0
    return poly.get(ONE) if len(poly) == 1 else None


def accumulate(out: dict[Monomial, int], poly: Poly, scale: int = 1) -> None:
    """Add `scale` times `poly` to `out`, in place."""
    for monomial, coefficient in poly.items():
        total = out.get(monomial, 0) + scale * coefficient
        if total:
            out[monomial] = total
        else:
            out.pop(monomial, None)


def add(a: Poly, b: Poly, scale: int = 1) -> Poly:
    """a + scale * b."""
    out = dict(a)
    accumulate(out, b, scale)
    return out


def scaled(poly: Poly, factor: int) -> Poly:
    """factor * poly."""
    if factor == 1:
        return poly
    return {m: factor * c for m, c in poly.items()} if factor else ZERO


def multiply(a: Poly, b: Poly) -> Poly:
    """a * b."""
    if len(b) < 2 and (factor := constant_of(b)) is not None:
        return scaled(a, factor)
    if len(a) < 2 and (factor := constant_of(a)) is not None:
        return scaled(b, factor)
    out: dict[Monomial, int] = {}
    for left, p in a.items():
        for right, q in b.items():
            joined = (
                tuple(sorted((*left, *right), key=atom_key)) if left and right else left + right
            )
            total = out.get(joined, 0) + p * q
            if total:
                out[joined] = total
            else:
                out.pop(joined, None)
    return out


def can_expand(a: Poly, b: Poly) -> bool:
    """True if a * b is to be expanded."""
    factors = max(map(len, a), default=0) + max(map(len, b), default=0)
    return len(a) * len(b) <= _MOST_TERMS and factors <= _MOST_FACTORS


def content(poly: Poly, *, with_constant: bool = True) -> int:
    """The greatest common divisor of the coefficients, 0 for none of them."""
    divisor = 0
    for monomial, coefficient in poly.items():
        if monomial or with_constant:
            divisor = gcd(divisor, coefficient)
    return divisor


def divide_exactly(poly: Poly, divisor: int) -> Poly:
    """poly / divisor, which must divide every coefficient."""
    return {m: c // divisor for m, c in poly.items()} if divisor != 1 else poly


def leading(poly: Poly) -> tuple[Monomial, int]:
    """The term that is written first."""
    return min(poly.items(), key=lambda term: monomial_key(term[0]))


def common_factor(monomials: Iterable[Monomial]) -> Monomial:
    """The monomial of the atoms, with multiplicity, that all of them share."""
    shared: list[tir.PrimExpr] | None = None
    for monomial in monomials:
        if shared is None:
            shared = list(monomial)
            continue
        rest, common = list(monomial), []
        for factor in shared:
            if factor in rest:
                rest.remove(factor)
                common.append(factor)
        shared = common
        if not shared:
            break
    return tuple(shared or ())


def without_factor(poly: Poly, factor: Monomial) -> Poly:
    """poly / factor, which must be a factor of every monomial."""
    out = {}
    for monomial, coefficient in poly.items():
        ratio = quotient(monomial, factor)
        assert ratio is not None
        out[ratio] = coefficient
    return out


def quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """monomial / divisor, or None if it has a factor too few."""
    rest = list(monomial)
    for factor in divisor:
        # `in` and `remove` would build comparisons of expressions that are not the same object.
        at = next((i for i, other in enumerate(rest) if other is factor), None)
        if at is None:
            return None
        del rest[at]
    return tuple(rest)
