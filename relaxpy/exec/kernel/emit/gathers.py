"""Recognises loads at computed indices: gathers of whole rows, and indices counted from the end."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import LT, Add, Cast, IntImm, PrimExpr
from relaxpy.ir.tir.substitution import mentions


@dataclass(frozen=True, slots=True, eq=False)
class RowGather:
    """A gather of the rows `index` along dimension `axis`; `index` depends on the axes `over`."""

    axis: int
    index: PrimExpr
    over: tuple[Axis, ...]


def row_gather(load: BufferLoad, layout: Sequence[Axis]) -> RowGather | None:
    """`load` over all iterations of `layout` as a gather of rows, or None if it is not one."""
    computed = [n for n, i in enumerate(load.indices) if _full_axis(i, load, n, layout) is None]
    if len(computed) != 1:
        return None
    [axis] = computed
    before = [_full_axis(i, load, n, layout) for n, i in enumerate(load.indices[:axis])]
    after = [
        _full_axis(i, load, n, layout)
        for n, i in enumerate(load.indices[axis + 1 :], start=axis + 1)
    ]
    over = tuple(layout[len(before) : len(layout) - len(after)])
    order = [*before, *over, *after]
    if len(order) != len(layout) or any(a is not b for a, b in zip(order, layout, strict=True)):
        return None
    index = load.indices[axis]
    gathered = {a.var for a in over}
    ungathered = {a.var for a in layout} - gathered
    if mentions(index, ungathered) or not all(mentions(index, {v}) for v in gathered):
        return None
    return RowGather(axis, index, over) if over else None


def trailing_axes(load: BufferLoad, layout: Sequence[Axis]) -> int:
    """How many of the last axes of `layout` the last indices of `load` are, over whole dimensions.

    The other indices do not depend on them, and one depends on another axis.
    """
    count, most = 0, min(len(load.indices), len(layout)) - 1
    while count < most:
        number = len(load.indices) - 1 - count
        axis = _full_axis(load.indices[number], load, number, layout)
        others = load.indices[:number]
        if axis is not layout[-1 - count] or any(mentions(i, {axis.var}) for i in others):
            break
        count += 1
    over = {a.var for a in layout[: len(layout) - count]}
    rest = load.indices[: len(load.indices) - count]
    return count if any(mentions(i, over) for i in rest) else 0


def _full_axis(
    index: PrimExpr, load: BufferLoad, dimension: int, layout: Sequence[Axis]
) -> Axis | None:
    """The axis that `index` is, if it covers the whole dimension; otherwise None."""
    linear = affine(index, {a.var for a in layout})
    if linear is None or len(linear.coefficients) != 1 or not linear.offset.same(0):
        return None
    [(var, factor)] = linear.coefficients.items()
    axis = next(a for a in layout if a.var is var)
    size = as_poly(load.buffer.shape[dimension])
    is_covered = as_poly(axis.start).same(0) and as_poly(axis.stop).same(size)
    return axis if factor.same(1) and is_covered else None


def without_widening(index: PrimExpr) -> PrimExpr:
    """An index without conversions to wider integers."""
    match index:
        case Cast(dtype=wide, value=inner) if (
            inner.dtype.family == wide.family and inner.dtype.bits <= wide.bits
        ):
            return without_widening(inner)
        case _:
            return index


def wrapped_size(test: PrimExpr, yes: PrimExpr, no: PrimExpr) -> PrimExpr | None:
    """n, if the choice is that of i + n where the integer i is negative, else of i."""
    match test, yes:
        case LT(a=index, b=IntImm(value=0)), Add(a=moved, b=size) if (
            index.dtype.is_int
            and index.dtype == yes.dtype
            and bool(index == no)
            and bool(moved == no)
        ):
            return size
        case _:
            return None
