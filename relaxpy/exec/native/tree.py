"""The loop tree of a kernel: its steps as loops, groups of statements, and statements in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar, cast

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel.nest.domain import tests_within
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan import tree as plans
from relaxpy.exec.kernel.plan.blocking import in_tiles
from relaxpy.exec.kernel.plan.statements import Assignment, Statement
from relaxpy.exec.kernel.plan.tree import Plan, Run, Tile, accesses, runs
from relaxpy.exec.native.contract import product_of
from relaxpy.exec.native.groups import (
    Group,
    Member,
    fused,
    group_of,
    in_lanes,
    lane_axis,
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

    step: Tile
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


def program_of(plan: Plan) -> Program:
    """The loop tree of `plan`, with tiles."""
    plan = in_tiles(plan)
    members = list(runs(plan.trees))
    written = {w.buffer for r in members for w in r.statement.writes}
    owners = frozenset({*written, *map(plan.root, written)})
    owners |= {b for b, owner in plan.shared.items() if owner in owners}
    found = obligations(plan, owners | {entry.buffer for entry in plan.nest.local})
    trees = tuple(_Reader(plan, found.late).trees(plan.trees, ()))
    local = {entry.buffer for entry in plan.nest.local}
    uses = Counter(b for r in members for b in {a.buffer for a in accesses(r)})
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
    """Reads the trees of a plan; `late` are the obligations that they have to test."""

    plan: Plan
    late: Mapping[plans.Tree, tuple[Obligation, ...]]

    def trees(self, trees: Sequence[plans.Tree], serial: tuple[Axis, ...]) -> Iterator[Tree]:
        """The trees, of which neighbouring groups are fused."""
        read = [inner for tree in trees for inner in self._tree(tree, serial)]
        yield from _fused_runs(read, self.plan)

    def _tree(self, tree: plans.Tree, serial: tuple[Axis, ...]) -> Iterator[Tree]:
        match tree:
            case plans.For(axis=axis, body=body):
                if late := self._late(tree, (), serial):
                    yield Late(late, ())
                yield For(axis, tuple(self.trees(body, (*serial, axis))))
            case Tile():
                yield self._rows(tree, serial)
            case Run():
                yield from self._run(tree, serial)

    def _run(self, run: Run, serial: tuple[Axis, ...]) -> Iterator[Group | Ordered | Late]:
        statement = run.statement
        late = self._late(run, run.loops, serial)
        tests = tests_within(statement.axes, serial)
        free = self.plan.independent(run, serial)
        if isinstance(statement, Assignment) and run.loops and not run.ordered:
            writes = self.plan.root(statement.target)
            if run.store and any(self.plan.root(b) is writes for o in late for b in o.reads()):
                # An iteration needs what those before it store.
                yield Ordered(statement, run.axes, tests, checked=True)
                return
            if late:
                yield Late(late, tests)
            yield group_of(run, statement, tests, free)
            return
        group = None if late else in_lanes(statement, run.loops, tests, free)
        yield group or Ordered(statement, run.loops, tests, free, checked=bool(late))

    def _late(
        self, tree: plans.Tree, own: Sequence[Axis], serial: Sequence[Axis]
    ) -> tuple[Obligation, ...]:
        """The obligations of `tree` in its `own` loops, which may be those of a block."""
        loops, outer = {a.var: a for a in own}, {a.var for a in serial}
        return tuple(
            replace(o, axes=tuple(loops.get(a.var, a) for a in o.axes if a.var not in outer))
            for o in self.late.get(tree, ())
        )

    def _rows(self, step: Tile, serial: tuple[Axis, ...]) -> Tree:
        body: list[Group | Ordered | Late] = []
        counts: list[int] = []
        for run in step.body:
            for tree in self._run(run, serial):
                body.append(tree)
                count = 1
                for axis in _axes_of(tree):
                    if axis.start is not step.low:
                        extent = axis.extent.constant
                        count *= _ROW_ELEMENTS if extent is None else max(extent, 1)
                counts.append(count)
        elements = max(counts)
        size = 1 if elements >= _ROW_ELEMENTS else max(1, _BLOCK_ELEMENTS // elements)
        if any(isinstance(t, Group) and product_of(t, self.plan.root) for t in body):
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
        return Rows(step, size, row, tuple(_fused_runs(body, self.plan)))


def whole_groups(tree: Tree) -> Iterator[Group]:
    """The groups of a tree with whole axes; none if it has other trees."""
    if isinstance(tree, Group):
        yield tree
        return
    if not isinstance(tree, Rows) or not all(isinstance(inner, Group) for inner in tree.body):
        return
    whole = tree.step.axis
    for group in cast("tuple[Group, ...]", tree.body):
        axes = tuple(
            Axis(a.var, whole.start, whole.stop) if a.start is tree.step.low else a
            for a in group.axes
        )
        if tree.size == 1:
            axes = (Axis(tree.row, whole.start, whole.stop), *axes)
        independent = group.independent | {tree.row}
        yield replace(group, axes=axes, independent=independent)


def _axes_of(tree: Group | Ordered | Late) -> tuple[Axis, ...]:
    match tree:
        case Group():
            return tree.all_axes
        case Ordered():
            return tree.axes
        case Late():
            return ()


def _has_lanes_of(group: Group, step: Tile) -> bool:
    """Whether the consecutive elements of a group are those of the rows."""
    along = lane_axis(group)
    return along is not None and along.start is step.low


def _fused_runs(trees: Iterable[_T], plan: Plan) -> Iterator[_T | Group]:
    run: list[Group] = []
    for tree in trees:
        if isinstance(tree, Group) and not tree.alone and product_of(tree, plan.root) is None:
            run.append(tree)
            continue
        yield from fused(run, plan.root)
        run = []
        yield tree
    yield from fused(run, plan.root)


def _of_one_row(group: Group, step: Tile, row: Var) -> Group:
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
