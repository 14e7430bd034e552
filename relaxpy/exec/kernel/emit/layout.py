"""The order of axes in the arrays that a statement computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.ir.arith.algebra.affine import affine
from relaxpy.ir.tir.expr import PrimExpr, Var


def layout_of(
    statement: Assignment, axes: Sequence[Axis], over: Sequence[Axis]
) -> tuple[Axis, ...]:
    """The order of axes in the arrays that a statement computes.

    It is the order of the first load that uses all axes, if the target has the same; otherwise
    that of the target, with the reduction axes last.
    """
    all_axes = {a.var: a for a in (*axes, *over)}
    target = _order(statement.indices, all_axes)
    for load in loads(statement.value):
        order = _order(load.indices, all_axes)
        if len(order) == len(all_axes) and [a for a in order if a in target] == target:
            return tuple(all_axes[v] for v in order)
    rest = [a for a in axes if a.var not in target]
    return (*(all_axes[v] for v in target), *rest, *over)


def _order(indices: Sequence[PrimExpr], axes: Mapping[Var, Axis]) -> list[Var]:
    order: list[Var] = []
    for index in indices:
        linear = affine(index, axes)
        inside = list(linear.coefficients) if linear is not None else []
        inside.sort(key=lambda v: list(axes).index(v))
        order += [v for v in inside if v not in order]
    return order
