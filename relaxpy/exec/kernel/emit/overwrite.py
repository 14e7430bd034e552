"""Finds the inputs of a NumPy kernel that may alias an output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxpy.exec.kernel.emit.form import NumpyForm
from relaxpy.exec.kernel.emit.row_products import row_products
from relaxpy.exec.kernel.plan.memory import operands_in_place
from relaxpy.exec.kernel.plan.tree import Row, Run, Tile, Tree, accesses, runs, written_memory
from relaxpy.ir.tir.buffer import Buffer


def overwritable(form: NumpyForm) -> Iterator[tuple[Buffer, Buffer]]:
    """The pairs of a read and a written parameter that may be the same array.

    Rule:
        No step reads the first one after a step uses the second one. The first step that does
        reads no element of the first one, or stores each in place. Blocks of rows use the same
        rows of both.
    """
    plan, products = form.plan, row_products(form.plan)

    def memory(buffer: Buffer) -> Buffer:
        return plan.root(plan.reshaped.get(buffer, buffer))

    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    rows: dict[Buffer, dict[Tile, set[Row | None]]] = {}
    steps = [*_steps(plan.trees)]
    for number, (tile, step) in enumerate(steps):
        members = (run for run in runs((step,)) if run not in products.omitted)
        computed = (products.contractions.get(run, run) for run in members)
        for access in (access for run in computed for access in accesses(run)):
            used = memory(access.buffer)
            first.setdefault(used, number)
            last[used] = number
            if tile is not None:
                of_tiles = rows.setdefault(used, {})
                of_tiles.setdefault(tile, set()).add(tile.rows.get(access.buffer))

    def in_place(source: Buffer, run: Run) -> bool:
        operands = () if run.store is None else map(memory, operands_in_place(run.store))
        count = sum(memory(read.buffer) is source for read in run.statement.reads)
        return count == 1 and source in operands

    def has_own_rows(source: Buffer, target: Buffer) -> bool:
        theirs = rows.get(target, {})
        common = [
            (mine, theirs[tile]) for tile, mine in rows.get(source, {}).items() if tile in theirs
        ]
        return all(mine == other and len(mine) == 1 and None not in mine for mine, other in common)

    parameters = [b for b in plan.func.buffer_map.values() if b in first]
    written = written_memory(plan.trees, memory)
    for target in (b for b in parameters if b in written):
        _, step = steps[first[target]]
        for source in (b for b in parameters if b not in written):
            is_read_before = last[source] < first[target]
            if last[source] == first[target] and isinstance(step, Run):
                is_read_before = in_place(source, step)
            if is_read_before and has_own_rows(source, target):
                yield source, target


def _steps(trees: Sequence[Tree]) -> Iterator[tuple[Tile | None, Tree]]:
    """The runs, those of blocks with their block, and the loops in order."""
    for tree in trees:
        if isinstance(tree, Tile):
            yield from ((tree, run) for run in tree.body)
        else:
            yield None, tree
