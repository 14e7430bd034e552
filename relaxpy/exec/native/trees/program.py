"""The program of a kernel: the fused trees of its plan, with tests and tasks.

Copies that only reshape are elided: both buffers alias.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import field

from relaxpy.exec.loops.nest.domain import tests_within
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.blocking import in_tiles
from relaxpy.exec.loops.plan.copies import is_reshape
from relaxpy.exec.loops.plan.statements import Assignment, Compound
from relaxpy.exec.loops.plan.tree import For, Plan, Run, Tile, Tree, runs, written_memory
from relaxpy.exec.machine.tuning import Rows
from relaxpy.exec.native.trees.fusion import fused
from relaxpy.exec.native.trees.lanes import in_lanes, lane_axis, with_best_order
from relaxpy.exec.native.trees.obligations import Obligation, obligations
from relaxpy.exec.native.trees.pieces import in_pieces
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.short_factors import with_short_factors
from relaxpy.exec.native.trees.zero_points import without_zero_points
from relaxpy.ir.arith.algebra.affine import IndexPoly
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.stmt import ForKind
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class ObligationTests(Tree):
    """Tests the obligations of the next tree, if all of `tests` are true."""

    obligations: tuple[Obligation, ...]
    tests: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tasks(Tree):
    """`body` in parallel: in each iteration of `outer` for each block of iterations of `axis`.

    A block has `size` iterations, from `low` to below `high`, and takes `cost` picoseconds. One
    task executes several of them, unless each block has a `number`. If they are parts of rows
    that `body` computes one from another, there are as few tasks as threads, for long parts.
    """

    outer: tuple[Axis, ...]
    axis: Axis
    size: int
    low: Var
    high: Var
    body: Run | Tile | For
    cost: IndexPoly
    number: Axis | None = None
    parts_of_rows: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class KernelProgram:
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
    rows: Mapping[Buffer, BufferLoad] = field(default_factory=dict)
    """The buffers with one block of rows of others, which need no memory themselves.

    Each maps to the element of the other buffer that is its first one in the first block.
    """
    annotated: Mapping[Var, ForKind] = field(default_factory=dict)
    """The loops of statements that run as scheduled instead of in order."""
    is_short: bool = False
    """True if it takes less time than to start threads, although its sizes are not known."""

    def declared(self, rows: Tile) -> dict[Buffer, Buffer]:
        """The local buffers of blocks of rows by those that the kernel declares for them.

        These may have other dimensions.
        """
        own, shared = {entry.buffer for entry in self.plan.nest.local}, self.plan.shared
        return {b if b in own else shared.get(b, b): b for b in rows.local}


def program_of(plan: Plan, *, is_short: bool = False) -> KernelProgram:
    """The loop tree of `plan`, with tiles unless the kernel `is_short`: these fit into a cache."""
    plan = with_short_factors(without_zero_points(without_reshapes(plan)))
    plan = plan if is_short else in_tiles(plan)
    members = list(runs(plan.trees))
    written = {w.buffer for r in members for w in r.statement.writes}
    owners = frozenset({*written, *map(plan.root, written)})
    owners |= {b for b, owner in plan.shared.items() if owner in owners}
    found = obligations(plan, owners | {entry.buffer for entry in plan.nest.local})
    trees = tuple(_Reader(plan, found.late).trees(plan.trees, ()))
    local = {entry.buffer for entry in plan.nest.local}
    uses = plan.uses + Counter(
        b for o in found.late.values() for b in {b for x in o for b in x.reads()}
    )
    joined = (run for run in runs(trees) if not run.is_scalar)
    elided = {b for run in joined for b in _temporaries(run, uses) if b in local}
    return KernelProgram(plan, trees, frozenset(elided), owners, found.early, is_short=is_short)


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    """Reads the trees of a plan; `late` are the obligations that they have to test."""

    plan: Plan
    late: Mapping[Tree, tuple[Obligation, ...]]

    def trees(self, trees: Sequence[Tree], serial: tuple[Axis, ...]) -> Iterator[Tree]:
        """The trees, with neighbouring runs fused."""
        read = (inner for tree in trees for inner in self._tree(tree, serial))
        for tree in fused(read, self.plan):
            if not isinstance(tree, Run) or not tree.ordered:
                yield tree
                continue
            if len(tree.independent) < len(tree.ordered):
                tree = replace(tree, independent=self.plan.independent(tree, serial))
            run = in_lanes(tree)
            yield from in_pieces(run, serial, self.plan) if run is tree else (run,)

    def _tree(self, tree: Tree, serial: tuple[Axis, ...]) -> Iterator[Tree]:
        match tree:
            case For(axis=axis, body=body):
                if late := self._late(tree, (), serial):
                    yield ObligationTests(late, ())
                inner = tuple(self.trees(body, (*serial, axis)))
                yield _in_order(axis, inner) or replace(tree, body=inner)
            case Tile():
                yield self._tile(tree, serial)
            case Run():
                yield from self._run(tree, serial)
            case _:
                pass

    def _run(self, run: Run, serial: tuple[Axis, ...]) -> Iterator[Run | ObligationTests]:
        statement, root = run.statement, self.plan.root
        late = self._late(run, run.loops, serial)
        tests = tests_within(statement.axes, serial)
        free = self.plan.independent(run, serial)
        run = replace(run, tests=tests, independent=free)
        written = {root(w.buffer) for w in statement.writes}
        if isinstance(statement, Compound) or run.ordered or not run.loops:
            reads = {root(b) for o in late for b in o.reads()}
            if len(late) == 1 and run.assignments and run.ordered and written.isdisjoint(reads):
                # Its first failure is the first one of all, whatever is stored before.
                yield ObligationTests(late, tests)
                late = ()
            yield replace(run, axes=(), ordered=run.loops, checked=bool(late))
            return
        if run.store and any(root(b) in written for o in late for b in o.reads()):
            # Obligations of an iteration read what earlier ones store.
            none = frozenset[Var]()
            yield replace(run, axes=(), ordered=run.loops, checked=True, independent=none)
            return
        if late:
            yield ObligationTests(late, tests)
        yield with_best_order(run)

    def _late(
        self, tree: Tree, own: Sequence[Axis], serial: Sequence[Axis]
    ) -> tuple[Obligation, ...]:
        """The obligations of `tree` in its `own` loops, which may be those of a block."""
        loops, outer = {a.var: a for a in own}, {a.var for a in serial}
        return tuple(
            replace(o, axes=tuple(loops.get(a.var, a) for a in o.axes if a.var not in outer))
            for o in self.late.get(tree, ())
        )

    def _tile(self, tile: Tile, serial: tuple[Axis, ...]) -> Tile:
        read = (inner for run in runs(tile.body) for inner in self._run(run, serial))
        body = list(fused(read, self.plan))  # now, so that fewer runs are asked for lanes
        members = list(runs(body))
        counts: list[int] = []
        for run in members:
            extents = (a.extent.constant for a in run.loops if a.start is not tile.low)
            counts.append(math.prod(Rows.ELEMENTS if n is None else max(n, 1) for n in extents))
        elements = max(counts)
        size = 1 if elements >= Rows.ELEMENTS else max(1, Rows.BLOCK_ELEMENTS // elements)
        if any(product_of(run) for run in members):
            size = max(size, Rows.PRODUCT_ROWS)
        longest = (run for run, count in zip(members, counts, strict=True) if count == elements)
        if any(_has_lanes_of(run, tile) for run in longest):
            size = max(size, Rows.COLUMNS)
        most = tile.axis.extent.constant
        size = size if most is None else max(1, min(size, most))
        row = tile.axis
        if any(a.var is row.var and a.start is not tile.low for run in members for a in run.loops):
            # A member sums over this loop.
            row = replace(row, var=Var(row.var.name, row.var.dtype))
        if size == 1:
            rows = (_of_one_row(t, tile, row.var) if isinstance(t, Run) else t for t in body)
            body = list(fused(rows, self.plan))
        return replace(tile, axis=row, body=tuple(body), size=size)


def may_fail(tree: Tree) -> bool:
    """True if a tree of a program tests obligations."""
    match tree:
        case ObligationTests():
            return True
        case Run(checked=checked):
            return checked
        case For(body=body) | Tile(body=body):
            return any(map(may_fail, body))
        case Tasks(body=inner):
            return may_fail(inner)
        case _:
            raise AssertionError(f"an unknown tree: {tree}")


def _in_order(axis: Axis, body: Sequence[Tree]) -> Run | None:
    """A loop with an assignment as its body as one run; None if it is another loop."""
    match body:
        case [Run(statements=[Assignment()], axes=(), over=(), tests=(), checked=False) as run]:
            return replace(run, ordered=(axis, *run.ordered))
        case _:
            return None


def whole_runs(tree: Tree) -> Iterator[Run]:
    """The runs of a tree with whole axes; empty if it has other runs."""
    members = tree.body if isinstance(tree, Tile) else (tree,)
    if not all(isinstance(inner, Run) and not inner.is_scalar for inner in members):
        return
    for run in runs(members):
        if not isinstance(tree, Tile):
            yield run
            continue
        whole = tree.axis
        axes = tuple(
            Axis(a.var, whole.start, whole.stop) if a.start is tree.low else a for a in run.axes
        )
        axes = (whole, *axes) if tree.size == 1 else axes
        yield replace(run, axes=axes, independent=run.independent | {whole.var})


def _has_lanes_of(run: Run, tile: Tile) -> bool:
    """True if the consecutive elements of a run are those of the rows."""
    along = None if run.is_scalar else lane_axis(run)
    return along is not None and along.start is tile.low


def _of_one_row(run: Run, tile: Tile, row: Var) -> Run:
    """The run in a block of one row, whose number is `row`."""
    if run.is_scalar:
        return run
    values: Mapping[Var, PrimExpr] = {a.var: row for a in run.loops if a.start is tile.low}
    axes, over = (tuple(a for a in s if a.start is not tile.low) for s in (run.axes, run.over))
    statements = tuple(s.substituted(values) for s in run.assignments)
    return replace(run, axes=axes, over=over, statements=statements)


def _temporaries(run: Run, uses: Mapping[Buffer, int]) -> Iterator[Buffer]:
    """The buffers that only this run uses, which stores an element before it reads it."""
    counts: Counter[Buffer] = Counter()
    first: dict[Buffer, Assignment] = {}
    elements: dict[Buffer, set[tuple[PrimExpr, ...]]] = {}
    for member in run.assignments:
        accessed = list(member.elements())
        for buffer, indices in accessed:
            elements.setdefault(buffer, set()).add(indices)
        for buffer in {b for b, _ in accessed}:
            counts[buffer] += 1
            first.setdefault(buffer, member)
    for buffer, count in counts.items():
        member = first[buffer]
        stores = member.target is buffer and member.combine is None and not member.guards
        if (
            count == uses[buffer]
            and stores
            and len(elements[buffer]) == 1
            # One that nothing reads is the only target of its run, which stores into its memory.
            and count > 1
            and not any(b is buffer for b, _ in member.read_elements())
        ):
            yield buffer


def without_reshapes(plan: Plan) -> Plan:
    """`plan` with reshaping copies of parameters replaced by aliases of their memory.

    A parameter that is copied into a local buffer is not written. One that is copied from a local
    buffer has no other use, so that it may hold earlier values of the buffer; the buffer is not
    written after the copy.
    """
    parameters = {*plan.func.buffer_map.values()}
    shared, trees = dict(plan.shared), list[Tree]()
    last_writes: dict[Buffer, int] | None = None
    # The counts of uses stay, by which a parameter with a second shape has more than one.
    for number, tree in enumerate(plan.trees):
        found = _copied(tree, plan.shape_vars)
        if found is None:
            trees.append(tree)
            continue
        target, source = found
        last_writes = _last_writes(plan) if last_writes is None else last_writes
        if plan.reshaped.get(target) is source:
            shared[target] = source
        elif (
            target in parameters
            and source in plan.local
            and source not in shared
            and target not in shared.values()
            and plan.uses[target] == 1
            and last_writes.get(source, -1) < number
        ):
            moved = [source, *(b for b, owner in shared.items() if owner is source)]
            shared |= dict.fromkeys(moved, target)
        else:
            trees.append(tree)
    if len(trees) == len(plan.trees):
        return plan
    return replace(plan, trees=tuple(trees), shared=shared)


def _last_writes(plan: Plan) -> dict[Buffer, int]:
    """The number of the last tree that writes each memory."""
    return {b: n for n, tree in enumerate(plan.trees) for b in written_memory((tree,), plan.root)}


def _copied(tree: Tree, shape_vars: Container[Var]) -> tuple[Buffer, Buffer] | None:
    """The target and the source of a copy of all elements in row-major order, also of memory."""
    match tree:
        case Run(
            statements=[Assignment(combine=None, value=BufferLoad() as load) as store],
            after=(),
            tests=(),
        ) if is_reshape(tree.axes, store, load, shape_vars):
            pair = store.target, load.buffer
            return None if any(b.strides for b in pair) else pair
        case _:
            return None
