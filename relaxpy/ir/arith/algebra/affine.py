"""Indices as polynomials with operators, and as affine maps of chosen variables."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from relaxpy.ir.arith.algebra import poly
from relaxpy.ir.arith.algebra.poly import Monomial, Poly
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass

_BOUNDS: Final = 128
"""The number of lower bounds of a polynomial after which it counts as not provable.

They are exponential in the number of choices; proofs of indices need a few dozens.
"""


@dataclass(slots=True, eq=False)
class IndexPoly:
    """A polynomial read from an unsimplified expression; its atoms are not sums or products.

    It is not frozen, though never changed: thousands are created for a kernel, in half of the time.

    Rule:
        Signed integers of 32 bits and more are taken as unbounded, as index arithmetic may assume.
    """

    terms: Poly

    def __add__(self, other: IndexPoly | int) -> IndexPoly:
        return IndexPoly(poly.add(self.terms, _terms(other)))

    def __sub__(self, other: IndexPoly | int) -> IndexPoly:
        terms = _terms(other)
        return IndexPoly(poly.add(self.terms, terms, -1)) if terms else self

    def __mul__(self, other: IndexPoly | int) -> IndexPoly:
        return IndexPoly(poly.multiply(self.terms, _terms(other)))

    def same(self, other: IndexPoly | int) -> bool:
        """True if both are the same polynomial."""
        return self.terms == _terms(other)

    @property
    def constant(self) -> int | None:
        """The value, if the polynomial has no atoms."""
        terms = self.terms
        if not terms:
            return 0
        return terms.get(poly.ONE) if len(terms) == 1 else None

    def atoms(self) -> Iterable[tir.PrimExpr]:
        """The atoms, each as often as it occurs."""
        for monomial in self.terms:
            yield from monomial

    def mentions(self, variables: Container[tir.Var]) -> bool:
        """True if any of `variables` occurs."""
        return any(mentions(atom, variables) for atom in self.atoms())

    def is_at_least(self, bound: int, sizes: Container[tir.Var]) -> bool:
        """True if the value is provably >= `bound`, all variables of `sizes` being >= 0."""
        number = self.constant
        if number is not None:
            return number >= bound
        signs: dict[tir.PrimExpr, bool] = {}

        def not_negative(atom: tir.PrimExpr) -> bool:
            if atom not in signs:
                signs[atom] = _not_negative(atom, sizes)
            return signs[atom]

        seen: set[frozenset[tuple[Monomial, int]]] = set()
        remaining = [iter((self - bound,))]
        while remaining:
            least = next(remaining[-1], None)
            if least is None:
                remaining.pop()
                continue
            key = frozenset(least.terms.items())
            if key in seen:  # two choices are bounded in either order
                continue
            if len(seen) == _BOUNDS:
                return False
            seen.add(key)
            if all(
                factor >= 0 and all(map(not_negative, monomial))
                for monomial, factor in least.terms.items()
            ):
                return True
            remaining.append(least._weaker())
        return False

    def exceeds(self, other: IndexPoly, least: int, sizes: Container[tir.Var]) -> bool:
        """True if `self - other` is provably >= `least`, as by `is_at_least`."""
        number, subtracted = self.constant, other.constant
        if number is not None and subtracted is not None:
            return number - subtracted >= least
        return (self - other).is_at_least(least, sizes)

    def _weaker(self) -> Iterator[IndexPoly]:
        """Lower bounds of the polynomial, each with one Min, Max or quotient bounded."""
        for monomial, factor in self.terms.items():
            match monomial:
                case (tir.Min(a=a, b=b) | tir.Max(a=a, b=b) as choice,) if isinstance(
                    choice, tir.Max
                ) == (factor > 0):
                    # Elsewhere it stays, where a smaller value may make a product greater.
                    rest = self - IndexPoly({monomial: factor})
                    yield from (rest + as_poly(side) * factor for side in (a, b))
                case (tir.FloorDiv(a=a, b=tir.IntImm(value=divisor)),) if divisor > 0:
                    # The product of quotient and divisor lies above a - divisor, and not above a.
                    if factor % divisor == 0:
                        nearest = as_poly(a) - (divisor - 1 if factor > 0 else 0)
                        rest = self - IndexPoly({monomial: factor})
                        yield rest + nearest * (factor // divisor)
                case _:
                    pass

    def expr(self) -> tir.PrimExpr:
        """An int64 expression of this value: terms of higher degree first, the constant last."""
        terms = [*self.terms.items()]
        if len(terms) > 1:
            terms.sort(key=lambda item: (-len(item[0]), _names(item[0])))
            terms.sort(key=lambda item: (item[0] == (), item[1] < 0))
        total: tir.PrimExpr = ops.const(0, INT64)
        for monomial, factor in terms:
            product = _number(abs(factor))
            factors = sorted(monomial, key=lambda a: _names((a,))) if monomial[1:] else monomial
            for atom in factors:
                product = ops.mul(product, ops.cast_to(atom, INT64))
            total = ops.sub(total, product) if factor < 0 else ops.add(total, product)
        return total


def _number(value: int) -> tir.PrimExpr:
    """A number of any size: an int64 literal, or a sum of products of such."""
    if value < 1 << 63:
        return ops.const(value, INT64)
    high, low = divmod(value, 1 << 62)
    return tir.Add(tir.Mul(_number(high), ops.const(1 << 62, INT64)), ops.const(low, INT64))


def _not_negative(atom: tir.PrimExpr, sizes: Container[tir.Var]) -> bool:
    match atom:
        case tir.Var():
            return isinstance(atom, tir.SizeVar) or atom in sizes
        case tir.FloorMod(b=tir.IntImm(value=divisor)):
            return divisor > 0
        case tir.FloorDiv(a=a, b=tir.IntImm(value=divisor)) if divisor > 0:
            return as_poly(a).is_at_least(0, sizes)
        case tir.Min(a=a, b=b):
            return all(as_poly(operand).is_at_least(0, sizes) for operand in (a, b))
        case tir.Max(a=a, b=b):
            return any(as_poly(operand).is_at_least(0, sizes) for operand in (a, b))
        case _:
            return False


def may_be_negative(size: tir.PrimExpr, sizes: Container[tir.Var]) -> bool:
    """True unless a size is a literal, or provably at least 0 where `sizes` are."""
    if isinstance(size, tir.IntImm) or size in sizes:
        return False
    return not as_poly(size).is_at_least(0, sizes)


def _names(monomial: Monomial) -> list[str]:
    return [atom.name if isinstance(atom, tir.Var) else str(atom) for atom in monomial]


def _terms(value: IndexPoly | int) -> Poly:
    return value.terms if isinstance(value, IndexPoly) else poly.constant(value)


def as_poly(value: IndexPoly | tir.PrimExpr | int) -> IndexPoly:
    """`value` as a polynomial; casts between integers are seen through."""
    if type(value) is IndexPoly:
        return value
    return IndexPoly(poly.constant(value)) if isinstance(value, int) else _read(value)


def number_of(sizes: Iterable[IndexPoly | tir.PrimExpr | int]) -> IndexPoly:
    """The product of `sizes`, the number of elements of a buffer that has them."""
    return math.prod(map(as_poly, sizes), start=as_poly(1))


@lru_cache(maxsize=1 << 10)
def _read(value: tir.PrimExpr) -> IndexPoly:
    match value:
        case tir.IntImm(value=number):
            return IndexPoly(poly.constant(number))
        case tir.Add() | tir.Sub() | tir.Mul() if (
            value.dtype.bits < 32 or value.dtype.family == "uint"
        ):
            return IndexPoly(poly.atom(value))
        case tir.Add(a=a, b=b):
            return as_poly(a) + as_poly(b)
        case tir.Sub(a=a, b=b):
            return as_poly(a) - as_poly(b)
        case tir.Mul(a=a, b=b):
            left, right = as_poly(a), as_poly(b)
            if poly.can_expand(left.terms, right.terms):
                return left * right
            return IndexPoly(poly.atom(value))
        case tir.Cast(value=inner, dtype=dtype) if _keeps_integers(inner.dtype, dtype):
            return as_poly(inner)
        case _:
            return IndexPoly(poly.atom(value))


def _keeps_integers(source: DataType, target: DataType) -> bool:
    """True if a cast preserves the values that an index takes."""
    if not (source.is_int and target.is_int):
        return False
    if target.family == "uint":
        return source.family == "uint" and source.bits <= target.bits
    return target.bits > 16


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """`offset` plus `coefficients[v] * v` over the variables v; neither mentions any of them."""

    coefficients: Mapping[tir.Var, IndexPoly]
    offset: IndexPoly

    def poly(self) -> IndexPoly:
        """The whole as one polynomial."""
        total = self.offset
        for variable, factor in self.coefficients.items():
            total = total + factor * as_poly(variable)
        return total

    def constant(self, variable: tir.Var) -> int | None:
        """The coefficient of `variable`, if it is a number; 0 where the variable does not occur."""
        factor = self.coefficients.get(variable)
        return 0 if factor is None else factor.constant


_NO_COEFFICIENTS: Mapping[tir.Var, IndexPoly] = MappingProxyType({})


def quotient(value: IndexPoly, divisor: IndexPoly) -> IndexPoly | None:
    """`value` divided by the product `divisor`, or None where that leaves a remainder."""
    if len(divisor.terms) != 1:
        return None
    [(denominator, number)] = divisor.terms.items()
    result: dict[Monomial, int] = {}
    for monomial, factor in value.terms.items():
        ratio = poly.quotient(monomial, denominator)
        if ratio is None or factor % number:
            return None
        result[ratio] = factor // number
    return IndexPoly(result)


def linear_terms(p: Poly, variables: Container[tir.Var]) -> tuple[dict[tir.Var, Poly], Poly] | None:
    """The coefficients of `variables` in p and the rest; None if p is not affine in them.

    Neither the coefficients nor the rest mention any of the variables.
    """
    coefficients: dict[tir.Var, dict[Monomial, int]] = {}
    rest: dict[Monomial, int] = {}
    for monomial, number in p.items():
        if not monomial:
            rest[monomial] = number
            continue
        inside = [a for a in monomial if isinstance(a, tir.Var) and a in variables]
        cofactor = monomial
        if inside:
            cofactor = tuple(
                [a for a in monomial if not (isinstance(a, tir.Var) and a in variables)]
            )
        if len(inside) > 1 or any(mentions(a, variables) for a in cofactor):
            return None
        target = coefficients.setdefault(inside[0], {}) if inside else rest
        target[cofactor] = number
    return dict(coefficients), rest


def affine(value: tir.PrimExpr | IndexPoly, variables: Set[tir.Var]) -> Affine | None:
    """`value` as an affine map of `variables`, or None where it is not one."""
    return _affine(value, frozenset(variables))


@lru_cache(maxsize=1 << 10)
def _affine(value: tir.PrimExpr | IndexPoly, variables: Set[tir.Var]) -> Affine | None:
    whole = as_poly(value)
    if whole.constant is not None:
        return Affine(_NO_COEFFICIENTS, whole)
    linear = linear_terms(whole.terms, variables)
    if linear is None:
        return None
    coefficients = {var: IndexPoly(terms) for var, terms in linear[0].items()}
    return Affine(MappingProxyType(coefficients), IndexPoly(linear[1]))
