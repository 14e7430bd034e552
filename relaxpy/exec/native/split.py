"""Divides the outermost loops of a kernel into tasks that run in parallel.

The tasks and the partial sums that they compute follow from the sizes of the kernel alone: results
do not depend on the number of threads.

A dynamic batch is most likely one element, so tasks divide what is within its elements.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.dependence import may_run_at_once
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import For, Plan, Row, Run, Tile, Tree, runs
from relaxpy.exec.machine.tuning import Cost, Parallel, Weights
from relaxpy.exec.native.trees.cost import time_of
from relaxpy.exec.native.trees.lanes import lane_axis
from relaxpy.exec.native.trees.product import Product, product_of
from relaxpy.exec.native.trees.program import KernelProgram, Tasks
from relaxpy.exec.native.trees.repeated import RepeatedLoads
from relaxpy.exec.native.trees.short_rows import ShortRows, short_rows
from relaxpy.exec.native.trees.strategy import strategy_of
from relaxpy.exec.native.trees.transpose import Transpose, transpose_of
from relaxpy.exec.native.values.accumulate import identity_of
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import replace


class _Choice(NamedTuple):
    """The `outer` axes of tasks, the axis that is divided, and the size of its blocks."""

    outer: Sequence[Axis]
    axis: Axis
    size: int


class _Partial(NamedTuple):
    """A split reduction: tasks for partial ones, their buffers, and the run that combines these."""

    tasks: Tasks
    buffers: Sequence[Buffer]
    total: Run


def in_tasks(program: KernelProgram) -> KernelProgram:
    """`program` with parallel loops where they pay."""
    if program.is_short:
        return program
    partial: list[Buffer] = []
    trees = tuple(t for tree in program.trees for t in _outermost(tree, program, partial))
    return replace(
        program,
        trees=trees,
        partial=(*program.partial, *partial),
        written=program.written | frozenset(partial),
    )


def _outermost(tree: Tree, program: KernelProgram, partial: list[Buffer]) -> Iterator[Tree]:
    if isinstance(tree, Run):
        found = _partial(tree)
        if found is not None:
            partial += found.buffers
            yield found.tasks
            yield _divided(found.total, program)
            return
    yield _divided(tree, program)


def _divided(tree: Tree, program: KernelProgram) -> Tree:
    match tree:
        case For():
            return _of_loop(tree, program)
        case Tile(size=int(size)):
            return _of_rows(tree, size, program)
        case Run() if _is_worth(time_of(tree, ())):
            return _of_axes(tree, program)
        case _:
            return tree


def _of_loop(tree: For, program: KernelProgram) -> Tree:
    """The iterations of a loop as tasks, unless there are few and parts of them are divided."""
    axis, time = tree.axis, time_of(tree, [tree.axis])
    divided = tuple(_divided(part, program) for part in tree.body)
    is_same = all(a is b for a, b in zip(tree.body, divided, strict=True))
    is_long = is_same or (axis.extent.constant or 0) >= Parallel.FEW
    is_long &= axis.extent.constant != 1
    if is_long and _is_worth(time * axis.extent) and _in_any_order(tree, program.plan):
        low, high = _block()
        block = replace(tree, axis=Axis(axis.var, low, high))
        return Tasks((), axis, 1, low, high, block, time)
    return tree if is_same else replace(tree, body=divided)


def _of_rows(tree: Tile, size: int, program: KernelProgram) -> Tree:
    """The blocks of rows as tasks, or those in each iteration of a batch, where they pay."""
    axis, time = tree.axis, time_of(tree, [tree.axis])
    if not _is_worth(time * axis.extent):
        return tree
    low, high = _block()
    inner = within_batch(tree, program) if _is_worth(time) else None
    if inner is None or not (axis.extent.constant is None or _fits(inner, tree)):
        rows = replace(tree, axis=Axis(axis.var, low, high))
        return Tasks((), axis, size, low, high, rows, time * size)
    rows = replace(inner, axis=Axis(inner.axis.var, low, high))
    time = time_of(inner, [inner.axis])
    count = 1
    if axis.extent.constant is not None:  # each block computes the outer index
        count = min(max(1, Cost.GRAIN // (time.constant or 1)), _extent(inner.axis))
    return Tasks((axis,), inner.axis, count, low, high, rows, time * count)


def _fits(inner: Tile, tile: Tile) -> bool:
    """True if a row of an iteration of `tile` is contiguous and fits into a cache.

    Rows of matmuls are not computed one by one.
    """
    elements = max(math.prod(map(_extent, run.loops)) for run in runs((inner,)))
    return (
        elements <= Parallel.CACHED
        and all(row.axis == tile.rows[b].axis + 1 for b, row in inner.rows.items())
        and all(product_of(run) is None for run in runs((tile,)))
    )


def _in_any_order(tree: For, plan: Plan) -> bool:
    """True if the iterations of a loop may run in parallel."""
    statements = [s for run in runs((tree,)) for s in (*run.statements, *run.after)]
    return not plan.calls_functions and may_run_at_once(
        tree.axis, statements, plan.shape_vars, plan.shared
    )


def _of_axes(tree: Run, program: KernelProgram) -> Tree:
    """The loops of a run, which pay for tasks, as tasks."""
    plan, free = program.plan, _free_axes(tree)
    # A dynamic batch is most likely one, so its elements are divided if there are enough.
    batch = free[0] if free and free[0].extent.constant is None else None
    if batch is not None and not _is_worth(time_of(tree, [batch])):
        batch = None
    match strategy_of(tree, program):
        case Product():
            return tree
        case Transpose(along=along, across=across):
            longer = max(along, across, key=_extent)
            free = [a for a in free if a is longer or (a is not along and a is not across)]
            choice = _choice(free, longer, Parallel.SQUARES, batch)
        case ShortRows(axis=rows, outer=outside):
            kept = [a for a in free if any(a is loop for loop in (*outside, rows))]
            choice = _choice(kept, rows, Parallel.LANES, batch)
        case RepeatedLoads(rows=Axis() as rows, columns=columns):
            others = [a for a in free if a is not rows]
            choice = _choice(others, columns, Weights.PANEL, batch)
            if columns is not None and columns.extent.constant is None and columns in others:
                choice = choice or _Choice([], columns, Weights.PANEL)
        case _:
            lanes = None if tree.is_scalar else lane_axis(tree)
            choice = _choice(free, lanes, Parallel.LANES, batch)
            if (
                choice is None
                and lanes is not None
                and _may_be_long(lanes, tree, free, plan.shape_vars)
            ):
                choice = _Choice([], lanes, Parallel.LANES)
    if choice is None:
        return tree
    outer, axis, size = choice
    # One row is computed from another; of errors, the first one in the order of tasks counts.
    by_rows = any(a.var not in tree.independent for a in tree.axes) and not tree.checked
    by_rows = by_rows and axis is lane_axis(tree)
    time = time_of(tree, [*outer, axis])
    low, high = _block()
    block = Axis(axis.var, low, high)
    axes, ordered = (
        tuple(block if a is axis else a for a in loops if all(a is not o for o in outer))
        for loops in (tree.axes, tree.ordered)
    )
    body = replace(tree, axes=axes, ordered=ordered)
    return Tasks(tuple(outer), axis, size, low, high, body, time * size, parts_of_rows=by_rows)


def _may_be_long(axis: Axis, tree: Run, free: Sequence[Axis], shape_vars: Container[Var]) -> bool:
    """True if an axis of elements can be divided and has an extent that only a call knows.

    One that depends on an outer loop is tested too often. The axis starts at 0: the end of a block
    next to the largest index would overflow.
    """
    if tree.over or all(a is not axis for a in free):
        return False
    of_call = all(var in shape_vars for var in walk(axis.stop) if isinstance(var, Var))
    return axis.extent.constant is None and of_call and as_poly(axis.start).constant == 0


def _is_worth(time: IndexPoly) -> bool:
    """True if to run tasks for a time in picoseconds, which may be unknown."""
    return time.constant is None or time.constant >= 2 * Cost.GRAIN


def _block() -> tuple[Var, Var]:
    return Var("lo", INT64), Var("hi", INT64)


def _free_axes(tree: Run) -> list[Axis]:
    """The axes that can be divided: parallel ones whose bounds are known before the loops."""
    variables, loops = {a.var for a in tree.loops}, (*tree.axes, *tree.ordered)
    return [a for a in loops if a.var in tree.independent and _is_fixed(a, variables)]


def _is_fixed(axis: Axis, variables: Iterable[Var]) -> bool:
    bounds = (axis.start, axis.stop)
    return not any(mentions(b, set(variables)) or next(loads(b), None) is not None for b in bounds)


def _choice(
    axes: Sequence[Axis], along: Axis | None, least: int, batch: Axis | None = None
) -> _Choice | None:
    """The division into tasks, or None if there would be one.

    Blocks of the axis `along` have at least so many elements. The `batch` counts as one iteration,
    unless it is the only axis that can be divided.
    """
    if batch is not None and batch is not along and any(a is batch for a in axes):
        found = _choice([a for a in axes if a is not batch], along, least)
        if found is not None:
            outer, axis, size = found
            if not outer:
                size *= max(1, _extent(axis) // (Parallel.BLOCKS_OF_ONE * size))
            return _Choice([batch, *outer], axis, size)
    ordered = [a for a in axes if a is not along]
    ordered += [a for a in axes if a is along]
    blocks = 1
    for number, axis in enumerate(ordered):
        extent = _extent(axis)
        size = least if axis is along else 1
        if number and axis.extent.constant is not None:
            # Fewer blocks than iterations, since each of them computes the outer indices.
            unit = least if axis is along else 1
            size = max(size, -(-(extent // -(-Parallel.MANY // blocks)) // unit) * unit)
        total = blocks * -(-extent // size)
        if total >= Parallel.FEW or axis is ordered[-1]:
            return _Choice(ordered[:number], axis, size) if total > 1 else None
        blocks = total
    return None


def _extent(axis: Axis) -> int:
    extent = axis.extent.constant
    return Parallel.UNKNOWN if extent is None else max(extent, 1)


def _partial(run: Run) -> _Partial | None:
    """A split reduction; None if its results can be divided instead, or if it is too short."""
    is_worth = bool(run.accumulations) and _is_worth(time_of(run, ()))
    if not is_worth or product_of(run) is not None:
        return None
    axes, along = run.axes, lane_axis(run)
    variables = {a.var for a in run.loops}
    if not all(_is_fixed(a, variables) for a in run.loops) or run.is_serial:
        return None
    results = math.prod(map(_extent, axes))
    if any(along is a for a in axes):
        results //= Parallel.COLUMNS
    axis = next(
        (a for a in run.over if _extent(a) >= Parallel.FEW and a is not along), run.over[-1]
    )
    if results > Parallel.FEW or axis.var not in run.independent:
        return None
    time = time_of(run, [axis])
    size, extent = _size(axis, along, time.constant), axis.extent.constant
    if extent is not None and extent <= size:
        return None
    return _split(run, axis, size, time * size)


def _size(axis: Axis, along: Axis | None, time: int | None) -> int:
    """The iterations of `axis` in a partial reduction; each takes `time`."""
    size = Parallel.SHARE if time is None else max(Parallel.SHARE, 2 * Cost.GRAIN // max(time, 1))
    extent = axis.extent.constant
    if extent is not None:
        size = max(size, -(-extent // Cost.MOST_TASKS))
        if axis is along:
            size = max(size, min(Parallel.SEGMENT, extent // Parallel.FEW))
    unit = Parallel.LANES if axis is along else Parallel.UNROLLED
    return -(-size // unit) * unit


def _split(run: Run, axis: Axis, size: int, time: IndexPoly) -> _Partial:
    """The partial reductions of `size` iterations of `axis`, each of which takes `time`."""
    low, high = _block()
    extents = (_block_count(axis, size), *(a.extent.expr() for a in run.axes))
    shape = [ops.cast_to(n, INT64) for n in extents]
    number, every = (Axis(Var("stretch", INT64), IntImm(INT64, 0), shape[0]) for _ in range(2))
    members: list[Assignment] = []
    totals: list[Assignment] = []
    buffers: list[Buffer] = []
    position = [(as_poly(a.var) - as_poly(a.start)).expr() for a in run.axes]
    for member in run.assignments:
        if member.combine is None:
            members.append(member)
            continue
        dtype = member.target.dtype
        wide = "float32" if dtype.is_float and dtype.bits <= 16 else str(dtype)
        buffer = decl_buffer(shape, wide, f"{member.target.name}_parts")
        buffers.append(buffer)
        indices = (number.var, *position)
        first = identity_of(member.combine, buffer.dtype)
        part = replace(member, target=buffer, indices=indices, initial=first)
        members.append(part)
        totals.append(replace(member, value=BufferLoad(buffer, (every.var, *position)), guards=()))
    block = Axis(axis.var, low, high)
    over = tuple(block if a is axis else a for a in run.over)
    body = replace(run, over=over, statements=tuple(members))
    tasks = Tasks((), axis, size, low, high, body, time, number)
    independent = run.independent | {every.var}
    total = replace(run, over=(every,), statements=tuple(totals), independent=independent)
    return _Partial(tasks, buffers, total)


def _block_count(axis: Axis, size: int) -> PrimExpr:
    return ops.floordiv((axis.extent + (size - 1)).expr(), IntImm(INT64, size))


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
        if any(_are_lanes(a, run, program) for run, a in zip(members, along, strict=True)):
            continue
        if max(map(_elements, members, along)) < Parallel.LEAST_ROW:
            continue
        rows = _rows(members, along, program)
        if rows is not None and rows.keys() >= tile.local:
            return _inner(tile, members, along, rows, program)
    return None


def _starts_at_0(axis: Axis) -> bool:
    return axis.extent.constant is not None and axis.extent.same(as_poly(axis.stop))


def _as_long(axis: Axis, run: Run) -> Iterator[Axis]:
    return (a for a in run.axes if a.has_bounds_of(axis))


def _are_lanes(axis: Axis, run: Run, program: KernelProgram) -> bool:
    """True if iterations of an axis are the lanes of vectors, of those read or of those written."""
    transpose = transpose_of(run, program.plan.root)
    if transpose is not None:
        return axis is transpose.along or axis is transpose.across
    return len(run.loops) > 1 and lane_axis(run) is axis


def _elements(run: Run, along: Axis) -> int:
    """The elements of a row; unknown extents are assumed to be long."""
    return math.prod(a.extent.constant or Parallel.LEAST_ROW for a in run.loops if a is not along)


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
