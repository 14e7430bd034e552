"""The report of how each statement of a kernel runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from relaxpy.exec.kernel import row_blocks
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.arg_extremes import ArgExtreme
from relaxpy.exec.kernel.plan.statements import Assignment, Compound
from relaxpy.exec.kernel.plan.tree import Contraction, For, Run, Scan, Tile, Tree
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import Call, Cast, PrimExpr
from relaxpy.support.dataclass import dataclass, replace

_FEW_BITS = 8
_DECODES = (
    "NumPy decodes integers of few bits in each call, native code in the product that reads them"
)


@dataclass(frozen=True, slots=True)
class BlockReport:
    """The method by which a block runs, and the `reason` if it is not over whole arrays.

    `threads` is their maximum number, or "BLAS" where BLAS decides.
    """

    block: str
    method: str
    reason: str = ""
    backend: str = "numpy"
    threads: str = "1"

    @property
    def is_scalar(self) -> bool:
        """True if the block runs one element at a time."""
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
            why = reason or (_DECODES if _decodes(tree) else "")
            yield BlockReport(statement.name, prefix + _method(tree), why, threads=threads)
        case Run(statement=statement) if prefix:
            yield BlockReport(statement.name, "scalar loop", reason)
        case Run(statement=statement):
            why = statement.reason if isinstance(statement, Compound) else ""
            yield BlockReport(statement.name, "single element", why)
        case _:
            pass


def _decodes(run: Run) -> bool:
    """True if a run dequantises packed integers."""
    if run.store is None or not run.store.value.dtype.is_float:
        return False
    value = run.store.value
    integers = [c.value for c in occurrences(value, Cast) if c.dtype.is_float]
    has_scale = any(load.buffer.dtype.is_float for load in loads(value))
    return has_scale and any(map(_has_few_bits, integers))


def _has_few_bits(value: PrimExpr) -> bool:
    """True if a value is one of several integers packed in an element, or has 8 bits."""
    match value:
        case BufferLoad():
            return value.dtype.is_int and value.dtype.bits <= _FEW_BITS
        case Call(op=Op(name="tir.bitwise_and"), args=(Call(op=Op(name="tir.shift_right")), _)):
            return True
        case _:
            return False


def _method(run: Run) -> str:
    """The execution method of a run's iterations."""
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
