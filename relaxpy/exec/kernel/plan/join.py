"""Statements over split loops, as over the loops that were split."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import permutations

from relaxpy.exec.kernel.nest.bounds import may_fail
from relaxpy.exec.kernel.nest.domain import conjuncts, divide
from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.loops import canonical, joint_axis
from relaxpy.exec.kernel.plan.parts import Statement
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute


def joined(
    statement: Statement, axes: tuple[Axis, ...], sizes: Container[Var]
) -> tuple[Statement, tuple[Axis, ...]]:
    """`statement` where `axes`, whose rounds may come in any order, are joined where they can be.

    A condition on one of them becomes a bound of it.
    """
    while (found := _once(statement, axes, sizes)) is not None:
        statement, axes = found
    return _bounded(statement, axes, sizes)


def _once(
    statement: Statement, axes: tuple[Axis, ...], sizes: Container[Var]
) -> tuple[Statement, tuple[Axis, ...]] | None:
    """Two of the axes joined, or None where no two can be."""
    pairs = permutations(axes, 2)
    return next(filter(None, (_pair(statement, axes, *pair, sizes) for pair in pairs)), None)


def _pair(
    statement: Statement,
    axes: tuple[Axis, ...],
    outer: Axis,
    inner: Axis,
    sizes: Container[Var],
) -> tuple[Statement, tuple[Axis, ...]] | None:
    pair = {outer.var, inner.var}
    if any(mentions(b, pair) for a in statement.axes for b in (a.start, a.stop)):
        return None
    joint = joint_axis(outer, inner, sizes)
    if joint is None:
        return None

    def changed(expr: PrimExpr) -> PrimExpr:
        return canonical(substitute(expr, {inner.var: joint.inner}))

    indices = tuple(map(changed, statement.indices))
    value, guards = changed(statement.value), tuple(map(changed, statement.guards))
    parts = (*indices, value, *guards)
    if any(mentions(e, pair) for e in parts) or not any(
        mentions(e, {joint.axis.var}) for e in parts
    ):
        return None

    def merged(old: Sequence[Axis]) -> tuple[Axis, ...]:
        kept = (a for a in old if a.var is not inner.var)
        return tuple(joint.axis if a.var is outer.var else a for a in kept)

    found = replace(
        statement, axes=merged(statement.axes), indices=indices, value=value, guards=guards
    )
    return found, merged(axes)


def _bounded(
    statement: Statement, axes: tuple[Axis, ...], sizes: Container[Var]
) -> tuple[Statement, tuple[Axis, ...]]:
    """`statement` with conditions on one axis as its bounds."""
    left: list[PrimExpr] = []
    stops = False
    for test in (t for guard in statement.guards for t in conjuncts(guard)):
        # What may stop the program is asked in all rounds that the tests before it leave.
        stops |= may_fail(test, statement.axes, sizes)
        found = None if stops else divide(test, axes, sizes)
        if found is None or len(found.holds) != 1:
            left.append(test)
        else:
            [axes] = found.holds
    bounds = {a.var: a for a in axes}
    every = tuple(bounds.get(a.var, a) for a in statement.axes)
    return replace(statement, axes=every, guards=tuple(left)), axes
