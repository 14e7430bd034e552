"""Symbolic sizes of memory, and the values of names while a function is read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly, number_of
from relaxpy.ir.core.traverse import leaves
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass
from relaxpy.support.pysource import identifier

Dims: TypeAlias = "tuple[IndexPoly | None, ...] | None"
Sizes: TypeAlias = Mapping[tir.Var, tir.PrimExpr]
ZERO: Final = as_poly(0)


class _AllSizes:
    """The shape variables: none is negative."""

    def __contains__(self, _: object) -> bool:
        return True


def exceeds(a: IndexPoly, b: IndexPoly) -> bool:
    """True if a size is provably at least as large as another one."""
    return a.exceeds(b, 0, _AllSizes())


def largest(a: IndexPoly, b: IndexPoly) -> IndexPoly:
    """The maximum of two sizes."""
    for one, other in ((a, b), (b, a)):
        if exceeds(one, other):
            return one
    return _chosen(tir.Max, a, b)


def least(a: IndexPoly, b: IndexPoly) -> IndexPoly:
    """The minimum of two sizes."""
    for one, other in ((a, b), (b, a)):
        if exceeds(one, other):
            return other
    return _chosen(tir.Min, a, b)


def _chosen(choice: Callable[..., tir.PrimExpr], a: IndexPoly, b: IndexPoly) -> IndexPoly:
    """One of two sizes, with the terms that they have in common outside."""
    pairs = ((monomial, (n, b.terms.get(monomial, 0))) for monomial, n in a.terms.items())
    common = IndexPoly({monomial: min(both) for monomial, both in pairs if min(both) > 0})
    return common + as_poly(choice((a - common).expr(), (b - common).expr()))


def unknown(name: str) -> IndexPoly:
    """A number of bytes that is not known before a call, by the name of what takes them."""
    return as_poly(tir.SizeVar("bytes_of_" + identifier(name).strip("_"), "int64"))


def substituted(size: IndexPoly, values: Sizes) -> IndexPoly:
    """The size with these values of variables."""
    return as_poly(substitute(size.expr(), values)) if values else size


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Memory that is freed with its last reference, maybe one of several `choices`."""

    size: IndexPoly
    choices: frozenset[Block] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """An array in blocks of memory; None for sizes that are not known."""

    blocks: frozenset[Block]
    shape: tuple[IndexPoly | None, ...] | None
    itemsize: int

    @property
    def nbytes(self) -> IndexPoly | None:
        """The size of the elements."""
        known = None if self.shape is None else [size for size in self.shape if size is not None]
        if known is None or self.shape is None or len(known) < len(self.shape):
            return None
        return number_of(known) * self.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class LocalFunction:
    """A function of the text with the names that it captures."""

    tree: ast.FunctionDef
    names: dict[str, Held]
    owner: str


Held: TypeAlias = "IndexPoly | Array | LocalFunction | tuple[Held, ...] | None"


def size_of_blocks(blocks: Iterable[Block]) -> IndexPoly:
    """The size of blocks of memory."""
    return sum((block.size for block in blocks), ZERO)


def array_like(data: np.ndarray[Any, Any]) -> Array:
    """An array of this shape and datatype, in memory that is counted elsewhere."""
    return Array(frozenset(), tuple([as_poly(size) for size in data.shape]), data.itemsize)


def value_with(sinfo: rx.StructInfo | None, sizes: Sizes = MappingProxyType({})) -> Held:
    """A value with this struct info, in memory of the caller."""

    def written(dims: Iterable[tir.PrimExpr]) -> tuple[IndexPoly, ...]:
        return tuple([substituted(as_poly(dim), sizes) for dim in dims])

    match sinfo:
        case rx.TensorStructInfo(shape=shape, dtype=dtype):
            itemsize = dtype.numpy().itemsize if dtype else 0
            known = written(shape.values) if isinstance(shape, rx.ShapeExpr) else None
            return Array(frozenset(), known, itemsize)
        case rx.TupleStructInfo(fields=fields):
            return tuple([value_with(each, sizes) for each in fields])
        case rx.ShapeStructInfo(values=values) if values is not None:
            return written(values)
        case rx.PrimStructInfo(value=value) if value is not None:
            return substituted(as_poly(value), sizes)
        case _:
            return None


def bind_sizes(sinfo: rx.StructInfo | None, held: Held, sizes: dict[tir.Var, tir.PrimExpr]) -> None:
    """Add the sizes that the struct info of a parameter names."""
    dims: Iterable[tir.PrimExpr] = ()
    found: Sequence[Held] = ()
    match sinfo, held:
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=dims)), Array(shape=shape):
            found = shape or ()
        case rx.ShapeStructInfo(values=values), tuple():
            dims, found = values or (), held
        case rx.PrimStructInfo(value=value), _ if value is not None:
            dims, found = (value,), (held,)
        case rx.TupleStructInfo(fields=fields), tuple():
            for field_sinfo, each in zip(fields, held, strict=False):
                bind_sizes(field_sinfo, each, sizes)
        case _:
            return
    for dim, size in zip(dims, found, strict=False):
        if isinstance(dim, tir.Var) and isinstance(size, IndexPoly):
            sizes.setdefault(dim, size.expr())


def blocks_in(held: Held) -> Iterator[Block]:
    """The memory of the arrays in a value."""
    for leaf in leaves(held):
        if isinstance(leaf, Array):
            yield from leaf.blocks


def external(held: Held) -> Held:
    """A value in memory that is counted elsewhere."""
    if isinstance(held, tuple):
        return tuple(map(external, held))
    return Array(frozenset(), held.shape, held.itemsize) if isinstance(held, Array) else held


def merged(a: Held, b: Held) -> Held:
    """A value that is one of two."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(map(merged, a, b))
    if isinstance(a, IndexPoly) and isinstance(b, IndexPoly):
        return a if a.same(b) else None
    if not (isinstance(a, Array) and isinstance(b, Array)):
        return a if a is b else None
    blocks = a.blocks & b.blocks
    choices = a.blocks ^ b.blocks
    if choices:
        sizes = (sum((x.size for x in each.blocks - blocks), ZERO) for each in (a, b))
        inner = choices.union(*(block.choices for block in choices))
        blocks |= {Block(largest(*sizes), inner)}
    return Array(blocks, a.shape if _same(a.shape, b.shape) else None, a.itemsize)


def _same(a: Dims, b: Dims) -> bool:
    if a is None or b is None or len(a) != len(b):
        return False
    pairs = zip(a, b, strict=True)
    return all(x is not None and y is not None and x.same(y) for x, y in pairs)


def shapes_of(names: Mapping[str, Held]) -> dict[str, object]:
    """The shapes of named arrays, to be compared."""
    arrays = {n: held for n, held in names.items() if isinstance(held, Array)}
    return {
        name: None
        if array.shape is None
        else [None if size is None else size.terms for size in array.shape]
        for name, array in arrays.items()
    }


def broadcast(sizes: Sequence[IndexPoly | None]) -> IndexPoly | None:
    """The size of an axis of the result of an operation with broadcasting."""
    known = [size for size in sizes if size is None or size.constant != 1]
    return next((size for size in known if size is not None), None) if known else as_poly(1)


def dotted_name(expr: ast.expr) -> str:
    """A name with its attributes; empty for other expressions."""
    match expr:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted_name(value)}.{name}"
        case _:
            return ""


def is_literal(node: ast.expr, value: object) -> bool:
    """True if an expression is this literal."""
    return isinstance(node, ast.Constant) and node.value is value
