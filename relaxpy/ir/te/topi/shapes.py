"""Arithmetic on the sizes and indices of tensor expressions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import SupportsIndex, TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import BinaryOpExpr, ExprLike, IntImm, PrimExpr

Sizes: TypeAlias = Sequence[PrimExpr]
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None


def is_const(size: PrimExpr, value: int) -> bool:
    """Whether `size` is the literal `value`."""
    return isinstance(size, IntImm) and size.value == value


def as_sizes(shape: Sequence[ExprLike]) -> tuple[PrimExpr, ...]:
    """Sizes as expressions; Python integers are int64."""
    return tuple(ops.const(s, INT64) if isinstance(s, int) else ops.convert(s) for s in shape)


def shape_text(sizes: Sizes) -> str:
    """A shape as messages show it."""
    texts = [str(s.value) if isinstance(s, IntImm) else str(s) for s in sizes]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def product(sizes: Sizes) -> PrimExpr:
    """The number of elements of a shape."""
    return functools.reduce(ops.mul, sizes, ops.const(1, INT64))


def total(sizes: Sizes) -> PrimExpr:
    """The sum of sizes: of equal ones, one times their number."""
    if all(size is sizes[0] for size in sizes):
        return ops.mul(sizes[0], ops.const(len(sizes), INT64))
    return tidy(functools.reduce(ops.add, sizes))


def tidy(size: PrimExpr) -> PrimExpr:
    """`size` simplified, or as it is written where that is no longer."""
    found = simplify(size)
    return found if _length(found) < _length(size) else size


@functools.lru_cache(maxsize=1 << 10)
def _length(size: PrimExpr) -> int:
    """How many nodes the text of an expression has."""
    if not isinstance(size, BinaryOpExpr):
        return 1
    return 1 + _length(size.a) + _length(size.b)


def normal_axis(axis: SupportsIndex, ndim: int) -> int:
    """`axis` counted from the front.

    Errors:
        MisuseError: it is no integer, or outside [-ndim, ndim).
    """
    try:
        place = operator.index(axis)
    except TypeError:
        raise MisuseError(f"an axis is an integer, found {axis!r}") from None
    if not -ndim <= place < ndim:
        raise MisuseError(f"axis {place} is out of range for rank {ndim}")
    return place % ndim


def normal_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, in order, each once; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    listed: Sequence[SupportsIndex] = (
        axis if isinstance(axis, Sequence) and not isinstance(axis, str) else [axis]
    )
    return tuple(sorted({normal_axis(a, ndim) for a in listed}))


def broadcast_shapes(first: Sizes, second: Sizes) -> tuple[PrimExpr, ...]:
    """The shape that two shapes broadcast to, aligned at the right.

    A literal wins over an expression; of two expressions not known to be equal, the larger counts.

    Errors:
        MisuseError: two literals differ, and neither is 1.
    """
    ndim = max(len(first), len(second))
    one = ops.const(1, INT64)
    a = [one] * (ndim - len(first)) + list(first)
    b = [one] * (ndim - len(second)) + list(second)
    sizes = [_broadcast_size(x, y) for x, y in zip(a, b, strict=True)]
    known = tuple(s for s in sizes if s is not None)
    if len(known) < ndim:
        raise MisuseError(f"shapes {shape_text(first)} and {shape_text(second)} do not broadcast")
    return known


def _broadcast_size(x: PrimExpr, y: PrimExpr) -> PrimExpr | None:
    """What two sizes broadcast to; None where they are different literals."""
    if is_const(x, 1):
        return y
    if is_const(y, 1) or prove_equal(x, y):
        return x
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return None
    if isinstance(x, IntImm) or isinstance(y, IntImm):
        return x if isinstance(x, IntImm) else y
    return ops.maximum(x, y)


def read_broadcast(tensor: Tensor, index: Sizes, shape: Sizes) -> PrimExpr:
    """The element of `tensor` at `index` of the shape that it is broadcast to."""
    offset = len(index) - tensor.ndim
    places = [
        ops.const(0, size.dtype) if is_const(size, 1) and not is_const(whole, 1) else place
        for size, whole, place in zip(tensor.shape, shape[offset:], index[offset:], strict=True)
    ]
    return tensor(*places)


def ravel(index: Sizes, shape: Sizes) -> PrimExpr:
    """The place in row-major order of the element at `index`."""
    place: PrimExpr = ops.const(0, INT64)
    for i, size in zip(index, shape, strict=True):
        place = ops.add(ops.mul(place, size), i)
    return place


def unravel(place: PrimExpr, shape: Sizes) -> tuple[PrimExpr, ...]:
    """The index of the element at a place in row-major order, which is one of the shape's."""
    index: list[PrimExpr] = []
    for size in reversed(shape[1:]):
        index.append(ops.floormod(place, size))
        place = ops.floordiv(place, size)
    return (place, *reversed(index)) if shape else ()
