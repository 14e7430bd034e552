"""Steps that run together on blocks of rows: what passes between them stays in cache."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.parts import Access, Statement
from relaxpy.exec.kernel.plan.steps import (
    ArgReduce,
    Blocked,
    Contract,
    Map,
    Reduce,
    Row,
    Scalar,
    Scan,
    Scatter,
    Serial,
    Step,
    Whole,
    accesses,
    flat,
    parts_in,
)
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Call, ConstExpr, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions

_COSTLY: frozenset[Node] = frozenset(
    Op(f"tir.{n}") for n in ("exp", "log", "tanh", "erf", "sigmoid", "pow", "sin", "cos")
)
_WORTH_IT = 4
"""Passes over the elements from which on blocks save more than they cost on small arrays."""


def block_rows(
    steps: Sequence[Step],
    local: Container[Buffer],
    shared: Mapping[Buffer, Buffer],
    fixed: Container[Buffer],
    sizes: Container[Var],
) -> tuple[Step, ...]:
    """`steps` with runs of them that share an axis, element for element, drawn into blocks.

    `local` are the buffers that nothing outside the kernel sees, `shared` gives for some buffers
    those whose memory they use. What writes to buffers in `fixed` stays by itself.
    """
    found: list[Step] = []
    run = _Run(shared)
    for step in steps:
        if not isinstance(step, (Serial, Scalar, Blocked)) and run.extended(step, fixed):
            continue
        found += _closed(run, steps, local, sizes)
        run = _Run(shared)
        if isinstance(step, Serial):
            step = replace(step, steps=block_rows(step.steps, (), shared, fixed, sizes))
        if isinstance(step, (Serial, Scalar, Blocked)) or not run.extended(step, fixed):
            found.append(step)
    return (*found, *_closed(run, steps, local, sizes))


@dataclass(slots=True)
class _Run:
    """Steps that share an axis, and the row of each memory that a round of it meets.

    It is None where not all accesses meet the same; of what is `written` there is one.
    """

    shared: Mapping[Buffer, Buffer]
    steps: list[Whole] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    rows: dict[Buffer, Row | None] = field(default_factory=dict)
    written: set[Buffer] = field(default_factory=set)

    def memory(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory `buffer` uses."""
        return self.shared.get(buffer, buffer)

    def extended(self, step: Whole, fixed: Container[Buffer]) -> bool:
        """Let `step` join the run along one of its axes, if that is possible."""
        writes = [w.buffer for part in parts_in(step) for w in part.writes]
        if any(buffer in fixed for buffer in writes) or isinstance(step, (Scan, Scatter)):
            return False
        if isinstance(step, Contract) and not _is_row_wise(step):
            return False
        written = self.written.union(map(self.memory, writes))
        for axis in step.axes:
            rows = self._rows(step, axis) if self._is_alike(axis) else {}
            if rows and all(rows[memory] is not None for memory in rows.keys() & written):
                self.steps.append(step)
                self.axes.append(axis)
                self.rows |= rows
                self.written = written
                return True
        return False

    def _is_alike(self, axis: Axis) -> bool:
        if not self.axes:
            return True
        start, stop = as_poly(self.axes[0].start), as_poly(self.axes[0].stop)
        return as_poly(axis.start).same(start) and as_poly(axis.stop).same(stop)

    def _rows(self, step: Whole, axis: Axis) -> dict[Buffer, Row | None]:
        """The rows of the memory that `step` meets, as far as they are those of the run."""
        rows: dict[Buffer, Row | None] = {}
        for access in accesses(step):
            memory, found = self.memory(access.buffer), _row(access, axis)
            known = rows.get(memory, self.rows.get(memory, found))
            rows[memory] = found if known == found else None
        return rows


def _is_row_wise(step: Contract) -> bool:
    """Whether each element needs rows of its own, so that there is no matrix to keep whole."""
    return all(mentions(f, {a.var}) for f in step.factors for a in step.axes)


