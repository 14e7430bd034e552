"""The plan of a kernel whose loops run as scheduled, to measure the effect of a schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from relaxpy.exec.kernel.nest.nodes import Axis, Item, Loop, Nest, walk_items
from relaxpy.exec.kernel.plan.dependence import may_run_at_once
from relaxpy.exec.kernel.plan.initialisation import with_initialisation
from relaxpy.exec.kernel.plan.planner import nest_of
from relaxpy.exec.kernel.plan.statements import Compound, Statement, statements_of
from relaxpy.exec.kernel.plan.tree import For, Plan, Run, Tree, accesses, runs
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import ForKind

REASON = "its loops run as they are written"


def plan_as_written(func: PrimFunc, name: str) -> Plan:
    """The plan of `func` with loops and stores in source order.

    Inits run before their reduction loops, as after `decompose_reduction`. Parallel loops are loops
    of the tree, and everything else is in statements.

    Errors:
        CompileError: as for `make_plan`.
    """
    func, nest, shape_vars = nest_of(func, name)
    nest = with_initialisation(nest, shape_vars)
    trees = tuple(_trees(nest.items, (), nest))
    return Plan(
        func,
        name,
        nest,
        shape_vars,
        trees,
        tuple(entry.buffer for entry in nest.local),
        {},
        nest.views,
        {},
        frozenset(),
        Counter(b for run in runs(trees) for b in {a.buffer for a in accesses(run)}),
    )


def _trees(items: Sequence[Item], outer: tuple[Axis, ...], nest: Nest) -> Iterator[Tree]:
    """The trees of items inside the loops `outer`."""
    if not any(_is_parallel(item, nest) for item in walk_items(tuple(items))):
        yield from _compound(items, outer)
        return
    for item in items:
        if not isinstance(item, Loop) or not any(
            _is_parallel(inner, nest) for inner in walk_items((item,))
        ):
            yield from _compound((item,), outer)
            continue
        body = tuple(_trees(item.body, (*outer, item.axis), nest))
        yield For(item.axis, body, "it is written so")


def _compound(items: Sequence[Item], outer: tuple[Axis, ...]) -> Iterator[Run]:
    if items:
        yield Run((Compound(outer, tuple(items), frozenset(), None, REASON),))


def _is_parallel(item: Item, nest: Nest) -> bool:
    return isinstance(item, Loop) and nest.kinds.get(item.axis.var) == ForKind.PARALLEL


def kept_kinds(plan: Plan) -> tuple[dict[Var, ForKind], list[str]]:
    """The kinds of loops that are kept, and the reasons why others are serial.

    Parallel iterations do not depend on each other.
    """
    statements = statements_of(plan.nest, plan.shape_vars)
    kept: dict[Var, ForKind] = {}
    reasons: list[str] = []
    loops = [i for i in walk_items(plan.nest.items) if isinstance(i, Loop)]
    for var, kind in plan.nest.kinds.items():
        own = [s for s in statements if any(a.var is var for a in s.axes)]
        axis = next((i.axis for i in loops if i.axis.var is var), None)
        if axis is None:
            continue
        if kind == ForKind.UNROLLED or _may_run_at_once(axis, own, plan):
            kept[var] = kind
        else:
            reasons.append(f"loop {var.name} is serial: its iterations may depend on each other")
    return kept, reasons


def _may_run_at_once(axis: Axis, statements: Sequence[Statement], plan: Plan) -> bool:
    is_known = all(not isinstance(s, Compound) for s in statements)
    return is_known and may_run_at_once(axis, statements, plan.shape_vars, plan.views)
