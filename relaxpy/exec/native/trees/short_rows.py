"""Outer-loop vectorisation: short rows are unrolled, and each lane of a vector is a row.

Results of a row stay in registers until it is complete. Adjacent elements of memory are then
written together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import TypeAlias, cast

from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Plan, Run, Tile
from relaxpy.exec.loops.plan.updates import Combine
from relaxpy.exec.machine.tuning import RowLanes, Vectors
from relaxpy.exec.native.trees.lanes import step_of
from relaxpy.exec.native.trees.program import KernelProgram, whole_runs
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import Call, IntImm, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass

Place: TypeAlias = tuple[int | Var, ...]
"""The place of an element of a row: numbers, and variables of the row and of enclosing loops."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The update of `register`: `initial` combined with all values, or else the only value."""

    register: BufferLoad
    combine: Combine | None
    initial: PrimExpr | None
    values: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ShortRows:
    """The steps of each iteration of `axis`, inside `outer`.

    `loads` are groups of adjacent elements of a row that are read first. `stores` are groups of
    registers that are written at the end, each with its element of memory.
    """

    outer: tuple[Axis, ...]
    axis: Axis
    loads: tuple[tuple[BufferLoad, ...], ...]
    steps: tuple[Step, ...]
    stores: tuple[tuple[tuple[BufferLoad, BufferLoad], ...], ...]

    @property
    def written(self) -> set[Buffer]:
        """The buffers of memory that are written."""
        return {element.buffer for pairs in self.stores for _, element in pairs}


@lru_cache(maxsize=1 << 6)
def short_rows(tree: Run | Tile, program: KernelProgram) -> ShortRows | None:
    """The steps of `tree` in rows of few elements; None if it is not suited."""
    members = list(whole_runs(tree))
    if not members or not all(map(_is_suited, members)):
        return None
    private = program.elided
    places: Iterable[tuple[tuple[Axis, ...], Axis]]
    if isinstance(tree, Tile):
        places, private = [((), tree.axis)], private | tree.local
    else:
        places = _places(tree.axes)
    for outer, axis in places:
        is_long = (axis.extent.constant or RowLanes.LEAST) >= RowLanes.LEAST
        are_short = is_long and all(_in_rows(run, outer, axis) for run in members)
        if are_short and any(_has_gaps(run, axis) for run in members):
            finder = _Finder(program.plan, private, outer, axis)
            rows = finder.result() if all(map(finder.add, members)) else None
            if rows is not None:
                return rows
    return None


def _in_rows(run: Run, outer: Sequence[Axis], axis: Axis) -> tuple[Axis, list[Axis]] | None:
    """The axis of a run whose iterations are rows, and its parallel loops within a row.

    None if there is no such axis, or if a loop within a row is long.
    """
    inner = [a for a in run.axes if all(a is not o for o in outer)]
    row = next((a for a in inner if a.has_bounds_of(axis)), None)
    within = [a for a in inner if a is not row]
    if row is None or not all(map(_is_short, (*within, *run.over))):
        return None
    return row, within


def _has_gaps(run: Run, axis: Axis) -> bool:
    """True if elements of neighbouring rows may not be adjacent in memory."""
    row = next((a for a in run.loops if a.has_bounds_of(axis)), axis)
    elements = {element for m in run.assignments for element in m.elements()}
    return any(step_of(BufferLoad(*element), row) not in (0, 1) for element in elements)


def _places(axes: Sequence[Axis]) -> Iterator[tuple[tuple[Axis, ...], Axis]]:
    """The loops around rows, and the axis whose iterations are rows.

    Short axes are in the rows; then, from the outermost one, around them.
    """
    long = [a for a in axes if not _is_short(a)]
    if not long:
        return
    last = axes.index(long[-1])
    short = [n for n in range(last) if _is_short(axes[n])]
    for first in (0, *(n + 1 for n in short)):
        yield tuple(a for n, a in enumerate(axes[:last]) if n < first or n not in short), axes[last]


