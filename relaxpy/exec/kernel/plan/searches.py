"""Recognises accumulations that search for the first position where a condition holds."""

from __future__ import annotations

from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Run
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Select
from relaxpy.ir.tir.ops import int_range


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
