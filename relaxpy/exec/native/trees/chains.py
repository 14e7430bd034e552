"""Fuses two contractions and the row-wise steps between them, as in attention, in row blocks.

The rows of a block, such as scores of attention, stay in cache from the first contraction to the
second one: intermediate results only have memory for one block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Row, Run, Tile, Tree
from relaxpy.exec.machine.tuning import Rows
from relaxpy.exec.native.trees.cost import time_of
from relaxpy.exec.native.trees.masks import Masked, with_mask
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.program import KernelProgram, ObligationTests, Tasks, whole_runs
from relaxpy.ir.arith.algebra.affine import as_poly, number_of
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass, replace


def with_chains(program: KernelProgram) -> KernelProgram:
    """`program` with such contractions in blocks of rows, which are tasks."""
    if any(isinstance(tree, ObligationTests) for tree in program.trees):
        return program
    finder = _Finder(program)
    plan = program.plan
    trees: list[Tree] = []
    rows: dict[Buffer, BufferLoad] = {}
    blocks: dict[Buffer, Buffer] = {}
    flags: list[Buffer] = []
    number = 0
    while number < len(program.trees):
        chain = finder.chain(program.trees[number:])
        if chain is None:
            trees.append(program.trees[number])
            number += 1
            continue
        builder = _Builder(program, chain)
        tasks = builder.tasks()
        trees += [*chain.before, tasks]
        flags += tasks.body.flags if isinstance(tasks.body, Masked) else ()
        rows |= builder.rows
        blocks |= builder.blocks
        number += chain.count
    elided = frozenset(blocks.get(b, b) for b in program.elided)
    shared = {
        block: blocks[plan.root(buffer)]
        for buffer, block in blocks.items()
        if block not in elided and plan.root(buffer) is not buffer
    }
    # A buffer that needs no memory may be the owner of memory that others need.
    stored = dict.fromkeys(shared.get(b, b) for b in rows if b not in elided)
    return replace(
        program,
        plan=replace(plan, shared={**plan.shared, **shared}),
        trees=tuple(trees),
        elided=elided,
        written=program.written.union(rows, flags),
        partial=(*program.partial, *stored),
        rows=rows,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    """The parts from the first contraction to the second one, of `count` trees.

    `leading` are the axes of the dimensions that come first in all `buffers`; the last of them is
    that of the rows, and the indices of those `above` it are the same in all accesses. Only the
    parts use those of the buffers that are `private`. Trees in between that do not use the buffers
    run `before`.
    """

    parts: tuple[Run, ...]
    leading: Mapping[int, Axis]
    above: tuple[PrimExpr, ...]
    private: frozenset[Buffer]
    before: tuple[Tree, ...]
    count: int


class _Finder:
    """Finds chains in the trees of a program."""

    def __init__(self, program: KernelProgram) -> None:
        self.program, self.root = program, program.plan.root
        self.local = {entry.buffer for entry in program.plan.nest.local}

    def chain(self, trees: Sequence[Tree]) -> _Chain | None:
        """The chain that begins with the first of `trees`."""
        first, *rest = trees
        if not isinstance(first, Run) or product_of(first) is None:
            return None
        scores = (first.after or first.assignments)[-1]
        parts, buffers, before = [first], {scores.target}, list[Tree]()
        for count, tree in enumerate(rest, 2):
            found = list(whole_runs(tree))
            if not found:
                return None
            if self._memory(found).isdisjoint(map(self.root, buffers)):
                if not self._may_precede(found, parts):
                    return None
                before.append(tree)
                continue
            parts += found
            if product_of(found[-1]) is None:
                buffers |= {m.target for r in found for m in r.assignments}
            else:
                private = self._private(parts, buffers)
                if private is None:
                    return None
                return self._aligned(parts, scores, buffers, private, before, count)
        return None

    def _memory(self, parts: Iterable[Run]) -> set[Buffer]:
        """The buffers whose memory the parts use."""
        return {self.root(b) for r in parts for m in r.stores for b, _ in m.elements()}

    def _may_precede(self, parts: Sequence[Run], others: Sequence[Run]) -> bool:
        """True if `parts`, which do not read stores of `others`, may run before them."""
        written = {self.root(m.target) for r in parts for m in r.stores}
        return written.isdisjoint(self._memory(others))

    def _private(self, parts: Sequence[Run], buffers: set[Buffer]) -> frozenset[Buffer] | None:
        """The buffers that only these parts use; None if they cannot run in blocks."""
        first, *inner, last = parts
        if any(r.tests or r.is_serial for r in parts) or any(r.after for r in inner):
            return None
        if any(product_of(r) for r in inner):
            return None
        if any(m.initial is None for m in (*first.assignments, *last.assignments)):
            return None
        members = [m for r in parts for m in r.stores]
        used = Counter(b for m in members for b in {b for b, _ in m.elements()})
        uses = self.program.plan.uses
        private = frozenset(b for b in buffers & self.local if used[b] == uses[b])
        memory = {self.root(b) for b in private}
        shared = self.program.plan.shared.items()
        owned = {b for b, owner in shared if owner in memory} - self.program.elided
        if not private or not memory | owned <= private:
            return None
        # The others are stored as without blocks, in memory that nothing else in the blocks uses.
        others = buffers - private
        stored = {self.root(b) for b in others}
        if not others.isdisjoint(self.program.elided) or any(
            b not in others and self.root(b) in stored for b in used
        ):
            return None
        if any(self.root(m.target) in memory | stored for m in last.stores):
            return None
        factors = {self.root(b) for m in last.assignments for b, _ in m.read_elements()}
        if factors.isdisjoint(memory):
            return None  # only its epilogue reads the results
        return private

    def _aligned(
        self,
        parts: Sequence[Run],
        scores: Assignment,
        buffers: set[Buffer],
        private: frozenset[Buffer],
        before: Sequence[Tree],
        count: int,
    ) -> _Chain | None:
        """The chain with the same variables in all parts for the leading dimensions."""
        axes = {a.var: a for a in parts[0].axes}
        indices = scores.indices[:-1]
        leading = {n: axes[i] for n, i in enumerate(indices) if isinstance(i, Var) and i in axes}
        used = {a.var for a in leading.values()}
        if not leading or len(used) < len(leading) or len(used) < len(axes) - 1:
            return None
        if any(n not in leading and not isinstance(i, IntImm) for n, i in enumerate(indices)):
            return None
        if not all(
            a.has_bounds_of(Axis(a.var, IntImm(INT64, 0), a.stop)) for a in leading.values()
        ):
            return None
        renamed: list[Run] = []
        for run in parts:
            there = _leading_of(run, buffers, indices, leading)
            if there is None:
                return None
            renamed.append(_renamed(run, there))
        position = max(leading)
        row = leading[position].var
        for run in (renamed[0], renamed[-1]):
            product = product_of(run)
            if product is None or not any(
                all(not mentions(i, {row}) for i in operand.indices)
                for operand in product.operands[1:3]
            ):
                return None
        above = indices[:position]
        return _Chain(tuple(renamed), leading, above, private, tuple(before), count)


def _leading_of(
    run: Run, buffers: set[Buffer], indices: Sequence[PrimExpr], leading: Mapping[int, Axis]
) -> dict[Var, Axis] | None:
    """The axis of `leading` for each variable of a run in the dimensions that have one.

    None if elements of the buffers are elsewhere than in one row.
    """
    axes = {a.var: a for a in run.axes}
    found: dict[Var, Axis] = {}
    for buffer, there in (access for m in run.stores for access in m.elements()):
        if buffer not in buffers:
            continue
        if len(there) < len(indices):
            return None
        for number, index in enumerate(indices):
            mine = there[number]
            if number not in leading:
                if not as_poly(mine).same(as_poly(index)):
                    return None
                continue
            if not isinstance(mine, Var) or mine not in axes:
                return None
            if found.setdefault(mine, leading[number]) is not leading[number]:
                return None
        if any(mentions(i, found) for i in there[len(indices) :]):
            return None
    if len(found) < len(leading) or len({a.var for a in found.values()}) < len(leading):
        return None
    for var, axis in found.items():
        if not axes[var].has_bounds_of(axis) or var.dtype != axis.var.dtype:
            return None
    return found


def _renamed(run: Run, axes: Mapping[Var, Axis]) -> Run:
    values: dict[Var, PrimExpr] = {v: a.var for v, a in axes.items() if v is not a.var}
    names = {v: a.var for v, a in axes.items()}
    return replace(
        run,
        axes=tuple(axes.get(a.var, a) for a in run.axes),
        independent=frozenset(names.get(v, v) for v in run.independent),
        statements=tuple(m.substituted(values) for m in run.assignments),
        after=tuple(m.substituted(values) for m in run.after),
    )


class _Builder:
    """Builds the tasks of a chain; `blocks` has the rows of a block of each of its buffers.

    The first row of these is where `rows` says.
    """

    def __init__(self, program: KernelProgram, chain: _Chain) -> None:
        self.program, self.chain = program, chain
        self.row = max(chain.leading)
        local = (b for b in program.plan.local if b in chain.private)
        self.blocks = {b: decl_buffer(b.shape[self.row :], b.dtype, b.name) for b in local}
        first = IntImm(INT64, 0)
        self.rows = {
            block: BufferLoad(b, (*chain.above, *(first for _ in block.shape)))
            for b, block in self.blocks.items()
        }

    def tasks(self) -> Tasks:
        """The tasks: blocks of rows, in each iteration of the other leading axes."""
        chain = self.chain
        *outer, row = (chain.leading[n] for n in sorted(chain.leading))
        tasks = self._tasks_of(outer, row, self._size(row))
        if isinstance(tasks.body, Masked) and (size := self._masked_size(tasks.body, row)):
            return self._tasks_of(outer, row, size)
        return tasks

    def _tasks_of(self, outer: Sequence[Axis], row: Axis, size: int) -> Tasks:
        """The tasks whose blocks have `size` rows."""
        chain = self.chain
        low, first, start = (Var("lo", INT64) for _ in range(3))
        high, end, stop = (Var("hi", INT64) for _ in range(3))
        extent = row.extent.constant
        exact = extent is not None and extent % size == 0
        block = Axis(row.var, first, (as_poly(first) + size).expr() if exact else end)
        one, *inner, two = (self._in_block(run) for run in chain.parts)
        body = (
            replace(one, axes=(block, *one.axes)),
            Tile(block, start, stop, tuple(inner), {}, frozenset(), 1),
            replace(two, axes=(block, *two.axes)),
        )
        rows = dict.fromkeys(self.rows, Row(0, 0))
        axis = Axis(Var(row.var.name, INT64), low, high)
        tree = Tile(axis, first, end, body, rows, frozenset(rows), size)
        time = time_of(replace(tree, axis=row), [*outer, row])
        elided = {self.blocks[b] for b in self.program.elided.intersection(self.blocks)}
        tree = with_mask(tree, block, rows, elided)
        return Tasks(tuple(outer), row, size, low, high, tree, time * size)

    def _size(self, row: Axis) -> int:
        """The number of rows of a block, if possible a divisor of all rows."""
        lengths = (number_of(b.shape[1:]) for b in self.blocks.values())
        known = [Rows.DYNAMIC_LENGTH if n.constant is None else n.constant for n in lengths]
        most = Rows.CHAIN_BYTES // (4 * max(1, *known)) // 8 * 8
        most = min(max(most, Rows.LEAST_CHAIN), Rows.MOST_CHAIN)
        extent = row.extent.constant
        if extent is None:
            return most
        exact = (n for n in range(most, most // 2, -1) if extent % n == 0)
        return max(1, extent) if extent <= most else next(exact, most)

    def _masked_size(self, tile: Masked, row: Axis) -> int:
        """A smaller number of rows, which a mask hides more columns of; 0 if there is none."""
        size = max(tile.panel_size, Rows.LEAST_PANEL)
        extent = row.extent.constant or 0
        return size if size < (tile.size or 0) and extent % size == 0 else 0

    def _in_block(self, run: Run) -> Run:
        """The run without its leading axes, with the rows of a block instead of the buffers."""
        leading = self.chain.leading.values()
        axes = tuple(a for a in run.axes if all(a is not other for other in leading))
        members, after = (
            tuple(m.relocated(self._place) for m in ms) for ms in (run.assignments, run.after)
        )
        return replace(run, axes=axes, statements=members, after=after)

    def _place(self, load: BufferLoad) -> BufferLoad:
        block = self.blocks.get(load.buffer)
        return load if block is None else BufferLoad(block, load.indices[self.row :])
