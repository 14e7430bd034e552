"""Integer PrimExprs as polynomials, and as affine maps of chosen variables."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.traverse import mentions
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import (
    Add,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Sub,
    Var,
)

Monomial = tuple[PrimExpr, ...]
_MOST_TERMS = 256  # a product of many sums has a term for every choice: it stays as written


@dataclass(frozen=True, slots=True, eq=False)
class IndexPoly:
    """A sum of integer multiples of products of atoms; an atom is whatever is no sum or product.

    Rule:
        Signed integers of 32 bits and more are taken as unbounded, as index arithmetic may assume.
    """

    terms: Mapping[Monomial, int]

    def __add__(self, other: IndexPoly | int) -> IndexPoly:
        found = dict(self.terms)
        for monomial, factor in as_poly(other).terms.items():
            found[monomial] = found.get(monomial, 0) + factor
        return _poly(found)

    def __sub__(self, other: IndexPoly | int) -> IndexPoly:
        found = dict(self.terms)
        for monomial, factor in as_poly(other).terms.items():
            found[monomial] = found.get(monomial, 0) - factor
        return _poly(found)

    def __mul__(self, other: IndexPoly | int) -> IndexPoly:
        found: dict[Monomial, int] = {}
        for left, p in self.terms.items():
            for right, q in as_poly(other).terms.items():
                both = (*left, *right)
                monomial = tuple(sorted(both, key=id)) if left and right else both
                found[monomial] = found.get(monomial, 0) + p * q
        return _poly(found)

    def same(self, other: IndexPoly | int) -> bool:
        """Whether both are one polynomial."""
        return not (self - other).terms

    @property
    def constant(self) -> int | None:
        """The value, if no atom is left."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def atoms(self) -> Iterable[PrimExpr]:
        """The atoms, each as often as it occurs."""
        for monomial in self.terms:
            yield from monomial

    def replace(self, atom: PrimExpr, value: IndexPoly) -> IndexPoly:
        """This polynomial with `value` for `atom`."""
        total = IndexPoly({})
        for monomial, factor in self.terms.items():
            part = IndexPoly({tuple(a for a in monomial if a is not atom): factor})
            for _ in range(sum(a is atom for a in monomial)):
                part = part * value
            total = total + part
        return total

    def is_at_least(self, bound: int, sizes: Container[Var]) -> bool:
        """Whether the value is proved at least `bound` if no variable of `sizes` is negative."""
        least = self - bound
        if all(
            factor >= 0 and all(_not_negative(a, sizes) for a in monomial)
            for monomial, factor in least.terms.items()
        ):
            return True
        return any(weaker.is_at_least(0, sizes) for weaker in least._weaker())

    def _weaker(self) -> Iterator[IndexPoly]:
        """Polynomials that are never greater, with one Min, Max or quotient bounded by operands."""
        for monomial, factor in self.terms.items():
            match monomial:
                case (Min() as choice,) if factor < 0:
                    yield from (
                        self.replace(choice, as_poly(side)) for side in (choice.a, choice.b)
                    )
                case (Max() as choice,) if factor > 0:
                    yield from (
                        self.replace(choice, as_poly(side)) for side in (choice.a, choice.b)
                    )
                case (FloorDiv(a=a, b=IntImm(value=divisor)),) if divisor > 0:
                    # The product of quotient and divisor lies above a - divisor, and not above a.
                    if factor % divisor == 0:
                        nearest = as_poly(a) - (divisor - 1 if factor > 0 else 0)
                        rest = self - IndexPoly({monomial: factor})
                        yield rest + nearest * (factor // divisor)
                case _:
                    pass

    def expr(self) -> PrimExpr:
        """An int64 expression of this value: larger terms first, the number last."""
        parts = sorted(self.terms.items(), key=lambda item: (-len(item[0]), _names(item[0])))
        parts.sort(key=lambda item: (item[0] == (), item[1] < 0))
        total: PrimExpr = ops.const(0, INT64)
        for monomial, factor in parts:
            part = _number(abs(factor))
            for atom in sorted(monomial, key=lambda a: _names((a,))):
                part = ops.mul(part, ops.cast_to(atom, INT64))
            total = ops.sub(total, part) if factor < 0 else ops.add(total, part)
        return total


def _number(value: int) -> PrimExpr:
    """A number as it is, of however many bits: a literal of int64, or a sum of products of such."""
    if value < 1 << 63:
        return ops.const(value, INT64)
    high, low = divmod(value, 1 << 62)
    return Add(Mul(_number(high), ops.const(1 << 62, INT64)), ops.const(low, INT64))


def _not_negative(atom: PrimExpr, sizes: Container[Var]) -> bool:
    match atom:
        case Var():
            return atom in sizes
        case FloorMod(b=IntImm(value=divisor)):
            return divisor > 0
        case FloorDiv(a=a, b=IntImm(value=divisor)) if divisor > 0:
            return as_poly(a).is_at_least(0, sizes)
        case Min(a=a, b=b):
            return all(as_poly(part).is_at_least(0, sizes) for part in (a, b))
        case Max(a=a, b=b):
            return any(as_poly(part).is_at_least(0, sizes) for part in (a, b))
        case _:
            return False


def _names(monomial: Monomial) -> list[str]:
    return [atom.name if isinstance(atom, Var) else str(atom) for atom in monomial]


def _poly(terms: Mapping[Monomial, int]) -> IndexPoly:
    if 0 in terms.values():
        terms = {m: f for m, f in terms.items() if f}
    return IndexPoly(MappingProxyType(terms))


def as_poly(value: IndexPoly | PrimExpr | int) -> IndexPoly:
    """`value` as a polynomial; casts between integers are seen through."""
    if isinstance(value, IndexPoly):
        return value
    return _poly({(): value}) if isinstance(value, int) else _of(value)


@lru_cache(maxsize=1 << 10)
def _of(value: PrimExpr) -> IndexPoly:
    match value:
        case IntImm(value=number):
            return _poly({(): number})
        case Add() | Sub() | Mul() if value.dtype.bits < 32 or value.dtype.family == "uint":
            return _poly({(value,): 1})
        case Add(a=a, b=b):
            return as_poly(a) + as_poly(b)
        case Sub(a=a, b=b):
            return as_poly(a) - as_poly(b)
        case Mul(a=a, b=b):
            left, right = as_poly(a), as_poly(b)
            if len(left.terms) * len(right.terms) > _MOST_TERMS:
                return _poly({(value,): 1})
            return left * right
        case Cast(value=inner, dtype=dtype) if _keeps_integers(inner.dtype, dtype):
            return as_poly(inner)
        case _:
            return _poly({(value,): 1})


def _keeps_integers(source: DataType, target: DataType) -> bool:
    """Whether a cast changes no value that an index takes."""
    if not (source.is_int and target.is_int):
        return False
    if target.family == "uint":
        return source.family == "uint" and source.bits <= target.bits
    return target.bits > 16


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """`offset` plus `coefficients[v] * v` over the variables v; neither mentions any of them."""

    coefficients: Mapping[Var, IndexPoly]
    offset: IndexPoly

    def poly(self) -> IndexPoly:
        """The whole as one polynomial."""
        total = self.offset
        for variable, factor in self.coefficients.items():
            total = total + factor * as_poly(variable)
        return total

    def constant(self, variable: Var) -> int | None:
        """The coefficient of `variable`, if it is a number; 0 where the variable does not occur."""
        factor = self.coefficients.get(variable)
        return 0 if factor is None else factor.constant


def quotient(value: IndexPoly, divisor: IndexPoly) -> IndexPoly | None:
    """`value` divided by the product `divisor`, or None where that leaves a remainder."""
    if len(divisor.terms) != 1:
        return None
    [(taken, number)] = divisor.terms.items()
    found: dict[Monomial, int] = {}
    for monomial, factor in value.terms.items():
        left = list(monomial)
        for atom in taken:
            place = next((n for n, other in enumerate(left) if other is atom), None)
            if place is None:
                return None
            del left[place]
        if factor % number:
            return None
        found[tuple(left)] = factor // number
    return _poly(found)


def affine(value: PrimExpr | IndexPoly, variables: Container[Var]) -> Affine | None:
    """`value` as an affine map of `variables`, or None where it is not one."""
    poly = as_poly(value)
    offset: dict[Monomial, int] = {}
    parts: dict[Var, dict[Monomial, int]] = {}
    for monomial, factor in poly.terms.items():
        inside = [a for a in monomial if isinstance(a, Var) and a in variables]
        rest = tuple(a for a in monomial if not (isinstance(a, Var) and a in variables))
        if len(inside) > 1 or any(mentions(a, variables) for a in rest):
            return None
        if inside:
            parts.setdefault(inside[0], {})[rest] = factor
        else:
            offset[rest] = factor
    return Affine(MappingProxyType({v: _poly(t) for v, t in parts.items()}), _poly(offset))
