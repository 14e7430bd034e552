"""The NumPy form of a plan: with its own tiles, searches, and buffers to allocate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from relaxpy.exec.kernel.emit.short_axes import with_short_loops
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.blocking import in_tiles
from relaxpy.exec.kernel.plan.searches import searched_condition
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import (
    Plan,
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
