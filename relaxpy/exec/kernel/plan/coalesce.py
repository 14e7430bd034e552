"""Coalesces the axes of a statement, so that split loops become one again."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import permutations

from relaxpy.exec.kernel.nest.bounds import may_fail
from relaxpy.exec.kernel.nest.domain import split
from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.loops import canonical, coalesced_axis
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import replace


def coalesced(
    statement: Assignment, axes: tuple[Axis, ...], shape_vars: Container[Var]
) -> tuple[Assignment, tuple[Axis, ...]]:
    """`statement` with as few `axes` as possible; their iterations may run in any order.

    A guard on one axis becomes a bound of the axis.
    """
    while (result := _coalesced_once(statement, axes, shape_vars)) is not None:
        statement, axes = result
    return _guards_as_bounds(statement, axes, shape_vars)


def _coalesced_once(
    statement: Assignment, axes: tuple[Axis, ...], shape_vars: Container[Var]
) -> tuple[Assignment, tuple[Axis, ...]] | None:
    """Coalesce two of the axes, or return None if that is not possible.

    Whatever depends on the outer axis of a pair depends on the inner one, too.
    """
    if len(axes) < 2:
        return None
    exprs = (*statement.indices, *statement.guards, statement.value)
    loads = (load for e in exprs for load in occurrences(e, BufferLoad))
    used = [
        set(occurrences(e, Var))
        for e in (*exprs, *(index for load in loads for index in load.indices))
    ]
    pairs = (
        (outer, inner)
        for outer, inner in permutations(axes, 2)
        if all(inner.var in variables for variables in used if outer.var in variables)
    )
    return next(
        filter(None, (_coalesced_pair(statement, axes, *pair, shape_vars) for pair in pairs)), None
    )


def _coalesced_pair(
    statement: Assignment,
    axes: tuple[Axis, ...],
    outer: Axis,
    inner: Axis,
    shape_vars: Container[Var],
) -> tuple[Assignment, tuple[Axis, ...]] | None:
    pair = {outer.var, inner.var}
    if any(mentions(b, pair) for a in statement.axes for b in (a.start, a.stop)):
        return None
    joint = coalesced_axis(outer, inner, shape_vars)
    if joint is None:
        return None
    known = (*statement.axes, joint.axis)

    def changed(expr: PrimExpr) -> PrimExpr:
        return canonical(substitute(expr, {inner.var: joint.inner}), known, shape_vars)

    indices = tuple(map(changed, statement.indices))
    value, guards = changed(statement.value), tuple(map(changed, statement.guards))
    exprs = (*indices, value, *guards)
    if any(mentions(e, pair) for e in exprs):
        return None
    if not any(mentions(e, {joint.axis.var}) for e in exprs):
        return None

    def merged(old: Sequence[Axis]) -> tuple[Axis, ...]:
        remaining = (a for a in old if a.var is not inner.var)
        return tuple(joint.axis if a.var is outer.var else a for a in remaining)

    result = replace(
        statement, axes=merged(statement.axes), indices=indices, value=value, guards=guards
    )
    return result, merged(axes)


def _guards_as_bounds(
    statement: Assignment, axes: tuple[Axis, ...], shape_vars: Container[Var]
) -> tuple[Assignment, tuple[Axis, ...]]:
    """`statement` with guards on one axis as bounds of the axis; itself if it has no guards."""
    if not statement.guards:
        return statement, axes
    remaining: list[PrimExpr] = []
    stops = False
    for test in (t for guard in statement.guards for t in conjuncts(guard)):
        # A test that may stop the program must see all iterations that earlier tests leave.
        stops |= may_fail(test, statement.axes, shape_vars)
        boxes = None if stops else split(test, axes, shape_vars)
        if boxes is None or len(boxes.holds) != 1:
            remaining.append(test)
        else:
            [axes] = boxes.holds
    bounds = {a.var: a for a in axes}
    all_axes = tuple(bounds.get(a.var, a) for a in statement.axes)
    return replace(statement, axes=all_axes, guards=tuple(remaining)), axes