def _is_suited(run: Run) -> bool:
    """True if a run only has parallel loops, accumulations, and unguarded statements."""
    own = {a.var for a in run.loops}
    return (
        not (run.after or run.tests or run.is_serial)
        and not any(m.guards for m in run.assignments)
        and not any(mentions(bound, own) for a in run.loops for bound in (a.start, a.stop))
    )


def _is_short(axis: Axis) -> bool:
    extent, start = axis.extent.constant, as_poly(axis.start).constant
    return extent is not None and start is not None and 0 < extent <= Vectors.LONGEST_STEP


class _UnsuitedError(Exception):
    """A statement is not supported in short rows."""


class _Elements:
    """The elements of a row in memory that is written.

    All of them are in buffers of the same `shape`, and have variables as the same indices.
    """

    def __init__(self) -> None:
        self.shape: tuple[PrimExpr, ...] | None = None
        self.form: tuple[Var | None, ...] | None = None
        self.known: dict[Place, tuple[BufferLoad, BufferLoad]] = {}
        """The register that has an element, and the element."""


class _Finder:
    """Collects the steps of runs, whose rows are the iterations of `axis`.

    The buffers in `private` have no memory of their own, or only that of a block of rows.
    """

    def __init__(
        self, plan: Plan, private: frozenset[Buffer], outer: tuple[Axis, ...], axis: Axis
    ) -> None:
        self.plan, self.private, self.outer, self.axis = plan, private, outer, axis
        self.steps: list[Step] = []
        self.written: dict[Buffer, _Elements] = {}
        """The elements of a row that are written, by the buffer whose memory has them."""
        self.read: dict[Buffer, dict[tuple[PrimExpr, ...], BufferLoad]] = {}
        """The elements of memory that are read, by their buffers and indices."""
        self.operations = 0
        self.longest = 1
        self.has_functions = self.accumulates = False
        self.has_rows = False
        """True if vectors with an element of each row are not consecutive in memory."""

    def add(self, run: Run) -> bool:
        """Add the steps of a run; False if it is not suited."""
        found = _in_rows(run, self.outer, self.axis)
        if found is None:
            return False
        row, within = found
        count = math.prod(a.extent.constant or 1 for a in (*within, *run.over))
        nodes = [node for m in run.assignments for node in walk(m.value)]
        calls = sum(isinstance(node, Call) for node in nodes)
        self.has_functions = self.has_functions or calls > 0
        self.accumulates = self.accumulates or bool(run.over)
        self.longest = max(self.longest, count)
        self.operations += count * (len(nodes) + RowLanes.FUNCTION * calls)
        if count > RowLanes.LONGEST or self.operations > RowLanes.OPERATIONS:
            return False
        return all(self._unroll(m, row, within, run.over) for m in run.assignments)

    def _unroll(
        self, member: Assignment, row: Axis, within: Sequence[Axis], over: Sequence[Axis]
    ) -> bool:
        """Add the steps of a statement; False if it is not suited."""
        if member.combine is None:
            within, over = (*within, *over), ()
        try:
            for numbers in _numbers(within):
                known = {row.var: self.axis.var, **numbers}
                parts = [member.substituted({**known, **more}) for more in _numbers(over)]
                values = tuple(map(self._known, (part.value for part in parts)))
                self.steps.append(self._step(parts[0], values))
        except _UnsuitedError:
            return False
        return True

    def _step(self, member: Assignment, values: tuple[PrimExpr, ...]) -> Step:
        element, initial = BufferLoad(member.target, member.indices), member.initial
        if member.combine is not None:
            initial = self._known(element if initial is None else initial)
        elements = self.written.setdefault(self.plan.root(member.target), _Elements())
        place = self._place(element, elements)
        if member.target not in self.private:
            self._note(element)
        memory = decl_buffer((self.axis.stop,), str(member.target.dtype), member.target.name)
        register = BufferLoad(memory, (self.axis.var,))
        elements.known[place] = register, element
        return Step(register, member.combine, initial, values)

    def _known(self, value: PrimExpr) -> PrimExpr:
        """A value, with registers instead of elements that the row has stored."""

        def rule(node: Node) -> Node | None:
            return self._read(node) if isinstance(node, BufferLoad) else None

        return cast("PrimExpr", rewrite(value, rule))

    def _read(self, load: BufferLoad) -> BufferLoad | None:
        elements = self.written.get(self.plan.root(load.buffer))
        if elements is not None:
            found = elements.known.get(self._place(load, elements))
            if found is not None:
                return found[0]
        if load.buffer in self.private:
            raise _UnsuitedError
        self._note(load)
        self.read.setdefault(load.buffer, {})[load.indices] = load
        return None

    def _place(self, element: BufferLoad, elements: _Elements) -> Place:
        """The place of an element of a row in memory that is written."""
        if elements.shape is None:
            elements.shape = element.buffer.shape
        pairs = zip(elements.shape, element.buffer.shape, strict=False)
        same = len(elements.shape) == len(element.buffer.shape)
        if not same or not all(as_poly(a).same(as_poly(b)) for a, b in pairs):
            raise _UnsuitedError
        variables = {self.axis.var, *(a.var for a in self.outer)}
        place: list[int | Var] = []
        for index in element.indices:
            number = as_poly(index).constant
            if isinstance(index, Var):  # of the row, or of a loop around the run
                place.append(index)
            elif number is not None:
                place.append(number)
            else:
                raise _UnsuitedError
        form = tuple(item if isinstance(item, Var) else None for item in place)
        elements.form = elements.form or form
        if form != elements.form or any(v not in form for v in variables):
            raise _UnsuitedError
        return tuple(place)

    def _note(self, element: BufferLoad) -> None:
        """Note an access of memory, which has to be that of near elements."""
        step = step_of(element, self.axis)
        if step is None or not 0 <= step <= Vectors.LONGEST_STEP:
            raise _UnsuitedError
        self.has_rows = self.has_rows or step > 1

    def result(self) -> ShortRows | None:
        """The steps, and the stores at the end; None if it does not pay."""
        most = Vectors.LONGEST_STEP - 1 if self.has_functions else RowLanes.CHEAP
        if not self.has_rows or (self.longest > most and not self.accumulates):
            return None
        loads = [
            group
            for elements in self.read.values()
            for group in _neighbours([*elements.values()], self.axis)
            if len(group) > 1
        ]
        stores: list[tuple[tuple[BufferLoad, BufferLoad], ...]] = []
        for elements in self.written.values():
            own = {e: r for r, e in elements.known.values() if e.buffer not in self.private}
            stores += (
                tuple((own[e], e) for e in group) for group in _neighbours([*own], self.axis)
            )
        if self.longest == 1 and all(len(group) == 1 for group in (*loads, *stores)):
            return None
        steps = tuple(self.steps)
        return ShortRows(self.outer, self.axis, tuple(loads), steps, tuple(stores))


def _neighbours(elements: Sequence[BufferLoad], axis: Axis) -> list[tuple[BufferLoad, ...]]:
    """The elements in memory order if they fill the memory of a row, or each alone."""
    if not elements:
        return []
    positions = [position_of(element.buffer, element.indices) for element in elements]
    distances = [(position - positions[0]).constant for position in positions]
    step, order = step_of(elements[0], axis), sorted(n for n in distances if n is not None)
    if step == len(elements) and order == [*range(order[0], order[0] + step)]:
        return [tuple(elements[distances.index(n)] for n in order)]
    return [(element,) for element in elements]


def _numbers(axes: Sequence[Axis]) -> Iterator[dict[Var, PrimExpr]]:
    """The numbers of each iteration of short axes."""
    starts = (as_poly(a.start).constant or 0 for a in axes)
    ranges = [range(n, n + (a.extent.constant or 0)) for n, a in zip(starts, axes, strict=True)]
    for values in product(*ranges):
        yield {a.var: IntImm(a.var.dtype, n) for a, n in zip(axes, values, strict=True)}
