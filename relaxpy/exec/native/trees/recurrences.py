"""Recognises loop-carried dependences of distance one, such as scans, to keep them in registers."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import loads
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Run
from relaxpy.exec.loops.plan.updates import Update, update_from
from relaxpy.exec.machine.tuning import Vectors
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """A run whose innermost iterations read the element that the previous iteration stored.

    If it is a scan by an associative operation, `update` has that and its elements: vectors are
    combined. If it `has_chains`, the iterations of the loop around the innermost one are
    independent of each other.
    """

    before: BufferLoad
    update: Update | None
    has_chains: bool


def recurrence_of(run: Run, root: Callable[[Buffer], Buffer]) -> Recurrence | None:
    """The recurrence of a run that is executed in source order; None if it has none.

    `root` is the buffer whose memory a buffer uses.
    """
    if run.checked or not run.ordered or len(run.statements) != 1:
        return None
    statement = run.statement
    if not isinstance(statement, Assignment) or statement.guards:
        return None
    var = run.ordered[-1].var
    before = [substitute(index, {var: var - 1}) for index in statement.indices]
    for load in loads(statement.value):
        if load.buffer is statement.target and all(
            as_poly(a).same(as_poly(b)) for a, b in zip(load.indices, before, strict=True)
        ):
            return Recurrence(load, _prefix_of(run, load, root), _has_chains(run))
    return None


def _prefix_of(run: Run, before: BufferLoad, root: Callable[[Buffer], Buffer]) -> Update | None:
    """The operation of a scan and its elements; None unless it is associative.

    Sums of floats are not, while those of integers wrap.
    """
    [statement], var = run.assignments, run.ordered[-1].var
    value, target = statement.value, statement.target
    extent = run.ordered[-1].extent.constant
    update = update_from(value, before)
    if update is None or target.dtype.is_bool:
        return None
    if update.combine not in ("max", "min", *(("add",) if target.dtype.is_int else ())):
        return None
    if extent is not None and extent < Vectors.LEAST_RECURRENCES:
        return None
    if any(root(load.buffer) is root(target) for load in loads(update.operand)):
        return None
    step = affine(position_of(target, statement.indices), {var})
    return update if step is not None and step.constant(var) == 1 else None


def _has_chains(run: Run) -> bool:
    """True if the iterations of the loop around the innermost one are independent."""
    *_, outer, inner = (None, *run.loops)
    return (
        outer is not None
        and outer.var in run.independent
        and not mentions(inner.start, {outer.var})
        and not mentions(inner.stop, {outer.var})
    )
