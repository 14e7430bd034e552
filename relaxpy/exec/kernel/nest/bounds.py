"""How far indices reach over the rounds of loops."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeGuard

from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir.buffer import BufferLoad, Range
from relaxpy.ir.tir.expr import BinaryOpExpr, Div, FloorDiv, FloorMod, IntImm, Mod, PrimExpr, Var


def extremes(
    f: Affine, axes: Sequence[Axis], sizes: Container[Var]
) -> tuple[IndexPoly, IndexPoly] | None:
    """The least and the greatest value over all rounds, or None if some sign is open.

    Bounds that depend on axes further out are followed outward, so that no axis is left in them.
    """
    loops = {a.var for a in axes}
    if not loops.issuperset(f.coefficients):
        return None
    low = high = f
    for axis in reversed(axes):
        ends = (
            _end(low, axis, loops, sizes, upper=False),
            _end(high, axis, loops, sizes, upper=True),
        )
        if ends[0] is None or ends[1] is None:
            return None
        low, high = ends[0], ends[1]
    return low.offset, high.offset


def reach(
    axis: Axis, axes: Sequence[Axis], sizes: Container[Var]
) -> tuple[IndexPoly, IndexPoly] | None:
    """The first and the last value that one of `axes` takes in any round of those around it."""
    return extremes(Affine({axis.var: as_poly(1)}, as_poly(0)), axes, sizes)


def is_inside(index: PrimExpr, size: PrimExpr, axes: Sequence[Axis], sizes: Container[Var]) -> bool:
    """Whether `index` is proved to lie in a dimension of `size` in every round of `axes`."""
    found = affine(index, {a.var for a in axes})
    return found is not None and affine_inside(found, size, axes, sizes)


def has_stretch(
    stretch: Range, size: PrimExpr, axes: Sequence[Axis], sizes: Container[Var]
) -> bool:
    """Whether `stretch` is proved to lie in a dimension of `size` in every round of `axes`."""
    loops = {a.var for a in axes}
    first, stop = affine(stretch.min, loops), affine(stretch.stop, loops)
    low = None if first is None else extremes(first, axes, sizes)
    high = None if stop is None else extremes(stop, axes, sizes)
    if low is None or high is None:
        return False
    return low[0].is_at_least(0, sizes) and (as_poly(size) - high[1]).is_at_least(0, sizes)


def may_fail(expr: PrimExpr, axes: Sequence[Axis], sizes: Container[Var]) -> bool:
    """Whether a load in `expr` may leave its buffer, or an integer be divided by zero."""
    return any(
        not all(
            is_inside(index, size, axes, sizes)
            for index, size in zip(part.indices, part.buffer.shape, strict=True)
        )
        if isinstance(part, BufferLoad)
        else may_divide_by_zero(part)
        for part in walk(expr)
    )


def keeps_divisions(expr: PrimExpr, found: PrimExpr, axes: Sequence[Axis] = ()) -> bool:
    """Whether `found`, equal to `expr`, still stops the program where `expr` divides by zero.

    Neither a size of a loop in `axes` is zero while it runs, nor a factor of one.
    """
    lost = {part.b for part in walk(expr) if may_divide_by_zero(part)}
    if lost:
        lost -= {part.b for part in walk(found) if may_divide_by_zero(part)}
    if not lost:
        return True
    sizes = [as_poly(axis.stop) - as_poly(axis.start) for axis in axes]
    factors = {atom for size in sizes if len(size.terms) == 1 for atom in size.atoms()}
    return all(
        any(as_poly(divisor).same(size) for size in sizes)
        or (len(as_poly(divisor).terms) == 1 and factors.issuperset(as_poly(divisor).atoms()))
        for divisor in lost
    )


def may_divide_by_zero(node: Node) -> TypeGuard[BinaryOpExpr]:
    """Whether `node` divides integers by what is not a number other than zero."""
    match node:
        case Div(b=b) | Mod(b=b) | FloorDiv(b=b) | FloorMod(b=b) if b.dtype.is_int:
            return not (isinstance(b, IntImm) and b.value != 0)
        case _:
            return False


def affine_inside(
    index: Affine, size: PrimExpr, axes: Sequence[Axis], sizes: Container[Var]
) -> bool:
    """As `is_inside`, of an affine map."""
    found = extremes(index, axes, sizes)
    if found is None:
        return False
    low, high = found
    return low.is_at_least(0, sizes) and (as_poly(size) - 1 - high).is_at_least(0, sizes)


def _end(
    index: Affine, axis: Axis, loops: set[Var], sizes: Container[Var], *, upper: bool
) -> Affine | None:
    factor = index.coefficients.get(axis.var)
    if factor is None:
        return index
    rising = factor.is_at_least(0, sizes)
    if not rising and not (factor * -1).is_at_least(0, sizes):
        return None
    bound = affine(as_poly(axis.stop) - 1 if rising == upper else axis.start, loops)
    if bound is None:
        return None
    left = {var: c for var, c in index.coefficients.items() if var is not axis.var}
    found = Affine(left, index.offset + factor * bound.offset)
    if not bound.coefficients:
        return found
    return affine(found.poly() + factor * (bound.poly() - bound.offset), loops)


def is_injective(f: Affine, axes: Sequence[Axis], sizes: Container[Var]) -> bool:
    """Whether the map, like digits of a number, takes no value twice."""
    width = as_poly(0)
    ordered = sorted(f.coefficients.items(), key=lambda item: _weight(item[1]))
    for var, factor in ordered:
        if not (factor - width).is_at_least(1, sizes):
            return False
        ends = reach(next(a for a in axes if a.var is var), axes, sizes)
        if ends is None:
            return False
        width = width + factor * (ends[1] - ends[0])
    return True


def _weight(factor: IndexPoly) -> tuple[int, int]:
    constant = factor.constant
    return max(map(len, factor.terms), default=0), constant if constant is not None else 0


def is_one_to_one(maps: Sequence[Affine], axes: Sequence[Axis], sizes: Container[Var]) -> bool:
    """Whether different rounds of the axes that occur in `maps` always lie at different places."""
    unknown = {v for m in maps for v in m.coefficients}
    while unknown:
        found: set[Var] = set()
        for m in maps:
            left = {v: c for v, c in m.coefficients.items() if v in unknown}
            alone = len(left) == 1 and next(iter(left.values())).constant is not None
            if alone or (left and is_injective(Affine(left, as_poly(0)), axes, sizes)):
                found |= set(left)
        if not found:
            return False
        unknown -= found
    return True
