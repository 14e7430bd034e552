"""The report of how each statement of a kernel runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel.plan.statements import Compound
from relaxpy.exec.kernel.plan.steps import (
    ArgReduce,
    Blocked,
    Contract,
    Map,
    Plan,
    Reduce,
    Scalar,
    Scan,
    Scatter,
    Serial,
    Step,
)
from relaxpy.exec.kernel.row_blocks import CORES


@dataclass(frozen=True, slots=True)
class BlockReport:
    """How one block runs, and the `reason` if it does not run over whole arrays.

    `threads` is their number, at most, or "BLAS" where that decides.
    """

    block: str
    method: str
    reason: str = ""
    backend: str = "numpy"
    threads: str = "1"

    @property
    def is_scalar(self) -> bool:
        """Whether the block runs one element at a time."""
        return self.method == "scalar loop"


KernelReport = tuple[BlockReport, ...]


def report_of(plan: Plan) -> KernelReport:
    """One entry for each statement, in the order in which they run."""
    return tuple(entry for step in plan.steps for entry in _entries(step, "", ""))


def _entries(step: Step, prefix: str, reason: str) -> Iterator[BlockReport]:
    match step:
        case Serial(axis=axis, steps=steps, reason=why):
            for member in steps:
                yield from _entries(member, f"{prefix}loop over {axis.var.name}, ", why)
        case Blocked(steps=steps):
            for member in steps:
                for entry in _entries(member, f"{prefix}in row blocks, ", reason):
                    yield replace(entry, threads=str(CORES))
        case Scalar(statement=statement) if prefix:
            yield BlockReport(statement.name, "scalar loop", reason)
        case Scalar(statement=statement):
            why = statement.reason if isinstance(statement, Compound) else ""
            yield BlockReport(statement.name, "single element", why)
        case _:
            threads = "BLAS" if isinstance(step, Contract) else "1"
            method = prefix + _method(step)
            yield BlockReport(step.statement.name, method, reason, threads=threads)


def _method(step: Step) -> str:
    match step:
        case Map():
            return "elementwise"
        case Reduce(update=update, over=over):
            return f"{update.combine} reduction over {', '.join(a.var.name for a in over)}"
        case Contract(over=over):
            return f"contraction over {', '.join(a.var.name for a in over)}"
        case Scan(axis=axis, update=update):
            return f"{update.combine} scan over {axis.var.name}"
        case Scatter(update=update):
            return "scatter" if update is None else f"scatter ({update.combine})"
        case ArgReduce(extreme=extreme):
            name = "argmax" if extreme.order.maximum else "argmin"
            return f"{name} over {extreme.axis.var.name}"
        case _:
            return "steps"
