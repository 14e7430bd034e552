"""Finds searches for the first position of an extreme, for which libraries have one function."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from relaxpy.exec.kernel.nest.nodes import loads
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.steps import (
    Reduce,
    Search,
    Step,
    accesses,
    flatten_steps,
    searched_condition,
)
from relaxpy.exec.kernel.plan.updates import reduction_identity
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import EQ, Call, ConstExpr, Or, PrimExpr, Var
from relaxpy.ir.tir.substitution import substitute


def searches_of(
    steps: Sequence[Step], shared: Mapping[Buffer, Buffer], views: Mapping[Buffer, Buffer]
) -> dict[Assignment, Search]:
    """The statements that search for the position of an extreme.

    `shared` and `views` map buffers to those whose memory they use.
    """

    def owner(buffer: Buffer) -> Buffer:
        buffer = views.get(buffer, buffer)
        return shared.get(buffer, buffer)

    result = {}
    for number, step in enumerate(steps):
        if isinstance(step, Reduce):
            search = _search(steps[:number], step, owner)
            if search is not None:
                result[step.statement] = search
    return result


def unused_extremes(
    steps: Sequence[Step], searches: Mapping[Assignment, Search], local: Container[Buffer]
) -> dict[Buffer, Assignment]:
    """The computation of each buffer in `local` whose values no statement needs but `searches`."""
    extremes = {s.extreme.statement.target: s.extreme.statement for s in searches.values()}
    own = {*searches, *extremes.values()}
    others = (s for s in flatten_steps(steps) if s.statement not in own)
    used = {access.buffer for step in others for access in accesses(step)}
    return {b: extreme for b, extreme in extremes.items() if b in local and b not in used}


def _search(
    before: Sequence[Step], step: Reduce, owner: Callable[[Buffer], Buffer]
) -> Search | None:
    condition = searched_condition(step)
    pair = None if condition is None or step.statement.guards else _compared(condition)
    if pair is None:
        return None
    values, best = pair
    needed = {owner(best.buffer), *(owner(load.buffer) for load in loads(values))}
    for earlier in reversed(before):
        if isinstance(earlier, Reduce) and earlier.statement.target is best.buffer:
            expected = _extreme_at(earlier, best, step)
            is_same = expected is not None and bool(expected == values)
            return Search(values, earlier) if is_same else None
        writes = (w for s in flatten_steps((earlier,)) for w in s.statement.writes)
        if any(owner(write.buffer) in needed for write in writes):
            return None
    return None


def _compared(condition: PrimExpr) -> tuple[PrimExpr, BufferLoad] | None:
    """The value and the load that is its extreme, if the condition is that they are equal.

    A float may also be NaN.
    """
    match condition:
        case Or(a=EQ(a=a, b=BufferLoad() as best), b=Call(op=Op(name="tir.isnan"), args=(value,))):
            is_complete = bool(a == value)
        case EQ(a=a, b=BufferLoad() as best):
            is_complete = not a.dtype.is_float
        case _:
            return None
    return (a, best) if is_complete and a.dtype.numpy().isbuiltin == 1 else None


def _extreme_at(step: Reduce, load: BufferLoad, search: Reduce) -> PrimExpr | None:
    """The values of which `load`, an element of what `step` computes, is the extreme."""
    statement, combine = step.statement, step.update.combine
    if combine not in ("min", "max") or statement.guards or not step.always_initialises:
        return None
    if step.initial is None or len(step.over) != 1:
        return None
    if not bool(step.initial == reduction_identity(combine, statement.target.dtype)):
        return None
    [axis], [other] = step.over, search.over
    if not axis.has_bounds_of(other):
        return None
    values: dict[Var, PrimExpr] = {axis.var: other.var}
    for index, actual in zip(statement.indices, load.indices, strict=True):
        if isinstance(index, Var):
            values[index] = actual
        elif not isinstance(index, ConstExpr) or not bool(index == actual):
            return None
    return substitute(step.update.operand, values)
