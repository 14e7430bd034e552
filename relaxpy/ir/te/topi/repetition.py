"""Tensors whose elements are repeated, reversed or shifted ones of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from relaxpy.errors import MisuseError
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import is_const, normal_axis, product, tidy
from relaxpy.ir.te.topi.transform import reshape
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr

__all__ = ["flip", "meshgrid", "one_hot", "repeat", "roll", "tile", "trilu"]

INJECTIVE = "injective"


def flip(a: Tensor, axis: int = 0) -> Tensor:
    """The elements of a in reverse order along an axis."""
    place = normal_axis(axis, a.ndim)

    def element(*index: PrimExpr) -> PrimExpr:
        last = ops.sub(a.shape[place], ops.const(1, index[place].dtype))
        return a(*index[:place], ops.sub(last, index[place]), *index[place + 1 :])

    return computed(a.shape, element, "T_flip", INJECTIVE)


def roll(a: Tensor, shift: int, axis: int) -> Tensor:
    """The elements of a moved by `shift` along an axis; those that leave it enter at its start."""
    place = normal_axis(axis, a.ndim)
    size = a.shape[place]

    def element(*index: PrimExpr) -> PrimExpr:
        here = index[place]

        def at(position: PrimExpr) -> PrimExpr:
            return a(*index[:place], position, *index[place + 1 :])

        if not isinstance(size, tir.IntImm):
            return at(ops.floormod(ops.sub(here, ops.const(shift, here.dtype)), size))
        count = shift % size.value if size.value else 0
        if not count:
            return at(here)
        # Two slices, which are copied as wholes.
        entered = ops.add(here, ops.const(size.value - count, here.dtype))
        start = ops.const(count, here.dtype)
        inside = ops.compare(tir.LE, start, here)
        return intrin.if_then_else(inside, at(ops.sub(here, start)), at(entered))

    return computed(a.shape, element, "T_roll", INJECTIVE)


def repeat(a: Tensor, repeats: int, axis: int) -> Tensor:
    """Each slice of a along an axis, `repeats` times in a row."""
    place = normal_axis(axis, a.ndim)
    count = ops.const(repeats, "int64")
    shape = (*a.shape[:place], tidy(ops.mul(a.shape[place], count)), *a.shape[place + 1 :])

    def element(*index: PrimExpr) -> PrimExpr:
        source = ops.floordiv(index[place], count) if repeats else index[place]
        return a(*index[:place], source, *index[place + 1 :])

    return computed(shape, element, "T_repeat", INJECTIVE)


def tile(a: Tensor, reps: Sequence[int]) -> Tensor:
    """a, `reps[i]` times one after the other along axis i.

    The shape or `reps`, if it is the shorter one, gets leading 1s.
    """
    rank = max(a.ndim, len(reps))
    times = [1] * (rank - len(reps)) + list(reps)
    leading = rank - a.ndim
    sizes = [ops.const(1, "int64")] * leading + list(a.shape)
    shape = [
        tidy(ops.mul(n, ops.const(count, n.dtype))) for n, count in zip(sizes, times, strict=True)
    ]

    def element(*index: PrimExpr) -> PrimExpr:
        inner = zip(index[leading:], a.shape, times[leading:], strict=True)
        return a(*(i if k == 1 or is_const(n, 0) else ops.floormod(i, n) for i, n, k in inner))

    return computed(shape, element, "T_tile", INJECTIVE)


def meshgrid(a_tuple: Sequence[Tensor], indexing: Literal["ij", "xy"] = "ij") -> list[Tensor]:
    """The coordinates of a grid: of each vector, a tensor with its elements along one axis.

    Vector k lies along axis k, but the first two change places with indexing "xy".

    Errors:
        MisuseError: a tensor has another rank than 1.
    """
    if any(x.ndim != 1 for x in a_tuple):
        raise MisuseError("meshgrid takes vectors")
    axes = list(range(len(a_tuple)))
    if indexing == "xy" and len(axes) > 1:
        axes[:2] = [1, 0]
    shape = [a_tuple[axes.index(k)].shape[0] for k in range(len(axes))]

    def spread(x: Tensor, axis: int) -> Tensor:
        return computed(shape, lambda *i: x(i[axis]), "T_meshgrid", INJECTIVE)

    return [spread(x, axis) for x, axis in zip(a_tuple, axes, strict=True)]


def one_hot(
    indices: Tensor, on_value: PrimExpr, off_value: PrimExpr, depth: int, axis: int, dtype: str
) -> Tensor:
    """`on_value` where the position along a new axis is the index, else `off_value`."""
    place = normal_axis(axis, indices.ndim + 1)
    size = ops.const(depth, "int64")
    on, off = ops.cast_to(on_value, dtype), ops.cast_to(off_value, dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        chosen = indices(*index[:place], *index[place + 1 :])
        here = ops.cast_to(index[place], "int64")
        return tir.Select(ops.compare(tir.EQ, ops.cast_to(chosen, "int64"), here), on, off)

    shape = (*indices.shape[:place], size, *indices.shape[place:])
    return computed(shape, element, "T_one_hot", INJECTIVE)


def trilu(data: Tensor, k: ExprLike, upper: bool) -> Tensor:
    """The elements above diagonal k of the last two axes, or below it, with it; else 0."""
    offset = ops.cast_to(ops.convert(k), "int64")
    zero = ops.const(0, data.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        row, column = (ops.cast_to(i, "int64") for i in index[-2:])
        diagonal = ops.sub(column, offset)
        inside = ops.compare(tir.LE if upper else tir.GE, row, diagonal)
        return tir.Select(inside, data(*index), zero)

    return computed(data.shape, element, "trilu", INJECTIVE)


def repeat_elements(a: Tensor, repeats: int, axis: int | None) -> Tensor:
    """As `repeat`; without an axis, of the elements in row-major order."""
    if axis is not None:
        return repeat(a, repeats, axis)
    flat = a if a.ndim == 1 else reshape(a, [product(a.shape)])
    return repeat(flat, repeats, 0)


def roll_elements(a: Tensor, shift: Sequence[int], axis: Sequence[int] | None) -> Tensor:
    """As `roll` along several axes; without an axis, of the elements in row-major order."""
    if axis is None:
        flat = a if a.ndim == 1 else reshape(a, [product(a.shape)])
        rolled = roll(flat, shift[0], 0)
        return rolled if a.ndim == 1 else reshape(rolled, a.shape)
    for count, place in zip(shift, axis, strict=True):
        a = roll(a, count, place)
    return a
