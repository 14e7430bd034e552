"""Recognises idioms: scans, `C[i] = op(C[i - 1], e)`, and searches for the first position."""

from __future__ import annotations

from collections.abc import Container, Mapping

from relaxpy.exec.loops.nest.bounds import is_one_to_one
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Run, Scan
from relaxpy.exec.loops.plan.updates import update_from
from relaxpy.ir.arith.algebra.affine import Affine, affine
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Select, Var
from relaxpy.ir.tir.ops import int_range


def scan_of(
    statement: Assignment,
    axes: tuple[Axis, ...],
    shape_vars: Container[Var],
    roots: Mapping[Buffer, Buffer],
) -> Run | None:
    """`statement` over `axes` as a scan, or None; `roots` as in `edges`."""
    target = roots.get(statement.target, statement.target)
    reads = {v for v in loads(statement.value) if roots.get(v.buffer, v.buffer) is target}
    if len(reads) != 1 or statement.guards or statement.ordered or statement.target.dtype.is_bool:
        return None
    [before] = reads
    if before.buffer is not statement.target:
        return None
    update = update_from(statement.value, before)
    axis = _recurrence_axis(statement, before, axes)
    if update is None or axis is None or update.combine in ("and", "or"):
        return None
    variables = {a.var for a in axes}
    maps = [affine(i, variables) for i in statement.indices]
    affine_maps = [m for m in maps if m is not None]
    if len(affine_maps) != len(maps) or not is_one_to_one(affine_maps, axes, shape_vars):
        return None
    if {v for m in affine_maps for v in m.coefficients} != variables:
        return None
    others = tuple(a for a in axes if a is not axis)
    return Run((statement,), others, ordered=(axis,), idiom=Scan(update, before))


def _recurrence_axis(
    statement: Assignment, before: BufferLoad, axes: tuple[Axis, ...]
) -> Axis | None:
    """The axis along which `before` is the element that the previous iteration stores."""
    variables = {a.var for a in axes}
    axis: Axis | None = None
    for write, read in zip(statement.indices, before.indices, strict=True):
        if write is read:
            continue
        current, previous = affine(write, variables), affine(read, variables)
        if current is None or previous is None or axis is not None:
            return None
        if not _is_previous(previous, current):
            return None
        [var] = current.coefficients
        axis = next(a for a in axes if a.var is var)
    if axis is None:
        return None
    using = sum(
        m is not None and axis.var in m.coefficients
        for m in (affine(i, variables) for i in statement.indices)
    )
    return axis if using == 1 else None


def _is_previous(previous: Affine, current: Affine) -> bool:
    steps = [*current.coefficients.values()]
    if len(steps) != 1 or not (steps[0].same(1) or steps[0].same(-1)):
        return False
    return (current.poly() - previous.poly()).same(steps[0])


def searched_condition(run: Run) -> PrimExpr | None:
    """The condition if `run` only computes its first true position along one axis from 0, or None.

    It is the minimum of `Select(condition, position, none)`, starting from `none`, which is not
    less than any position.
    """
    match run.statements, run.over:
        case (
            [
                Assignment(
                    combine="min",
                    initial=IntImm(value=start),
                    value=Select(
                        condition=condition, true_value=position, false_value=IntImm(value=none)
                    ),
                )
            ],
            [axis],
        ) if position is axis.var and none == start:
            last = int_range(position.dtype)[1]
            if isinstance(axis.stop, IntImm):
                last = min(last, axis.stop.value - 1)
            starts = isinstance(axis.start, IntImm) and axis.start.value == 0
            return condition if starts and last <= none else None
        case _:
            return None