def _row(access: Access, axis: Axis) -> Row | None:
    """The row, if one dimension alone mentions the axis, and is that but for a constant."""
    using = [n for n, i in enumerate(access.indices) if mentions(i, {axis.var})]
    if len(using) != 1:
        return None
    index = affine(access.indices[using[0]], {axis.var})
    if index is None or index.offset.constant is None:
        return None
    factor = index.coefficients.get(axis.var)
    if factor is None or not factor.same(1):
        return None
    return Row(using[0], index.offset.constant)


def _is_inside(buffer: Buffer, row: Row, axis: Axis, sizes: Container[Var]) -> bool:
    """Whether the rows of all rounds are proved to be in the buffer."""
    first, end = as_poly(axis.start) + row.offset, as_poly(axis.stop) + row.offset
    left = as_poly(buffer.shape[row.axis]) - end
    return first.is_at_least(0, sizes) and left.is_at_least(0, sizes)


def _closed(
    run: _Run, steps: Sequence[Step], local: Container[Buffer], sizes: Container[Var]
) -> Sequence[Step]:
    """The run as one block if blocks are worth their while, else as it is."""
    if sum(map(_passes, run.steps)) < _WORTH_IT:
        return run.steps
    axes = run.axes
    whole = {b: r for b, r in run.rows.items() if r and _is_inside(b, r, axes[0], sizes)}
    touched = dict.fromkeys(a.buffer for step in run.steps for a in accesses(step))
    rows = {b: whole[run.memory(b)] for b in touched if run.memory(b) in whole}
    inside = {id(part) for step in run.steps for part in parts_in(step)}
    elsewhere = {
        run.memory(a.buffer)
        for step in flat(steps)
        if not any(id(part) in inside for part in parts_in(step))
        for a in accesses(step)
    }
    own = frozenset(b for b in whole if b in local and b not in elsewhere)
    low, high = Var("lo", INT64), Var("hi", INT64)
    stretched = tuple(
        _along(step, axis, Axis(axis.var, low, high))
        for step, axis in zip(run.steps, axes, strict=True)
    )
    return [Blocked(axes[0], low, high, stretched, rows, own, _row_bytes(run.steps, axes))]


def _along(step: Whole, old: Axis, new: Axis) -> Whole:
    return replace(step, axes=tuple(new if a is old else a for a in step.axes))


def _passes(step: Whole) -> int:
    """How often the step goes over its elements; what takes long counts twice."""
    match step:
        case Map(statement=Statement(value=value)):
            return _operations(value)
        case Reduce(update=update):
            return 2 + _operations(update.operand)
        case Contract():
            return 2
        case ArgReduce(extreme=extreme):
            return 2 + _operations(extreme.operand)
        case _:
            return 0


def _operations(value: PrimExpr) -> int:
    """The operations on elements, each once; those on indices are not among them."""
    waiting: list[Node] = [value]
    total, met = 0, set[int]()
    while waiting:
        part = waiting.pop()
        if isinstance(part, (BufferLoad, Var, ConstExpr)) or id(part) in met:
            continue
        met.add(id(part))
        inner = list(children(part))
        costly = isinstance(part, Call) and part.op in _COSTLY
        total += 2 if costly else isinstance(part, PrimExpr)
        waiting += inner
    return total


def _row_bytes(run: Sequence[Whole], axes: Sequence[Axis]) -> PrimExpr:
    """The bytes that one round touches in buffers that have a row for it, constants folded."""
    sizes = as_poly(0)
    seen: set[Buffer] = set()
    for step, axis in zip(run, axes, strict=True):
        for access in accesses(step):
            using = {n for n, i in enumerate(access.indices) if mentions(i, {axis.var})}
            if not using or access.buffer in seen:
                continue
            seen.add(access.buffer)
            count = as_poly(access.buffer.dtype.itemsize)
            for n, size in enumerate(access.buffer.shape):
                if n not in using:
                    count = count * as_poly(size)
            sizes = sizes + count
    return ops.cast_to(sizes.expr(), INT64)
