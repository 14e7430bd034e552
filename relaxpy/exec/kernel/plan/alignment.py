"""Finds the iterations of two statements that access the same element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr, Var


def aligned_axes(
    indices: Sequence[PrimExpr],
    axes: Sequence[Axis],
    other_indices: Sequence[PrimExpr],
    other_axes: Sequence[Axis],
) -> dict[Var, PrimExpr] | None:
    """The values of `axes` in the iteration of `other_axes` that accesses the same element.

    None unless each iteration has exactly one counterpart, which the axes decide one by one, or one
    of `axes` for several others, whose iterations it numbers. An axis of one iteration needs no
    counterpart. Variables that are the same in both are left out.
    """
    own, others = {a.var: a for a in axes}, {a.var: a for a in other_axes}
    pairs: set[tuple[Var, Var]] = set()
    points: dict[Var, PrimExpr] = {}
    numbers: dict[Var, PrimExpr] = {}
    digits: list[Var] = []
    for index, other in zip(indices, other_indices, strict=True):
        f, g = affine(index, own), affine(other, others)
        if f is None or g is None or len(f.coefficients) > 1:
            return None
        if f.coefficients and len(g.coefficients) > 1:
            [x] = f.coefficients
            number = _number(f, own[x], g, others)
            if number is None or x in numbers:
                return None
            # The same expression where possible, so that both accesses have equal indices.
            value = other if isinstance(index, Var) else number.expr()
            numbers[x] = ops.cast_to(value, x.dtype)
            digits += g.coefficients
            continue
        if f.coefficients and g.coefficients:
            [(x, factor)], [(y, other_factor)] = f.coefficients.items(), g.coefficients.items()
            if not own[x].has_bounds_of(others[y]) or not factor.same(other_factor):
                return None
            pairs.add((x, y))
        elif len(g.coefficients) > 1:
            return None
        else:
            used = [own[x] for x in f.coefficients] + [others[y] for y in g.coefficients]
            if not all(axis.extent.same(1) for axis in used):
                return None
            points |= {axis.var: axis.start for axis in used}
            f, g = _at(f, points), _at(g, points)
        if not f.offset.same(g.offset):
            return None
    mine, theirs = [*{x for x, _ in pairs}, *numbers], [*{y for _, y in pairs}, *digits]
    if not len(set(mine)) == len(mine) == len(pairs) + len(numbers):
        return None
    if not len(set(theirs)) == len(theirs) == len(pairs) + len(digits):
        return None
    if not own.keys() <= {*mine, *points} or not others.keys() <= {*theirs, *points}:
        return None
    values = numbers | {x: ops.cast_to(start, x.dtype) for x, start in points.items() if x in own}
    return values | {x: ops.cast_to(y, x.dtype) for x, y in pairs if x is not y}


def _number(f: Affine, axis: Axis, g: Affine, others: Mapping[Var, Axis]) -> IndexPoly | None:
    """The value of `axis`, alone in `f`, where `g` has the value of `f`.

    None unless it numbers the iterations of all axes of `g`, one inside the other.
    """
    [factor] = f.coefficients.values()
    if factor.constant != 1:
        return None
    rest, count = dict(g.coefficients), as_poly(1)
    while rest:
        var = next((v for v, stride in rest.items() if stride.same(count)), None)
        if var is None:
            return None
        count = count * others[var].extent
        del rest[var]
    start = {var: others[var].start for var in g.coefficients}
    first = (_at(g, start).offset - f.offset).same(as_poly(axis.start))
    if not first or not count.same(axis.extent):
        return None
    return _at(g, {var: var for var in g.coefficients}).offset - f.offset


def _at(map: Affine, values: Mapping[Var, PrimExpr]) -> Affine:
    """`map` where its variables have these values."""
    terms = (factor * as_poly(values[var]) for var, factor in map.coefficients.items())
    return Affine({}, sum(terms, map.offset))
