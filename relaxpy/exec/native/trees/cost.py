"""The cost model: the picoseconds of loops on one thread, which decide the number of tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import (
    Axis,
    Item,
    Loop,
    WhileLoop,
    bodies,
    expressions,
    jumps,
    loads,
)
from relaxpy.exec.loops.plan.blocking import COSTLY
from relaxpy.exec.loops.plan.statements import Compound, expressions_of
from relaxpy.exec.loops.plan.tree import For, Run, Tile, Tree, runs
from relaxpy.exec.machine.tuning import Cost
from relaxpy.exec.native.trees.lanes import lane_axis
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.program import ObligationTests, Tasks
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.core.traverse import children, occurrences
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, outside_indices
from relaxpy.ir.tir.expr import Call, Div, FloorDiv, FloorMod, Mod, PrimExpr, Var


def time_of(tree: Tree, without: Sequence[Axis]) -> IndexPoly:
    """The time of `tree` in one iteration of the axes `without`."""
    match tree:
        case Run():
            return _iterations(tree.loops, without) * _of_run(tree)
        case For(axis=axis, body=body):
            return _iterations([axis], without) * _total(body, without)
        case Tile(axis=axis, low=low, body=body):
            inner = [a for t in body for a in _axes(t) if a.start is low]
            return _iterations([axis], without) * _total(body, inner)
        case Tasks():
            return as_poly(0)
        case ObligationTests(obligations=required):
            times = (
                _iterations(o.axes, without) * (Cost.ITERATION + _of_value(o.index))
                for o in required
            )
            return sum(times, as_poly(0))
        case _:
            raise AssertionError(f"an unknown tree: {tree}")


def has_long_tasks(tree: Tree) -> bool:
    """True if a task in `tree` may take so long that it polls signals."""
    match tree:
        case For(body=body):
            return any(map(has_long_tasks, body))
        case Tasks(outer=outer, axis=axis, size=size, body=inner, cost=cost):
            counts = [a.extent.constant for a in (*outer, axis)]
            blocks = math.prod(n for n in counts if n is not None) // size
            time = cost.constant
            if time is None:
                return any(map(_repeats, runs((inner,))))
            tasks = 1 if tree.parts_of_rows else Cost.MOST_TASKS
            return time * max(1, blocks // tasks) > Cost.LONG
        case _:
            return False


def _repeats(run: Run) -> bool:
    """True if a run may have many more iterations than its largest array has elements."""
    if product_of(run) is not None:
        return False  # its blocks are tasks that take the same short time
    axes = {a.var for a in run.loops if a.extent.constant is None}
    accesses = (access for m in run.assignments for access in m.elements())
    return not any(
        axes <= {v for index in indices for v in occurrences(index, Var)} for _, indices in accesses
    )


def _total(trees: Iterable[Tree], without: Sequence[Axis]) -> IndexPoly:
    return sum((time_of(tree, without) for tree in trees), as_poly(0))


def _axes(tree: Tree) -> tuple[Axis, ...]:
    match tree:
        case Run():
            return tree.loops
        case ObligationTests(obligations=required):
            return tuple(axis for o in required for axis in o.axes)
        case Tile(axis=axis):
            return (axis,)
        case _:
            return ()


def _iterations(axes: Iterable[Axis], without: Sequence[Axis]) -> IndexPoly:
    """The number of iterations of `axes`, except those `without`."""
    axes = list(axes)
    variables = {a.var for a in axes}
    total = as_poly(1)
    for axis in axes:
        if any(axis is other for other in without):
            continue
        extent = axis.extent
        has_loads = any(True for atom in extent.atoms() for _ in loads(atom))
        known = not extent.mentions(variables) and not has_loads
        total = total * (extent if known else as_poly(Cost.UNKNOWN))
    return total


@lru_cache(maxsize=1 << 6)
def _of_run(run: Run) -> int:
    """The time of one iteration of all loops."""
    if product_of(run) is not None:
        return Cost.PRODUCT
    along = None if run.is_scalar else lane_axis(run)
    first = run.statements[0]
    if isinstance(first, Compound):  # which is the only one
        return _of_items(first.items)
    if along is None:
        values = (e for statement in run.statements for e in expressions_of(statement))
        return Cost.ITERATION + sum(map(_of_value, values))
    total = 0
    seen: set[object] = set()
    for member in run.assignments:
        total += sum(map(_of_value, (member.value, *member.guards)))
        accesses = list(member.read_elements())
        if member.combine is None:
            accesses.append((member.target, member.indices))
        for buffer, indices in accesses:
            if (buffer, indices) not in seen:
                seen.add((buffer, indices))
                total += _of_access(buffer, indices, along.var)
    return max(total, Cost.SAME)  # sums of a number read nothing


def _of_items(items: Iterable[Item]) -> int:
    """The time of items in order; a loop that may end early has an unknown number of iterations."""
    total = 0
    for item in items:
        inner = sum(map(_of_items, bodies(item)))
        if isinstance(item, (Loop, WhileLoop)):
            extent = item.axis.extent.constant if isinstance(item, Loop) else None
            ends_early = isinstance(item, WhileLoop) or any(True for _ in jumps(item.body))
            inner *= Cost.UNKNOWN if extent is None or ends_early else max(extent, 0)
        else:
            inner += Cost.ITERATION + sum(map(_of_value, expressions(item)))
        total += inner
    return total


def _of_access(buffer: Buffer, indices: tuple[PrimExpr, ...], var: Var) -> int:
    position = position_of(buffer, indices)
    linear = affine(position, {var})
    step = None if linear is None else linear.constant(var)
    if step == 0:
        return Cost.SAME
    if step != 1:
        return Cost.GATHERED
    return Cost.BYTE * buffer.dtype.itemsize


def _of_value(value: PrimExpr) -> int:
    """The time of the operations on elements, not of those on indices."""
    total = 0
    for node in outside_indices(value):
        if isinstance(node, Call) and node.op in COSTLY:
            total += Cost.FUNCTION
        elif isinstance(node, (Div, FloorDiv, FloorMod, Mod)) and not node.dtype.is_float:
            total += Cost.DIVISION
        elif not isinstance(node, BufferLoad) and any(True for _ in children(node)):
            total += Cost.OPERATION
    return total


def has_long_code(run: Run, count: int) -> bool:
    """True if the code of `count` iterations of a run is much longer than that of a loop."""
    return count * sum(_of_value(m.value) for m in run.assignments) >= Cost.LONG_CODE
