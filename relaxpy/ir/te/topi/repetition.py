"""Tensors whose elements are those of others, repeated, reversed or shifted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from relaxpy.errors import MisuseError
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import injective
from relaxpy.ir.te.topi.shapes import normal_axis, product, tidy
from relaxpy.ir.te.topi.transform import reshape
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.ops import is_const

__all__ = ["flip", "meshgrid", "one_hot", "repeat", "roll", "tile", "trilu"]


def flip(a: Tensor, axis: int = 0) -> Tensor:
    """The elements of a in reverse order along an axis."""
    axis = normal_axis(axis, a.ndim)

    def element(*index: PrimExpr) -> PrimExpr:
        last = ops.sub(a.shape[axis], ops.const(1, index[axis].dtype))
        return a(*index[:axis], ops.sub(last, index[axis]), *index[axis + 1 :])

    return injective(a.shape, element, "T_reverse_sequence")


def roll(a: Tensor, shift: int, axis: int) -> Tensor:
    """Shift the elements of a by `shift` along an axis; those beyond its end wrap to its start."""
    axis = normal_axis(axis, a.ndim)
    size = a.shape[axis]

    def element(*index: PrimExpr) -> PrimExpr:
        position = index[axis]

        def element_at(source: PrimExpr) -> PrimExpr:
            return a(*index[:axis], source, *index[axis + 1 :])

        if not isinstance(size, tir.IntImm):
            return element_at(
                ops.floormod(ops.sub(position, ops.const(shift, position.dtype)), size)
            )
        count = shift % size.value if size.value else 0
        if not count:
            return element_at(position)
        # Two slices, each of which is copied at once.
        entered = ops.add(position, ops.const(size.value - count, position.dtype))
        start = ops.const(count, position.dtype)
        inside = ops.compare(tir.LE, start, position)
        return intrin.if_then_else(
            inside, element_at(ops.sub(position, start)), element_at(entered)
        )

    return injective(a.shape, element, "T_roll")


def repeat(a: Tensor, repeats: int, axis: int) -> Tensor:
    """Repeat each slice of a along an axis `repeats` times."""
    axis = normal_axis(axis, a.ndim)
    count = ops.const(repeats, "int64")
    shape = (*a.shape[:axis], tidy(ops.mul(a.shape[axis], count)), *a.shape[axis + 1 :])

    def element(*index: PrimExpr) -> PrimExpr:
        source = ops.floordiv(index[axis], count) if repeats else index[axis]
        return a(*index[:axis], source, *index[axis + 1 :])

    return injective(shape, element, "T_repeat")


def tile(a: Tensor, reps: Sequence[int]) -> Tensor:
    """Repeat a `reps[i]` times along axis i.

    The shorter of the shape and `reps` is padded with leading 1s.
    """
    rank = max(a.ndim, len(reps))
    times = [1] * (rank - len(reps)) + list(reps)
    leading = rank - a.ndim
    sizes = [ops.const(1, "int64")] * leading + list(a.shape)
    shape = [
        tidy(ops.mul(n, ops.const(count, n.dtype))) for n, count in zip(sizes, times, strict=True)
    ]

    def element(*index: PrimExpr) -> PrimExpr:
        axes = zip(index[leading:], a.shape, strict=True)
        return a(*(i if is_const(n, 0) else ops.floormod(i, n) for i, n in axes))

    return injective(shape, element, "T_tile")


def meshgrid(a_tuple: Sequence[Tensor], indexing: Literal["ij", "xy"] = "ij") -> list[Tensor]:
    """The coordinates of a grid: of each vector, a tensor with its elements along one axis.

    Vector k lies along axis k, but the first two are exchanged with indexing "xy".

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
        return injective(shape, lambda *i: x(i[axis]), "T_meshgrid")

    return [spread(x, axis) for x, axis in zip(a_tuple, axes, strict=True)]


def one_hot(
    indices: Tensor, on_value: PrimExpr, off_value: PrimExpr, depth: int, axis: int, dtype: str
) -> Tensor:
    """`on_value` where the position along a new axis is the index, else `off_value`."""
    axis = normal_axis(axis, indices.ndim + 1)
    size = ops.const(depth, "int64")
    on, off = ops.cast_to(on_value, dtype), ops.cast_to(off_value, dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        chosen = indices(*index[:axis], *index[axis + 1 :])
        position = ops.cast_to(index[axis], "int64")
        return tir.Select(ops.compare(tir.EQ, ops.cast_to(chosen, "int64"), position), on, off)

    shape = (*indices.shape[:axis], size, *indices.shape[axis:])
    return injective(shape, element, "T_one_hot")


def trilu(data: Tensor, k: ExprLike, upper: bool) -> Tensor:
    """The elements on and above (or below) diagonal k of the last two axes; 0 elsewhere."""
    offset = ops.cast_to(ops.convert(k), "int64")
    zero = ops.const(0, data.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        row, column = (ops.cast_to(i, "int64") for i in index[-2:])
        diagonal = ops.sub(column, offset)
        is_kept = ops.compare(tir.LE if upper else tir.GE, row, diagonal)
        return tir.Select(is_kept, data(*index), zero)

    return injective(data.shape, element, "trilu")


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
    for count, one_axis in zip(shift, axis, strict=True):
        a = roll(a, count, one_axis)
    return a
