"""Arithmetic on the sizes and indices of tensor expressions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Container, Sequence
from typing import SupportsIndex, TypeAlias, TypeVar

from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import BinaryOpExpr, ExprLike, IntImm, PrimExpr

Sizes: TypeAlias = Sequence[PrimExpr]
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
Refuse: TypeAlias = Callable[..., RelaxpyError]
T = TypeVar("T")


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


def normal_axis(
    axis: SupportsIndex, ndim: int, name: str = "axis", refuse: Refuse = MisuseError
) -> int:
    """AXIS: `axis` counted from the front; the error is what `refuse` returns.

    Errors:
        MisuseError: it is not an integer, or outside [-ndim, ndim).
    """
    try:
        place = operator.index(axis)
    except TypeError:
        raise MisuseError(f"an axis is an integer, found {axis!r}") from None
    if not -ndim <= place < ndim:
        raise refuse(f"{name} {place} is out of range for rank {ndim}", about=axis)
    return place % ndim


def normal_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, in order, each once; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    listed: Sequence[SupportsIndex] = (
        axis if isinstance(axis, Sequence) and not isinstance(axis, str) else [axis]
    )
    return tuple(sorted({normal_axis(a, ndim) for a in listed}))


def reduced_sizes(sizes: Sizes, axes: Container[int], *, keepdims: bool) -> list[PrimExpr]:
    """The sizes without those along the axes, or with 1 there under `keepdims`."""
    if keepdims:
        return [ops.const(1, s.dtype) if a in axes else s for a, s in enumerate(sizes)]
    return [s for a, s in enumerate(sizes) if a not in axes]


def expanded_sizes(sizes: Sizes, axes: Collection[int]) -> list[PrimExpr]:
    """The sizes with 1 at these positions of the result."""
    old = iter(sizes)
    one = ops.const(1, INT64)
    return [one if a in axes else next(old) for a in range(len(sizes) + len(axes))]


def broadcast_sizes(
    first: Sizes,
    second: Sizes,
    undecided: Callable[[PrimExpr, PrimExpr], T],
    clash: Callable[[int], RelaxpyError],
) -> tuple[PrimExpr | T, ...]:
    """BC: the shape that two shapes broadcast to, aligned at the right.

    Where neither size is 1 and they are not provably equal, it has what `undecided` returns.

    Errors:
        What `clash` returns for an axis, counted from the end, along which literals differ.
    """
    if len(first) == len(second) and all(map(operator.is_, first, second)):
        return tuple(first)
    longer = first if len(first) >= len(second) else second
    both = min(len(first), len(second))
    sizes: list[PrimExpr | T] = list(longer[: len(longer) - both])
    for axis in range(-both, 0):
        a, b = first[axis], second[axis]
        if is_const(a, 1):
            sizes.append(b)
        elif is_const(b, 1) or prove_equal(a, b):
            sizes.append(a)
        elif isinstance(a, IntImm) and isinstance(b, IntImm):
            raise clash(axis)
        else:
            sizes.append(undecided(a, b))
    return tuple(sizes)


def broadcast_shapes(first: Sizes, second: Sizes) -> tuple[PrimExpr, ...]:
    """The shape that two shapes broadcast to: of a literal and an expression, the literal counts.

    Of two expressions that are not known to be equal, it is the larger one.

    Errors:
        MisuseError: two literals differ, and neither is 1.
    """

    def clash(axis: int) -> MisuseError:
        return MisuseError(f"shapes {shape_text(first)} and {shape_text(second)} do not broadcast")

    return broadcast_sizes(first, second, _literal_or_larger, clash)


def _literal_or_larger(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if isinstance(a, IntImm) or isinstance(b, IntImm):
        return a if isinstance(a, IntImm) else b
    return ops.maximum(a, b)


def broadcast_index(sizes: Sizes, index: Sizes, shape: Sizes) -> list[PrimExpr]:
    """Where a tensor of `sizes` has the element at `index` of the `shape` it broadcasts to."""
    offset = len(index) - len(sizes)
    return [
        ops.const(0, size.dtype) if is_const(size, 1) and not is_const(whole, 1) else place
        for size, whole, place in zip(sizes, shape[offset:], index[offset:], strict=True)
    ]


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
