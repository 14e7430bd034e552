"""Loads at computed places along one dimension: whole rows are taken at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.substitution import mentions


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """Of dimension `axis` the places `index`, which differ over `over`; of all others, all."""

    axis: int
    index: PrimExpr
    over: tuple[Axis, ...]


def taken(load: BufferLoad, layout: Sequence[Axis]) -> Taken | None:
    """How `load` takes rows in all rounds of `layout`, in its order; None if it does not."""
    computed = [n for n, i in enumerate(load.indices) if _own(i, load, n, layout) is None]
    if len(computed) != 1:
        return None
    [axis] = computed
    before = [_own(i, load, n, layout) for n, i in enumerate(load.indices[:axis])]
    after = [
        _own(i, load, n, layout) for n, i in enumerate(load.indices[axis + 1 :], start=axis + 1)
    ]
    over = tuple(layout[len(before) : len(layout) - len(after)])
    order = [*before, *over, *after]
    if len(order) != len(layout) or any(a is not b for a, b in zip(order, layout, strict=True)):
        return None
    index = load.indices[axis]
    own = {a.var for a in over}
    others = {a.var for a in layout} - own
    if mentions(index, others) or not all(mentions(index, {v}) for v in own):
        return None
    return Taken(axis, index, over) if over else None


def _own(index: PrimExpr, load: BufferLoad, dimension: int, layout: Sequence[Axis]) -> Axis | None:
    """The axis that runs through the whole dimension, if `index` is that alone."""
    variables = {a.var for a in layout}
    found = affine(index, variables)
    if found is None or len(found.coefficients) != 1 or not found.offset.same(0):
        return None
    [(var, factor)] = found.coefficients.items()
    axis = next(a for a in layout if a.var is var)
    size = as_poly(load.buffer.shape[dimension])
    whole = as_poly(axis.start).same(0) and as_poly(axis.stop).same(size)
    return axis if factor.same(1) and whole else None
