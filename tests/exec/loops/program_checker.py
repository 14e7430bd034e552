"""Replays the programs of native code as `schedule_checker` replays plans.

Where the order of iterations makes no difference, according to a program, they run backwards. Each
statement runs in all lanes of a vector before the next one does, and there are few lanes or many.
What is in registers is lost after the lanes. Obligations are tested with the values that elements
have where the program tests them, and have to hold. What a stretch of a loop accumulates into
memory of the program is accumulated into the element where the program combines the stretches.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any
from unittest import mock

from relaxpy.exec.loops.nest.nodes import Axis, Store
from relaxpy.exec.loops.plan.arg_extremes import ArgExtreme
from relaxpy.exec.loops.plan.statements import Assignment, Compound
from relaxpy.exec.loops.plan.tree import For, Plan, Run, Tile, Tree
from relaxpy.exec.machine import tuning
from relaxpy.exec.native.backend import rewritten
from relaxpy.exec.native.trees.lanes import lane_axis
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.program import KernelProgram, ObligationTests, Tasks, program_of
from relaxpy.exec.native.trees.strategy import is_swept
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from tests.exec.loops.schedule_checker import Memory, OrderError, PlanRun, Ready
from tests.exec.loops.schedule_text import Cell, TextRun


def program_fault(func: PrimFunc, args: tuple[Any, ...], plan: Plan, text: TextRun) -> str | None:
    """A description of the first dependence that the program of a plan violates, or None.

    There is no program of views and pointers.
    """
    if plan.views or plan.nest.pointers or plan.nest.constants:
        return None
    program = rewritten(program_of(plan))
    for lanes in (2, 64):
        try:
            ProgramRun(program.plan, text, program=program, lanes=lanes).whole()
        except OrderError as error:
            return str(error)
    return None


SMALL = {
    tuning.Blocks: {"LEAST_PASSES": 1, "LEAST_BYTES": -1},
    tuning.Rows: {
        "ELEMENTS": 3,
        "BLOCK_ELEMENTS": 4,
        "PRODUCT_ROWS": 2,
        "COLUMNS": 2,
        "MOST_CHAIN": 2,
    },
    tuning.Cost: {"GRAIN": 0},
    tuning.Parallel: {"LANES": 2, "COLUMNS": 1, "FEW": 3, "SHARE": 2, "UNROLLED": 1},
}


@contextmanager
def small_blocks() -> Iterator[None]:
    """However short loops are, and however little they compute: they run in blocks and in tasks."""
    with ExitStack() as stack:
        for group, values in SMALL.items():
            stack.enter_context(mock.patch.multiple(group, **values))
        yield


@dataclass
class ProgramRun(PlanRun):
    """The replay of a program in vectors of so many lanes."""

    program: KernelProgram = field(kw_only=True)
    lanes: int = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.numbers = 0
        self.proofs: dict[PrimExpr, Axis] = {}
        """The axes of which others are blocks, by the start of these."""
        self.results: dict[Buffer, Assignment] = {}
        self.parts: dict[Buffer, list[tuple[int, Ready]]] = {}
        """The stores of the stretches, each with the number of its stretch."""
        self.stretch = 0
        for run in _runs(self.program.trees):
            for statement in run.assignments:
                if (source := self.part(statement)) is not None:
                    self.results[source], self.parts[source] = statement, []

    def whole(self) -> None:
        # If only sizes fail, the kernel of NumPy runs: conditions may be missing before a program.
        early = [o for o in self.program.early if any(True for _ in o.reads())]
        self.require(early)
        self.trees(self.program.trees)
        self.complete()

    def owner(self, buffer: Buffer) -> object:
        if buffer in self.program.elided:
            return "a register", buffer.name, self.numbers
        return super().owner(buffer)

    def locate(self, buffer: Buffer, indices: tuple[int, ...]) -> tuple[Cell, Memory]:
        cell, memory = super().locate(buffer, indices)
        if (first := self.program.rows.get(buffer)) is not None:
            name, where = self.locate(first.buffer, tuple(map(self.index, first.indices)))[0]
            cell = name, where + memory[1]
        return cell, memory

    def part(self, statement: Assignment) -> Buffer | None:
        """The buffer of the results of stretches that a statement combines."""
        stretches = set(self.program.partial).difference(self.program.rows)
        match statement.value:
            case BufferLoad(buffer=buffer) if buffer in stretches:
                return buffer
            case _:
                return None

    def operands(self, store: Assignment | Store, target: Buffer) -> Ready:
        for axis in store.axes if isinstance(store, Assignment) else ():
            if axis.extent.constant == 1 and isinstance(axis.start, IntImm):
                self.named[axis.var.name] = axis.start.value
        result = self.results.get(target)
        if result is None or not isinstance(store, Assignment):
            return super().operands(store, target)
        target, indices = result.target, result.indices
        return super().operands(replace(store, target=target, indices=indices), target)

    # -- trees

    def tree(self, tree: Tree) -> None:
        match tree:
            case Run() if self.holds(tree.tests):
                emit = self.scalar if tree.is_scalar else self.joined
                emit(tree)
            case Tile(axis=axis, body=body, local=local, size=int(size)):
                self.proofs[tree.low] = self.proofs.get(axis.start, axis)
                low, high = self.bound(axis.start), self.bound(axis.stop)
                for first in reversed(range(low, high, size)):
                    self.env[tree.low] = self.env[axis.var] = first
                    self.env[tree.high] = min(first + size, high)
                    self.blocks |= dict.fromkeys(local, first)
                    self.trees(body)
            case Tasks(outer=outer, axis=axis, size=size, body=body, number=number):
                self.proofs[tree.low] = self.proofs.get(axis.start, axis)
                low, high = self.bound(axis.start), self.bound(axis.stop)
                starts = range(low, high, size)
                for _ in self.anyhow(outer, frozenset(a.var for a in outer)):
                    for count in reversed(range(len(starts))):
                        self.env[tree.low] = starts[count]
                        self.env[tree.high] = min(starts[count] + size, high)
                        if number is not None:
                            self.env[number.var] = self.stretch = count
                        self.tree(body)
            case For():
                super().tree(tree)
            case ObligationTests(obligations=required, tests=tests):
                if self.holds(tests):
                    self.require(required)

    def require(self, obligations: Iterable[Obligation]) -> None:
        """Test obligations with the present values; they hold in the text, which has no error."""
        env, named = dict(self.env), dict(self.named)
        for obligation in obligations:
            for _ in self.iterations(obligation.axes):
                if not self.holds(obligation.path):
                    continue
                size = obligation.size
                index = self.bound(obligation.index)
                if index == 0 if size is None else not 0 <= index < self.bound(size):
                    raise OrderError(f"{obligation.index} is tested when it is {index}")
        self.env, self.named = env, named

    def anyhow(self, axes: Sequence[Axis], independent: frozenset[Var]) -> Iterator[None]:
        """The iterations, those of `independent` axes backwards."""
        if not axes:
            yield
            return
        first, *rest = axes
        values = range(self.bound(first.start), self.bound(first.stop))
        for n in reversed(values) if first.var in independent else values:
            self.iterate(first.var, n)
            yield from self.anyhow(rest, independent)

    def scalar(self, run: Run) -> None:
        """One iteration after the other; a search keeps the first of equal elements."""
        is_search = isinstance(run.idiom, ArgExtreme)
        for _ in self.anyhow(run.loops, frozenset() if is_search else run.independent):
            match run.statement:
                case Compound(items=items):
                    self.items(items)
                case Assignment() as statement if self.holds(statement.guards):
                    self.write(self.operands(statement, statement.target))

    def joined(self, run: Run) -> None:
        """The statements in turn, in vectors if there is an axis for them."""
        if any(self.part(statement) for statement in run.assignments):
            for statement in run.assignments:
                source = self.part(statement)
                assert source is not None
                [every] = run.over
                combined = range(self.bound(every.start), self.bound(every.stop))
                ready = [one for stretch, one in self.parts[source] if stretch in combined]
                self.total(run, statement, run.axes, ready)
            return
        if product_of(run) is not None:
            for tile in self.tiles(run.axes):
                self.vector(run, tile, run.over)
            return
        axis = lane_axis(run, self.proofs)
        outside = tuple(a for a in run.axes if a is not axis)
        for _ in self.anyhow(outside, run.independent):
            if axis is None or axis in run.over:
                self.vector(run, (), () if axis is None else (axis,))
            elif is_swept(run, axis):
                self.vector(run, (axis,), ())
            else:
                for lanes in self.vectors(axis, run.independent):
                    self.vector(run, (lanes,), ())

    def tiles(self, axes: Sequence[Axis]) -> Iterator[tuple[Axis, ...]]:
        """Boxes with as many iterations of each axis as there are lanes, backwards."""
        yield from product(*(list(self.vectors(a, frozenset((a.var,)))) for a in axes))

    def vectors(self, axis: Axis, independent: frozenset[Var]) -> Iterator[Axis]:
        """Parts of an axis with as many iterations as there are lanes."""
        low, high = self.bound(axis.start), self.bound(axis.stop)
        starts = range(low, high, self.lanes)
        for first in reversed(starts) if axis.var in independent else starts:
            yield Axis(axis.var, IntImm(INT64, first), IntImm(INT64, min(first + self.lanes, high)))

    def vector(self, run: Run, lanes: Sequence[Axis], over: Sequence[Axis]) -> None:
        """One vector of elements, and accumulations into them with those of `over` as lanes."""
        totals: dict[Assignment, list[Ready]] = {s: [] for s in run.accumulations}
        for _ in self.anyhow([a for a in run.over if a not in over], run.independent):
            parts = self.vectors(over[0], run.independent) if len(over) == 1 else [over]
            for part in parts:
                for statement in run.assignments:
                    inner = (part,) if isinstance(part, Axis) else part
                    ready = self.at_once(statement, (*lanes, *inner))
                    if statement in totals:
                        totals[statement] += ready
                        continue
                    for one in ready:
                        self.write(one)
                self.numbers += not run.after
        for statement, ready in totals.items():
            self.total(run, statement, lanes, ready)
        for statement in run.after:
            for one in self.at_once(statement, lanes):
                self.write(one)
        self.numbers += 1

    def total(
        self, run: Run, statement: Assignment, along: Sequence[Axis], ready: list[Ready]
    ) -> None:
        """Write the results of an accumulation."""
        if statement.target in self.results:
            self.parts[statement.target] += ((self.stretch, one) for one in ready)
            return
        if statement.initial is not None:
            for _ in self.iterations(along):
                self.begin(statement, statement.initial, ready)
        for one in ready:
            self.write(one)


def _runs(trees: Iterable[Tree]) -> Iterator[Run]:
    """The runs of trees, also those in tasks."""
    for tree in trees:
        match tree:
            case Run():
                yield tree
            case For(body=body) | Tile(body=body):
                yield from _runs(body)
            case Tasks(body=inner):
                yield from _runs((inner,))
            case _:
                pass
