"""The NumPy form of a plan: with its own tiles, searches, and buffers to allocate.

It also tells which inputs may alias an output.

NumPy loops along the innermost axis of a target, and restarts for each position of the others. If
that axis is short, a Python loop over it with strided stores is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from relaxpy.exec.loops.nest.bounds import may_fail
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.blocking import in_tiles
from relaxpy.exec.loops.plan.idioms import searched_condition
from relaxpy.exec.loops.plan.memory import operands_in_place
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import (
    For,
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
from relaxpy.exec.loops.plan.updates import reduction_identity
from relaxpy.exec.machine.tuning import NumPy
from relaxpy.exec.numpy.emit.array_values import converted_by_store
from relaxpy.exec.numpy.emit.row_products import row_products
from relaxpy.ir.arith.algebra.affine import Affine, affine, as_poly
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import EQ, Call, ConstExpr, Or, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace

_SIMPLE = (tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Max, tir.Min)
"""Operations that are as fast with strided operands, if there is only one."""

_Maps: TypeAlias = Sequence[Affine]


def with_short_loops(plan: Plan) -> Plan:
    """`plan` with a loop over each axis of few elements that is the innermost of a simple store.

    Rule:
        The store copies, broadcasts, or does one operation, which cannot fail. Its iterations may
        be in any order, and it reads no memory that it writes. The other axes are long, and in the
        same order in all operands, so that no stride grows. NumPy cannot coalesce the axis with the
        next one, as it does where both are contiguous in all operands.
    """
    return replace(plan, trees=tuple(_looped(tree, plan, ()) for tree in plan.trees))


def _looped(tree: Tree, plan: Plan, outer: tuple[Axis, ...]) -> Tree:
    match tree:
        case For(axis=axis, body=body):
            return replace(tree, body=tuple(_looped(t, plan, (*outer, axis)) for t in body))
        case Run():
            statement = tree.store
            if statement is None or not _is_simple(statement, plan):
                return tree
            short = _short_axis(statement, tree.axes)
            if short is None or short.var not in plan.independent(tree, outer):
                return tree
            rest = replace(tree, axes=tuple(a for a in tree.axes if a is not short))
            reason = f"an axis of {short.extent.constant} elements is too short for vectors"
            return For(short, (_looped(rest, plan, (*outer, short)),), reason)
        case _:
            return tree


def _is_simple(statement: Assignment, plan: Plan) -> bool:
    """True if an unguarded store copies or does one operation, and reads other memory."""
    if statement.guards or statement.target in plan.reshaped:
        return False
    target = plan.root(statement.target)
    if any(plan.root(read.buffer) is target for read in statement.reads):
        return False
    axes, shape_vars = statement.axes, plan.shape_vars
    accesses = (BufferLoad(statement.target, statement.indices), statement.value)
    if any(may_fail(access, axes, shape_vars) for access in accesses):
        return False
    value = statement.value
    if isinstance(value, _SIMPLE):
        return _is_operand(value.a) and _is_operand(value.b)
    source = converted_by_store(value)
    return _is_operand(value if source is None else source)


def _is_operand(expr: tir.PrimExpr) -> bool:
    return isinstance(expr, (BufferLoad, tir.IntImm, tir.FloatImm))


def _short_axis(statement: Assignment, axes: Sequence[Axis]) -> Axis | None:
    """The innermost axis of the target, if a loop over it is faster; otherwise None."""
    accesses = [(statement.target, statement.indices)]
    accesses += [(x.buffer, x.indices) for x in loads(statement.value)]
    operands = [(buffer, _maps(indices, axes)) for buffer, indices in accesses]
    known = [(buffer, maps) for buffer, maps in operands if maps is not None]
    order = _innermost_last(known[0][1]) if len(known) == len(operands) else None
    if not order:
        return None
    inner = next(a for a in axes if a.var is order[-1])
    store = _Store(known, order, inner, [a for a in axes if a is not inner])
    return None if any(case.holds(store) for case in _CASES) else inner


@dataclass(frozen=True, slots=True, eq=False)
class _Store:
    """The operands of a store, the target first, its axes by decreasing stride, and the others."""

    operands: Sequence[tuple[Buffer, _Maps]]
    order: Sequence[tir.Var]
    inner: Axis
    others: Sequence[Axis]

    def has_long_rows(self) -> bool:
        """True if the innermost axis is not short."""
        return not _is_short(self.inner)

    def has_large_rows(self) -> bool:
        """True if elements that the loop stores are not `NEAR` each other."""
        stride = self.inner.extent * self.operands[0][0].dtype.itemsize
        return not (as_poly(NumPy.NEAR) - stride).is_at_least(0, ())

    def has_few_rows(self) -> bool:
        """True if there are fewer than `LEAST_LONG`."""
        count = math.prod((a.extent for a in self.others), start=as_poly(1)).constant
        return count is not None and count < NumPy.LEAST_LONG

    def has_ragged_rows(self) -> bool:
        """True if other loops depend on the innermost one."""
        return any(mentions(b, {self.inner.var}) for a in self.others for b in (a.start, a.stop))

    def is_transposed(self) -> bool:
        """True if an operand has the long axes in another order than the target."""
        long = {a.var for a in self.others if not _is_short(a)}
        for _, maps in self.operands[1:]:
            found = _innermost_last(maps)
            used = [v for v in found or () if v in long]
            if found is None or used != [v for v in self.order if v in used]:
                return True
        return False

    def is_contiguous(self) -> bool:
        """True if NumPy joins the innermost axis with the next one."""
        return _is_joined(self.operands, self.inner)


class _Case(NamedTuple):
    """Stores for which no loop pays; `why` has times of copies with a loop and without."""

    holds: Callable[[_Store], bool]
    why: str


_CASES: Final = (
    _Case(_Store.has_long_rows, "100,000 rows of 16 take 1.2 ms and 0.6, those of 4 0.12 and 0.38"),
    _Case(_Store.has_large_rows, "100,000 rows of 64 bytes take 0.36 ms and 0.37"),
    _Case(_Store.has_ragged_rows, "the loop would not be the outer one of the others"),
    _Case(_Store.has_few_rows, "64 rows of 3 take 1.7 us and 1.3, 4096 take 5.2 and 15.6"),
    _Case(_Store.is_transposed, "an image of 1000 x 1000 x 3, transposed, takes 5.1 ms and 5.7"),
    _Case(_Store.is_contiguous, "100,000 adjacent rows of 3 take 87 us and 27"),
)


def _is_short(axis: Axis) -> bool:
    """True if a loop over the axis has few iterations, but more than one."""
    count = axis.extent.constant
    return count is not None and 1 < count <= NumPy.SHORT_AXIS


def _maps(indices: Sequence[tir.PrimExpr], axes: Sequence[Axis]) -> _Maps | None:
    """The indices as affine maps of `axes`, with constant factors; None if one is not."""
    variables = {a.var for a in axes}
    maps: list[Affine] = []
    for index in indices:
        is_computed = next(loads(index), None) is not None
        linear = None if is_computed else affine(index, variables)
        if linear is None or any(f.constant is None for f in linear.coefficients.values()):
            return None
        maps.append(linear)
    return maps


def _innermost_last(maps: _Maps) -> list[tir.Var] | None:
    """The axes by decreasing stride; None if one is used twice."""
    order = [
        var
        for m in maps
        for var in sorted(m.coefficients, key=lambda v: -abs(m.coefficients[v].constant or 0))
    ]
    return order if len(order) == len(set(order)) else None


def _is_joined(operands: Sequence[tuple[Buffer, _Maps]], inner: Axis) -> bool:
    """True if the axis is contiguous with the same next one in all operands."""
    nexts = {_next(buffer, maps, inner) for buffer, maps in operands}
    return len(nexts) == 1 and None not in nexts


def _next(buffer: Buffer, maps: _Maps, inner: Axis) -> tir.Var | None:
    """The axis of the rows that `inner` is, if these are contiguous."""
    if len(maps) < 2 or not inner.extent.same(as_poly(buffer.shape[-1])):
        return None
    *_, rows, columns = (m.coefficients for m in maps)
    if [*columns] != [inner.var] or not columns[inner.var].same(1) or len(rows) != 1:
        return None
    [(var, factor)] = rows.items()
    return var if factor.same(1) else None


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
