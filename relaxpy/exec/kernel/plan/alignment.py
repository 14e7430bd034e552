"""Which iterations of two statements access one element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.ir.arith.algebra.affine import Affine, affine, as_poly
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr, Var


def aligned_axes(
    indices: Sequence[PrimExpr],
    axes: Sequence[Axis],
    other_indices: Sequence[PrimExpr],
    other_axes: Sequence[Axis],
) -> dict[Var, PrimExpr] | None:
    """The values of `axes` in the iteration of `other_axes` that accesses the same element.

    None unless each iteration has exactly one counterpart, which the axes decide one by one. An
    axis of one iteration needs no counterpart. Variables that are the same in both are left out.
    """
    own, others = {a.var: a for a in axes}, {a.var: a for a in other_axes}
    pairs: set[tuple[Var, Var]] = set()
    points: dict[Var, PrimExpr] = {}
    for index, other in zip(indices, other_indices, strict=True):
        f, g = affine(index, own), affine(other, others)
        if f is None or g is None or len(f.coefficients) > 1 or len(g.coefficients) > 1:
            return None
        if f.coefficients and g.coefficients:
            [(x, factor)], [(y, other_factor)] = f.coefficients.items(), g.coefficients.items()
            if not own[x].has_bounds_of(others[y]) or not factor.same(other_factor):
                return None
            pairs.add((x, y))
        else:
            used = [own[x] for x in f.coefficients] + [others[y] for y in g.coefficients]
            if not all(axis.extent.same(1) for axis in used):
                return None
            points |= {axis.var: axis.start for axis in used}
            f, g = _at(f, points), _at(g, points)
        if not f.offset.same(g.offset):
            return None
    mine, theirs = {x for x, _ in pairs}, {y for _, y in pairs}
    if not len(mine) == len(theirs) == len(pairs):
        return None
    if not own.keys() <= mine | points.keys() or not others.keys() <= theirs | points.keys():
        return None
    values = {x: ops.cast_to(start, x.dtype) for x, start in points.items() if x in own}
    return values | {x: ops.cast_to(y, x.dtype) for x, y in pairs if x is not y}


def _at(map: Affine, values: Mapping[Var, PrimExpr]) -> Affine:
    """`map` where its variables have these values."""
    terms = (factor * as_poly(values[var]) for var, factor in map.coefficients.items())
    return Affine({}, sum(terms, map.offset))
