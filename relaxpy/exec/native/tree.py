"""The loop tree of a kernel: its steps as loops, groups of statements, and statements in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar, assert_never

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.dependence import independent_axes
from relaxpy.exec.kernel.plan.statements import Access, Statement, access
from relaxpy.exec.kernel.plan.steps import (
    ArgReduce,
    ArrayStep,
    Blocked,
    Contract,
    Map,
    Plan,
    Reduce,
    Scalar,
    Scan,
    Scatter,
    Serial,
    Step,
    accesses,
    flatten_steps,
)
from relaxpy.exec.native.contract import product_of
from relaxpy.exec.native.groups import (
    Group,
    Member,
    fused,
    group_of,
    in_lanes,
    lane_axis,
    tests_within,
)
from relaxpy.exec.native.obligations import Obligation, obligations
from relaxpy.ir.arith.algebra.affine import IndexPoly
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """A statement in each iteration of `axes`, in order, if the `tests` hold.

    The order of the axes in `independent` makes no difference. If the statement is `checked`, its
    obligations are tested where they arise.
    """

    statement: Statement
    axes: tuple[Axis, ...]
    tests: tuple[PrimExpr, ...]
    independent: frozenset[Var] = frozenset()
    checked: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Late:
    """Obligations of the tree that follows, which are tested here if the `tests` hold."""

    obligations: tuple[Obligation, ...]
    tests: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """`body` for each value of `axis`, in order."""

    axis: Axis
    body: tuple[Tree, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """`body` for each block of `size` iterations of the axis of `step`, in any order.

    The variables of the step have the bounds of the block. In a block of one row, no group has the
    axis: `row` is its variable.
    """

    step: Blocked
    size: int
    row: Var
    body: tuple[Group | Ordered | Late | Rows, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """`body` in parallel: in each iteration of `outer` for each block of iterations of `axis`.

    A block has `size` iterations, from `low` to below `high`, and takes `cost` picoseconds. One
    task executes several of them, unless each block has a `number`.
    """

    outer: tuple[Axis, ...]
    axis: Axis
    size: int
    low: Var
    high: Var
    body: Group | Ordered | Rows
    cost: IndexPoly
    number: Axis | None = None


Tree: TypeAlias = Ordered | For | Rows | Group | Tasks | Late
_T = TypeVar("_T", bound="Tree")


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What the statements of a kernel access in common."""

    plan: Plan

    def __call__(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory `buffer` uses."""
        return self.plan.shared.get(buffer, buffer)

    def independent(self, step: ArrayStep | Scalar, serial: Sequence[Axis]) -> frozenset[Var]:
        """The variables of a step whose iterations may run in any order, inside `serial`."""
        initial: list[Access] = []
        if isinstance(step, (Reduce, Contract)) and step.initial is not None:
            variables = {a.var for a in step.statement.axes}
            initial = [access(x.buffer, x.indices, variables) for x in loads(step.initial)]
        plan, outer = self.plan, {axis.var for axis in serial}
        reduces = isinstance(step, (Reduce, Contract, ArgReduce))
        return independent_axes(
            step.statement, initial, outer, plan.shape_vars, plan.shared, reduces=reduces
        )


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The trees of a kernel, in order. Those of its local buffers in `elided` need no memory.

    The obligations in `early` are tested before them.
    """

    plan: Plan
    trees: tuple[Tree, ...]
    elided: frozenset[Buffer]
    written: frozenset[Buffer]
    early: tuple[Obligation, ...]
    partial: tuple[Buffer, ...] = ()
    """Further local buffers."""
    replaced: frozenset[Buffer] = frozenset()
    """The local buffers in whose place others are used."""

    def root(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory `buffer` uses."""
        return self.plan.shared.get(buffer, buffer)


def program_of(plan: Plan) -> Program:
    """The loop tree of `plan`."""
    root = Memory(plan)
    steps = list(flatten_steps(plan.steps))
    written = {w.buffer for s in steps for w in s.statement.writes}
    owners = frozenset({*written, *map(root, written)})
    owners |= {b for b, owner in plan.shared.items() if owner in owners}
    found = obligations(plan, owners)
    trees = tuple(_Reader(root, found.late).trees(plan.steps, ()))
    local = {entry.buffer for entry in plan.nest.local}
    uses = Counter(b for s in steps for b in {a.buffer for a in accesses(s)})
    uses += Counter(b for o in found.late.values() for b in {b for x in o for b in x.reads()})
    elided = {b for g in _groups(trees) for b in _temporaries(g, uses) if b in local}
    return Program(plan, trees, frozenset(elided), owners, found.early)


_ROW_ELEMENTS = 64
"""Rows of fewer elements run in blocks of several rows."""
_BLOCK_ELEMENTS = 1024
_PRODUCT_ROWS = 64
"""The rows of a block with a product of matrices, which share one pass over a factor."""
_COLUMNS = 256
"""The size of blocks whose rows are columns of memory."""


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    """Reads steps as trees; `late` are the obligations that steps have to test."""

    root: Memory
    late: Mapping[Step, tuple[Obligation, ...]]

    def trees(self, steps: Sequence[Step], serial: tuple[Axis, ...]) -> Iterator[Tree]:
        """The trees of steps; neighbouring groups are fused."""
        trees = [tree for step in steps for tree in self._tree(step, serial)]
        yield from _fused_runs(trees, self.root)

    def _tree(self, step: Step, serial: tuple[Axis, ...]) -> Iterator[Tree]:
        late = self._late(step, serial)
        match step:
            case Serial(axis=axis, steps=steps):
                if late:
                    yield Late(late, ())
                yield For(axis, tuple(self.trees(steps, (*serial, axis))))
                return
            case Blocked():
                yield self._rows(step, serial)
                return
            case Map() | Reduce() | Contract():
                tests = tests_within(step.statement.axes, serial)
                writes = self.root(step.statement.target)
                if isinstance(step, Map) and any(
                    self.root(b) is writes for o in late for b in o.reads()
                ):
                    # An iteration needs what those before it store.
                    yield Ordered(step.statement, step.axes, tests, checked=True)
                    return
                if late:
                    yield Late(late, tests)
                yield group_of(step, serial, self.root.independent(step, serial))
                return
            case Scan(axes=axes, axis=along):
                ordered = (*(a for a in axes if a is not along), along)
            case Scatter(axes=axes):
                ordered = axes
            case ArgReduce(axes=axes, extreme=extreme):
                ordered = (*axes, extreme.axis)
            case Scalar():
                ordered = ()
            case _:
                assert_never(step)
        tests = tests_within(step.statement.axes, serial)
        free = self.root.independent(step, serial)
        group = None if late else in_lanes(step.statement, ordered, tests, free)
        yield group or Ordered(step.statement, ordered, tests, free, checked=bool(late))

    def _late(self, step: Step, serial: Sequence[Axis]) -> tuple[Obligation, ...]:
        """The obligations of `step` in its own loops, which may be those of a block."""
        match step:
            case Serial() | Blocked() | Scalar():
                own: tuple[Axis, ...] = ()
            case Reduce(axes=axes, over=over) | Contract(axes=axes, over=over):
                own = (*axes, *over)
            case _:
                own = step.axes
        loops, outer = {a.var: a for a in own}, {a.var for a in serial}
        return tuple(
            replace(o, axes=tuple(loops.get(a.var, a) for a in o.axes if a.var not in outer))
            for o in self.late.get(step, ())
        )

    def _rows(self, step: Blocked, serial: tuple[Axis, ...]) -> Tree:
        body: list[Group | Ordered | Late] = []
        counts: list[int] = []
        for member in step.steps:
            for tree in self._tree(member, serial):
                assert isinstance(tree, (Group, Ordered, Late))
                body.append(tree)
                count = 1
                for axis in _axes_of(tree):
                    if axis.start is not step.low:
                        extent = axis.extent.constant
                        count *= _ROW_ELEMENTS if extent is None else max(extent, 1)
                counts.append(count)
        elements = max(counts)
        size = 1 if elements >= _ROW_ELEMENTS else max(1, _BLOCK_ELEMENTS // elements)
        if any(isinstance(t, Group) and product_of(t, self.root) for t in body):
            size = max(size, _PRODUCT_ROWS)
        longest = (t for t, count in zip(body, counts, strict=True) if count == elements)
        if any(isinstance(t, Group) and _has_lanes_of(t, step) for t in longest):
            size = max(size, _COLUMNS)
        row = step.axis.var
        others = (a.var for t in body for a in _axes_of(t) if a.start is not step.low)
        if any(var is row for var in others):  # as where a member sums over this loop
            row = Var(row.name, row.dtype)
        if size == 1:
            body = [_of_one_row(t, step, row) if isinstance(t, Group) else t for t in body]
        return Rows(step, size, row, tuple(_fused_runs(body, self.root)))


def _axes_of(tree: Group | Ordered | Late) -> tuple[Axis, ...]:
    match tree:
        case Group():
            return tree.all_axes
        case Ordered():
            return tree.axes
        case Late():
            return ()


def _has_lanes_of(group: Group, step: Blocked) -> bool:
    """Whether the consecutive elements of a group are those of the rows."""
    along = lane_axis(group)
    return along is not None and along.start is step.low


def _fused_runs(trees: Iterable[_T], root: Memory) -> Iterator[_T | Group]:
    run: list[Group] = []
    for tree in trees:
        if isinstance(tree, Group) and not tree.alone and product_of(tree, root) is None:
            run.append(tree)
            continue
        yield from fused(run, root)
        run = []
        yield tree
    yield from fused(run, root)


def _of_one_row(group: Group, step: Blocked, row: Var) -> Group:
    """The group in a block of one row, whose number is `row`."""
    values: Mapping[Var, PrimExpr] = {a.var: row for a in group.all_axes if a.start is step.low}
    axes, over = (tuple(a for a in s if a.start is not step.low) for s in (group.axes, group.over))
    return replace(
        group, axes=axes, over=over, members=tuple(m.substituted(values) for m in group.members)
    )


def _groups(trees: Iterable[Tree]) -> Iterator[Group]:
    for tree in trees:
        match tree:
            case Group():
                yield tree
            case For(body=body) | Rows(body=body):
                yield from _groups(body)
            case Ordered() | Tasks() | Late():
                pass


def _temporaries(group: Group, uses: Mapping[Buffer, int]) -> Iterator[Buffer]:
    """The buffers that only this group uses, which stores an element before it reads it."""
    counts: Counter[Buffer] = Counter()
    first: dict[Buffer, Member] = {}
    for member in group.members:
        buffers = {b for b, _ in member.reads()} | {member.target}
        if member.initial is not None:
            buffers |= {load.buffer for load in loads(member.initial)}
        for buffer in buffers:
            counts[buffer] += 1
            first.setdefault(buffer, member)
    for buffer, count in counts.items():
        member = first[buffer]
        stores = member.target is buffer and member.combine is None and not member.guards
        if count == uses[buffer] and stores and all(b is not buffer for b, _ in member.reads()):
            yield buffer
