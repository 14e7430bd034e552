"""Loops whose iterations need what the iteration before them stores, which stays in a register."""

from __future__ import annotations

from relaxpy.exec.kernel.nest.buffers import position_of
from relaxpy.exec.kernel.nest.nodes import loads
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Run
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import Max, Min, PrimExpr
from relaxpy.ir.tir.substitution import mentions, substitute

CHAINS = 4
"""The number of independent recurrences that run in turn, as each waits for its last result."""
_LEAST_LANES = 64
"""The iterations from which several of them run as the lanes of a vector."""


def recurrence_of(run: Run) -> BufferLoad | None:
    """The element that the last iteration of the innermost loop has stored; None if none is read.

    The result is the load in the only statement of a run that is executed in the order of the text.
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
            return load
    return None


def prefix_of(run: Run, before: BufferLoad) -> PrimExpr | None:
    """The elements of which a recurrence stores the extreme of all up to each one; None for others.

    Extremes do not depend on the order of their elements, so that vectors of them are combined.
    """
    [statement], var = run.assignments, run.ordered[-1].var
    value, target = statement.value, statement.target
    extent = run.ordered[-1].extent.constant
    if not isinstance(value, (Max, Min)) or target.dtype.is_bool:
        return None
    operand = value.b if is_load_of(value.a, before) else value.a
    if operand is value.a and not is_load_of(value.b, before):
        return None
    if extent is not None and extent < _LEAST_LANES:
        return None
    step = affine(position_of(target, statement.indices), {var})
    return operand if step is not None and step.constant(var) == 1 else None


def is_load_of(expr: PrimExpr, load: BufferLoad) -> bool:
    """Whether an expression is that element."""
    return (
        isinstance(expr, BufferLoad)
        and expr.buffer is load.buffer
        and all(
            as_poly(a).same(as_poly(b)) for a, b in zip(expr.indices, load.indices, strict=True)
        )
    )


def has_chains(run: Run) -> bool:
    """Whether the iterations of the loop around the innermost one are independent of each other."""
    *_, outer, inner = (None, *run.loops)
    return (
        outer is not None
        and outer.var in run.independent
        and not mentions(inner.start, {outer.var})
        and not mentions(inner.stop, {outer.var})
    )
