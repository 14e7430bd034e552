"""Index-set splitting: cuts a loop at the only iteration that the others depend on.

In `D[i, j] = min(D[i, j], D[i, k] + D[k, j])` the iteration `k` of `j` writes what the others read.
Those before it and those after it are independent of each other, so that they can be lanes.
"""

from __future__ import annotations

from relaxpy.exec.loops.nest.bounds import bounds_of
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.dependence import independent_axes
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import For, Plan, Run, Tree
from relaxpy.exec.native.trees.lanes import lane_axis
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import replace


def in_pieces(run: Run, serial: tuple[Axis, ...], plan: Plan) -> tuple[Tree, ...]:
    """A serial run, whose innermost loop is split where that lets it be vectorised.

    `serial` are the loops around it.
    """
    match run:
        case Run(statements=[Assignment(combine=None, guards=()) as member], checked=False) if (
            run.ordered and not run.axes and not run.tests
        ):
            pass
        case _:
            return (run,)
    *outer, axis = run.ordered
    at = _conflict(member, axis, (*serial, *outer), plan)
    if at is None:
        return (run,)
    var = axis.var
    here, after = (place.expr() for place in (at, at + 1))
    parts: list[Tree] = []
    for piece in (Axis(var, axis.start, here), Axis(var, after, axis.stop)):
        alone = replace(member, axes=(piece,))
        free = independent_axes(alone, (), plan.shape_vars, plan.shared, reduces=False)
        part = replace(run, axes=(piece,), ordered=(), independent=free)
        if var not in free or lane_axis(part) is None:
            return (run,)
        parts.append(part)
    parts.insert(1, replace(run, ordered=(Axis(var, here, after),), independent=frozenset()))
    trees: tuple[Tree, ...] = tuple(parts)
    for loop in reversed(outer):
        trees = (For(loop, trees, f"iterations need the one in which {var.name} is {here}"),)
    return trees


def _conflict(
    member: Assignment, axis: Axis, outer: tuple[Axis, ...], plan: Plan
) -> IndexPoly | None:
    """The only iteration of `axis` that writes what others read, if it is provably one of them."""
    found: IndexPoly | None = None
    root = plan.root(member.target)
    for buffer, indices in member.read_elements():
        if plan.root(buffer) is not root or len(indices) != len(member.indices):
            continue
        for own, index in zip(member.indices, indices, strict=True):
            if own is not axis.var or mentions(index, {axis.var}):
                continue
            if found is not None and not found.same(as_poly(index)):
                return None
            found = as_poly(index)
    if found is None:
        return None
    linear = affine(found.expr(), {a.var for a in outer})
    ends = None if linear is None else bounds_of(linear, outer, plan.shape_vars)
    if ends is None:
        return None
    above, below = ends[0] - as_poly(axis.start), as_poly(axis.stop) - ends[1]
    inside = above.is_at_least(0, plan.shape_vars) and below.is_at_least(1, plan.shape_vars)
    return found if inside else None
