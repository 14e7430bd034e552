"""The report of how each statement of a kernel runs, and its number of operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from relaxpy.exec.loops.nest.nodes import Axis, Branch, Item, Loop, Store, WhileLoop, loads
from relaxpy.exec.loops.nest.read import read
from relaxpy.exec.loops.plan.arg_extremes import ArgExtreme
from relaxpy.exec.loops.plan.statements import Assignment, Compound
from relaxpy.exec.loops.plan.tree import Contraction, For, Run, Scan, Tile, Tree
from relaxpy.exec.runtime.scalar import ScalarEvaluator
from relaxpy.exec.runtime.threads import thread_count
from relaxpy.ir.core.traverse import children, occurrences
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import BinaryOpExpr, Call, Cast, PrimExpr, Select, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace

_FEW_BITS = 8
_DECODES = (
    "NumPy decodes integers of few bits in each call, native code in the product that reads them; "
    "relax.FoldConstant.max_bytes decodes small ones once"
)


@dataclass(frozen=True, slots=True)
class BlockReport:
    """The method by which a block runs, and the `reason` if it is not over whole arrays.

    `threads` is their maximum number, or "BLAS" where BLAS decides. `varies` is the reason why the
    bits of results of native code depend on the CPU, if they do.
    """

    block: str
    method: str
    reason: str = ""
    backend: str = "numpy"
    threads: str = "1"
    varies: str = ""

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
                    yield replace(entry, threads=str(thread_count()))
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


class _UnknownError(Exception):
    """The number depends on data."""


Shape: TypeAlias = tuple[int, ...] | int | None
"""The shape of an array, an integer, or something else."""


def shape_of(arg: object) -> Shape:
    """The shape of an argument, for `operation_count`."""
    if isinstance(arg, np.ndarray):
        shape: tuple[int, ...] = arg.shape
        return shape
    return int(arg) if isinstance(arg, (int, np.integer)) else None


def operation_count(func: PrimFunc, shapes: Sequence[Shape]) -> int | None:
    """The arithmetic operations of a call according to its source; None if they depend on data.

    A function such as `exp` counts as one operation, those of indices and conditions do not count.
    Of the branches of a condition, the one with more operations counts.
    """
    shape_vars = frozenset(v for b in func.buffer_map.values() for v in b.shape if type(v) is Var)
    try:
        return _of_items(read(func, shape_vars).items, _sizes(func, shapes))
    except _UnknownError:
        return None


def _sizes(func: PrimFunc, shapes: Sequence[Shape]) -> dict[Var, PrimExpr]:
    """The values of the variables that the arguments determine."""
    values: dict[Var, PrimExpr] = {}
    for param, shape in zip(func.params, shapes, strict=False):
        buffer = func.buffer_of(param)
        if isinstance(shape, int):
            values[param] = ops.const(shape, param.dtype)
        elif buffer is not None and shape is not None:
            for size, value in zip(buffer.shape, shape, strict=False):
                if isinstance(size, Var):
                    values[size] = ops.const(value, size.dtype)
    return values


def _of_items(items: Sequence[Item], values: Mapping[Var, PrimExpr]) -> int:
    return sum(_of_item(item, values) for item in items)


def _of_item(item: Item, values: Mapping[Var, PrimExpr]) -> int:
    match item:
        case Loop(axis=axis, body=body):
            start, stop = (_number(bound, values) for bound in (axis.start, axis.stop))
            if stop <= start:
                return 0
            # Bounds that depend on outer loops are taken at their midpoints.
            middle = ops.const(start + (stop - start - 1) // 2, axis.var.dtype)
            return (stop - start) * _of_items(body, {**values, axis.var: middle})
        case Branch(body=body, orelse=orelse):
            return max(_of_items(body, values), _of_items(orelse, values))
        case Store(value=value):
            return _of_value(value)
        case WhileLoop():
            raise _UnknownError
        case _:
            return 0


def _number(expr: PrimExpr, values: Mapping[Var, PrimExpr]) -> int:
    known = substitute(expr, values)
    if next(occurrences(known, Var, BufferLoad), None) is not None:
        raise _UnknownError
    number: int = ScalarEvaluator({}).value(known)
    return number


def _of_value(expr: PrimExpr) -> int:
    match expr:
        case BufferLoad():
            return 0
        case (
            Select(true_value=yes, false_value=no)
            | Call(op=Op(name="tir.if_then_else"), args=(_, yes, no))
        ):
            return max(_of_value(yes), _of_value(no))
        case _:
            inner = sum(_of_value(c) for c in children(expr) if isinstance(c, PrimExpr))
            counts = isinstance(expr, (BinaryOpExpr, Call)) and expr.dtype.family != "bool"
            return inner + counts
