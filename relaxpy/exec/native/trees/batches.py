"""Parallelises within the elements of a dynamic batch, which is most likely one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.tree import Row, Run, Tile
from relaxpy.exec.native.trees.program import KernelProgram
from relaxpy.exec.native.trees.short_rows import short_rows
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import replace

_LEAST: Final = 64
"""The elements from which a row is a block of its own."""


def within_batch(tile: Tile, program: KernelProgram) -> Tile | None:
    """Blocks of a row within one iteration of `tile`, each of which has one row of a batch.

    None if its steps have no other axis in common, along which they compute one row from another.
    """
    members = [run for run in tile.body if isinstance(run, Run)]
    if type(tile) is not Tile or tile.size != 1 or tile.single or short_rows(tile, program):
        return None
    if len(members) < len(tile.body) or any(run.is_scalar or run.tests for run in members):
        return None
    for axis in members[0].axes:
        axes = [next(_as_long(axis, run), None) for run in members] if _starts_at_0(axis) else []
        along = [a for a in axes if a is not None]
        if not along or len(along) < len(members):
            continue
        if max(map(_elements, members, along)) < _LEAST:
            continue
        rows = _rows(members, along, program)
        if rows is not None and rows.keys() >= tile.local:
            return _inner(tile, members, along, rows, program)
    return None


def _starts_at_0(axis: Axis) -> bool:
    return axis.extent.constant is not None and axis.extent.same(as_poly(axis.stop))


def _as_long(axis: Axis, run: Run) -> Iterator[Axis]:
    return (a for a in run.axes if a.has_bounds_of(axis))


def _elements(run: Run, along: Axis) -> int:
    """The elements of a row; unknown extents are assumed to be long."""
    return math.prod(a.extent.constant or _LEAST for a in run.loops if a is not along)


def _rows(
    members: Sequence[Run], along: Sequence[Axis], program: KernelProgram
) -> dict[Buffer, Row] | None:
    """The row of each buffer that steps write in an iteration; None if one has several."""
    root_of = program.plan.root
    rows: dict[Buffer, Row | None] = {}
    accessed: dict[Buffer, set[Buffer]] = {}
    for run, axis in zip(members, along, strict=True):
        for member in run.stores:
            for buffer, indices in member.elements():
                accessed.setdefault(root_of(buffer), set()).add(buffer)
                row = _row(indices, axis)
                rows[buffer] = row if rows.get(buffer, row) == row else None
    # Buffers with the same memory have to have the same rows of it.
    memory = {root_of(w.buffer) for run in members for m in run.stores for w in m.writes}
    found: dict[Buffer, Row] = {}
    for buffer in (b for owner in memory for b in accessed[owner]):
        row, first = rows[buffer], next(iter(accessed[root_of(buffer)]))
        if row is None or row != rows[first] or tuple(buffer.shape) != tuple(first.shape):
            return None
        found[buffer] = row
    return found


def _row(indices: Sequence[PrimExpr], axis: Axis) -> Row | None:
    """The row, if exactly one index is the axis plus a constant, and no other one mentions it."""
    using = [n for n, index in enumerate(indices) if mentions(index, {axis.var})]
    index = affine(indices[using[0]], {axis.var}) if len(using) == 1 else None
    if index is None or index.offset.constant is None or index.constant(axis.var) != 1:
        return None
    return Row(using[0], index.offset.constant)


def _inner(
    tile: Tile,
    members: Sequence[Run],
    along: Sequence[Axis],
    rows: dict[Buffer, Row],
    program: KernelProgram,
) -> Tile | None:
    """The blocks of one row."""
    row = along[0]
    body = tuple(
        replace(
            run,
            axes=tuple(a for a in run.axes if a is not axis),
            statements=tuple(s.substituted({axis.var: row.var}) for s in run.assignments),
            after=tuple(s.substituted({axis.var: row.var}) for s in run.after),
        )
        for run, axis in zip(members, along, strict=True)
    )
    single = {buffer: tile.rows[buffer].axis for buffer in tile.local}
    inner = replace(tile, axis=row, body=body, rows=rows, single=single)
    return None if short_rows(inner, program) else inner
