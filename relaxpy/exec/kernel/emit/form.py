"""The NumPy form of a plan: with its own tiles, searches, and buffers to allocate.

It also tells which inputs may alias an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from relaxpy.exec.kernel.emit.row_products import row_products
from relaxpy.exec.kernel.emit.short_axes import with_short_loops
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.blocking import in_tiles
from relaxpy.exec.kernel.plan.idioms import searched_condition
from relaxpy.exec.kernel.plan.memory import operands_in_place
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import (
    Plan,
    Row,
    Run,
    Search,
    Tile,
    Tree,
    accesses,
    runs,
    written_memory,
)
from relaxpy.exec.kernel.plan.updates import reduction_identity
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import EQ, Call, ConstExpr, Or, PrimExpr, Var
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class NumpyForm:
    """A plan; the kernel allocates the buffers `allocated`, except those of single blocks.

    Statements that compute buffers in `unused` are dead, as no search needs their max or min.
    """

    plan: Plan
    allocated: tuple[Buffer, ...]
    unused: Mapping[Buffer, Assignment]


def numpy_form(plan: Plan) -> NumpyForm:
    """The form in which NumPy runs `plan`."""
    plan = with_searches(plan)
    unused = unused_extremes(plan)
    searches = (r.statement for r in runs(plan.trees) if isinstance(r.idiom, Search))
    plan = in_tiles(plan, {*unused.values(), *searches}, for_threads=True)
    plan = with_short_loops(plan)
    without = {b for tree in plan.trees if isinstance(tree, Tile) for b in tree.local}
    without.update(unused, plan.reshaped)
    return NumpyForm(plan, tuple(b for b in plan.local if b not in without), unused)


def with_searches(plan: Plan) -> Plan:
    """`plan` with argmax and argmin searches marked as that idiom."""
    trees = list(plan.trees)
    for number, tree in enumerate(trees):
        if isinstance(tree, Run) and tree.idiom is None:
            search = _search(trees[:number], tree, plan.root)
            if search is not None:
                trees[number] = replace(tree, idiom=search)
    return replace(plan, trees=tuple(trees))


def unused_extremes(plan: Plan) -> dict[Buffer, Assignment]:
    """The computation of each local max or min that only searches use."""
    searches = {r: r.idiom for r in runs(plan.trees) if isinstance(r.idiom, Search)}
    extremes = {s.extreme.target: s.extreme for s in searches.values()}
    own = {*extremes.values()}
    others = (r for r in runs(plan.trees) if r not in searches and r.statement not in own)
    used = {access.buffer for run in others for access in accesses(run)}
    private = {b for b in plan.local if b not in plan.shared} - plan.fixed - used
    return {b: extreme for b, extreme in extremes.items() if b in private}


def _search(before: Sequence[Tree], run: Run, root: Callable[[Buffer], Buffer]) -> Search | None:
    condition, statement = searched_condition(run), run.accumulation
    if condition is None or statement is None or statement.guards:
        return None
    pair = _compared(condition)
    if pair is None:
        return None
    values, best = pair
    needed = {root(best.buffer), *(root(load.buffer) for load in loads(values))}
    for earlier in reversed(before):
        match earlier:
            case Run(accumulation=Assignment(target=target) as extreme, over=over) if (
                target is best.buffer
            ):
                expected = _extreme_at(extreme, over, best, run.over)
                is_same = expected is not None and bool(expected == values)
                return Search(values, extreme) if is_same else None
            case _:
                if not needed.isdisjoint(written_memory((earlier,), root)):
                    return None
    return None


def _compared(condition: PrimExpr) -> tuple[PrimExpr, BufferLoad] | None:
    """The value and the load of its max or min, if the condition is that they are equal.

    A float may also be NaN.
    """
    match condition:
        case Or(a=EQ(a=a, b=BufferLoad() as best), b=Call(op=Op(name="tir.isnan"), args=(value,))):
            is_complete = bool(a == value)
        case EQ(a=a, b=BufferLoad() as best):
            is_complete = not a.dtype.is_float
        case _:
            return None
    return (a, best) if is_complete and a.dtype.numpy().isbuiltin == 1 else None


def _extreme_at(
    statement: Assignment, over: Sequence[Axis], load: BufferLoad, searched: Sequence[Axis]
) -> PrimExpr | None:
    """The values along `searched` whose max or min `statement` stores in `load`."""
    update = statement.update
    if update is None or update.combine not in ("min", "max"):
        return None
    if statement.guards or statement.initial is None or len(over) != 1:
        return None
    if not bool(statement.initial == reduction_identity(update.combine, statement.target.dtype)):
        return None
    [axis], [other] = over, searched
    if not axis.has_bounds_of(other):
        return None
    values: dict[Var, PrimExpr] = {axis.var: other.var}
    for index, actual in zip(statement.indices, load.indices, strict=True):
        if isinstance(index, Var):
            values[index] = actual
        elif not isinstance(index, ConstExpr) or not bool(index == actual):
            return None
    return substitute(update.operand, values)


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
