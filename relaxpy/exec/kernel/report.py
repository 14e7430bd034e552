"""The report of how each statement of a kernel runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from relaxpy.dataclass import dataclass, replace
from relaxpy.exec.kernel import row_blocks
from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.arg_extremes import ArgExtreme
from relaxpy.exec.kernel.plan.statements import Assignment, Compound
from relaxpy.exec.kernel.plan.tree import Contraction, For, Run, Scan, Tile, Tree


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


def report_of(trees: Iterable[Tree]) -> KernelReport:
    """One entry for each statement, in the order in which they run."""
    return tuple(entry for tree in trees for entry in _entries(tree, "", ""))


def _entries(tree: Tree, prefix: str, reason: str) -> Iterator[BlockReport]:
    match tree:
        case For(axis=axis, body=body, reason=why):
            for member in body:
                yield from _entries(member, f"{prefix}loop over {axis.var.name}, ", why)
        case Tile(body=runs):
            for run in runs:
                for entry in _entries(run, f"{prefix}in row blocks, ", reason):
                    yield replace(entry, threads=str(row_blocks.threads()))
        case Run(statement=statement) if tree.loops:
            threads = "BLAS" if isinstance(tree.idiom, Contraction) else "1"
            yield BlockReport(statement.name, prefix + _method(tree), reason, threads=threads)
        case Run(statement=statement) if prefix:
            yield BlockReport(statement.name, "scalar loop", reason)
        case Run(statement=statement):
            why = statement.reason if isinstance(statement, Compound) else ""
            yield BlockReport(statement.name, "single element", why)
        case _:
            pass


def _method(run: Run) -> str:
    """How the iterations of a run are executed."""
    update = run.statement.update if isinstance(run.statement, Assignment) else None
    match run.idiom:
        case Contraction():
            return f"contraction over {_names(run.over)}"
        case Scan(update=accumulated):
            return f"{accumulated.combine} scan over {_names(run.ordered)}"
        case ArgExtreme(order=order):
            return f"{'argmax' if order.maximum else 'argmin'} over {_names(run.ordered)}"
        case _ if run.ordered:
            return "scatter" if update is None else f"scatter ({update.combine})"
        case _ if run.over and update is not None:
            return f"{update.combine} reduction over {_names(run.over)}"
        case _:
            return "elementwise"


def _names(axes: Sequence[Axis]) -> str:
    return ", ".join(axis.var.name for axis in axes)
