"""The order of dimensions in which a statement is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.parts import Statement
from relaxpy.ir.arith.algebra.affine import affine
from relaxpy.ir.tir.expr import PrimExpr, Var


def layout_of(statement: Statement, axes: Sequence[Axis], over: Sequence[Axis]) -> tuple[Axis, ...]:
    """The order of dimensions in which a statement is computed.

    That of the first load that runs through all axes, if the target keeps it; else the target's,
    the axes summed over last.
    """
    everything = {a.var: a for a in (*axes, *over)}
    target = _order(statement.indices, everything)
    for load in loads(statement.value):
        order = _order(load.indices, everything)
        if len(order) == len(everything) and [a for a in order if a in target] == target:
            return tuple(everything[v] for v in order)
    rest = [a for a in axes if a.var not in target]
    return (*(everything[v] for v in target), *rest, *over)


def _order(indices: Sequence[PrimExpr], axes: Mapping[Var, Axis]) -> list[Var]:
    found: list[Var] = []
    for index in indices:
        place = affine(index, axes)
        inside = list(place.coefficients) if place is not None else []
        inside.sort(key=lambda v: list(axes).index(v))
        found += [v for v in inside if v not in found]
    return found
