"""Steps that run together on blocks of rows: what passes between them stays in cache."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from relaxpy.exec.kernel.nest import Axis
from relaxpy.exec.kernel.parts import Access, Statement
from relaxpy.exec.kernel.plan import (
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
from relaxpy.ir.dtype import INT64
from relaxpy.ir.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.affine import affine, as_poly, mentions
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Call, ConstExpr, PrimExpr, Var
from relaxpy.ir.traverse import children

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
    run: list[Whole] = []
    axes: list[Axis] = []
    for step in steps:
        axis = (
            None
            if isinstance(step, (Serial, Scalar, Blocked))
            else _extended(run, axes, step, shared, fixed)
        )
        if axis is None:
            found += _closed(run, axes, steps, local, shared, sizes)
            run, axes = [], []
            if isinstance(step, Serial):
                step = replace(step, steps=block_rows(step.steps, (), shared, fixed, sizes))
            axis = (
                None
                if isinstance(step, (Serial, Scalar, Blocked))
                else _extended([], [], step, shared, fixed)
            )
        if axis is None:
            found.append(step)
        else:
            assert not isinstance(step, (Serial, Scalar, Blocked))
            run.append(step)
            axes.append(axis)
    return (*found, *_closed(run, axes, steps, local, shared, sizes))


def _extended(
    run: Sequence[Whole],
    axes: Sequence[Axis],
    step: Whole,
    shared: Mapping[Buffer, Buffer],
    fixed: Container[Buffer],
) -> Axis | None:
    """The axis of `step` along which it can join the run, or None."""
    if any(w.buffer in fixed for part in parts_in(step) for w in part.writes):
        return None
    if isinstance(step, (Scan, Scatter)) or (isinstance(step, Contract) and not _is_row_wise(step)):
        return None
    for axis in step.axes:
        alike = not axes or (
            as_poly(axis.start).same(as_poly(axes[0].start))
            and as_poly(axis.stop).same(as_poly(axes[0].stop))
        )
        if alike and _keeps_rows([*run, step], [*axes, axis], shared):
            return axis
    return None


def _is_row_wise(step: Contract) -> bool:
    """Whether each element needs rows of its own, so that there is no matrix to keep whole."""
    return all(mentions(f, {a.var}) for f in step.factors for a in step.axes)


def _keeps_rows(
    run: Sequence[Whole], axes: Sequence[Axis], shared: Mapping[Buffer, Buffer]
) -> bool:
    """Whether each round of the axes meets its own row of all memory written, and no other."""
    written = {w.buffer for step in run for part in parts_in(step) for w in part.writes}
    rows = _rows(run, axes, shared)
    return all(rows.get(shared.get(buffer, buffer)) is not None for buffer in written)


def _rows(
    run: Sequence[Whole], axes: Sequence[Axis], shared: Mapping[Buffer, Buffer]
) -> dict[Buffer, Row | None]:
    """The row of each buffer's memory, or None where it is not the same in all accesses."""
    rows: dict[Buffer, Row | None] = {}
    for step, axis in zip(run, axes, strict=True):
        for access in accesses(step):
            found = _row(access, axis)
            memory = shared.get(access.buffer, access.buffer)
            known = rows.setdefault(memory, found)
            if known is None or found is None or known != found:
                rows[memory] = None
    return rows


def _row(access: Access, axis: Axis) -> Row | None:
    """The row, if one dimension alone mentions the axis, and is that but for a constant."""
    using = [n for n, i in enumerate(access.indices) if mentions(i, {axis.var})]
    if len(using) != 1:
        return None
    index = affine(access.indices[using[0]], {axis.var})
    if index is None or not index.coefficients[axis.var].same(1) or index.offset.constant is None:
        return None
    return Row(using[0], index.offset.constant)


def _is_inside(buffer: Buffer, row: Row, axis: Axis, sizes: Container[Var]) -> bool:
    """Whether the rows of all rounds are proved to be in the buffer."""
    first, end = as_poly(axis.start) + row.offset, as_poly(axis.stop) + row.offset
    left = as_poly(buffer.shape[row.axis]) - end
    return first.is_at_least(0, sizes) and left.is_at_least(0, sizes)


def _closed(
    run: Sequence[Whole],
    axes: Sequence[Axis],
    steps: Sequence[Step],
    local: Container[Buffer],
    shared: Mapping[Buffer, Buffer],
    sizes: Container[Var],
) -> Sequence[Step]:
    """The run as one block if blocks are worth their while, else as it is."""
    if sum(map(_passes, run)) < _WORTH_IT:
        return run
    found = _rows(run, axes, shared)
    whole = {b: r for b, r in found.items() if r and _is_inside(b, r, axes[0], sizes)}
    touched = dict.fromkeys(a.buffer for step in run for a in accesses(step))
    rows = {b: whole[shared.get(b, b)] for b in touched if shared.get(b, b) in whole}
    inside = {id(part) for step in run for part in parts_in(step)}
    elsewhere = {
        shared.get(a.buffer, a.buffer)
        for step in flat(steps)
        if not any(id(part) in inside for part in parts_in(step))
        for a in accesses(step)
    }
    own = frozenset(b for b in whole if b in local and b not in elsewhere)
    low, high = Var("lo", INT64), Var("hi", INT64)
    stretched = tuple(
        _along(step, axis, Axis(axis.var, low, high)) for step, axis in zip(run, axes, strict=True)
    )
    return [Blocked(axes[0], low, high, stretched, rows, own, _row_bytes(run, axes))]


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
    """The operations on elements; those on indices are not among them."""
    waiting: list[Node] = [value]
    total = 0
    while waiting:
        part = waiting.pop()
        if isinstance(part, (BufferLoad, Var, ConstExpr)):
            continue
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
