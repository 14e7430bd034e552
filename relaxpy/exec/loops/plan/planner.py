"""From a PrimFunc to its plan; and to one whose loops run as scheduled, to measure a schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from relaxpy.errors import ScheduleError
from relaxpy.exec.loops.nest.intrinsics import check_datatypes, with_float_intrinsics
from relaxpy.exec.loops.nest.nodes import Axis, Item, Loop, Nest, walk_items
from relaxpy.exec.loops.nest.read import read
from relaxpy.exec.loops.plan.copies import forward_copies, reshaped_parameters, reshapes_first
from relaxpy.exec.loops.plan.dependence import may_run_at_once
from relaxpy.exec.loops.plan.expansion import expand_locals, fill_tables_first
from relaxpy.exec.loops.plan.initialisation import fold_initial, with_initialisation
from relaxpy.exec.loops.plan.memory import shared_memory
from relaxpy.exec.loops.plan.schedule import schedule
from relaxpy.exec.loops.plan.statements import Compound, Statement, statements_of
from relaxpy.exec.loops.plan.tree import For, Plan, Run, Tree, accesses, runs
from relaxpy.exec.loops.plan.unschedule import normalise_loops
from relaxpy.exec.runtime.scalar import with_checked_counts
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, ForKind


def nest_of(func: PrimFunc, name: str) -> tuple[PrimFunc, Nest, frozenset[Var]]:
    """`func` with supported intrinsics, its nest, and the variables of its dimensions.

    Errors:
        CompileError: a statement has no meaning outside special hardware, or a datatype does not
            fit.
    """
    check_datatypes(func, name)
    func = with_checked_counts(with_float_intrinsics(inline_shared(func)))
    buffers = func.buffer_map.values()
    shape_vars = frozenset(v for b in buffers for size in b.shape for v in _not_negative(size))
    return func, read(func, shape_vars), shape_vars


def make_plan(func: PrimFunc, name: str) -> Plan:
    """The plan of `func`.

    Errors:
        CompileError: as for `nest_of`.
    """
    func, nest, shape_vars = nest_of(func, name)
    buffers = list(func.buffer_map.values())
    nest = fill_tables_first(nest)
    nest = with_initialisation(expand_locals(nest, buffers), shape_vars)
    nest = normalise_loops(nest, shape_vars)
    aliased = {*nest.views, *nest.views.values()}
    local = [entry.buffer for entry in nest.local]
    statements = statements_of(nest, shape_vars)
    statements, copied = forward_copies(statements, {*local} - aliased, shape_vars, nest.views)
    local = [buffer for buffer in local if buffer not in copied]
    trees = schedule(statements, shape_vars, nest.views)
    trees = fold_initial(trees, shape_vars, nest.views)
    own_memory = {*local} - aliased
    reshaped = reshaped_parameters(trees, buffers, own_memory, nest.views, shape_vars)
    first = reshapes_first(trees, reshaped)
    shared = shared_memory(first, local, {*aliased, *reshaped})
    return Plan(
        func,
        name,
        nest,
        shape_vars,
        tuple(first),
        tuple(local),
        shared,
        nest.views,
        reshaped,
        frozenset(copied),
        Counter(b for run in runs(first) for b in {a.buffer for a in accesses(run)}),
    )


def _not_negative(size: PrimExpr) -> Iterable[Var]:
    """The variable of `size`, a dimension of an array, if that is a multiple of a variable."""
    match list(as_poly(size).terms.items()):
        case [((Var() as var,), factor)] if factor > 0:
            return (var,)
        case _:
            return ()


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


def inline_shared(func: PrimFunc) -> PrimFunc:
    """`func` without blocks that compute, per thread, values that all threads read.

    Where threads run one after the other, none gains by that, so each computes what it reads.
    """
    scopes = {b.scope() for block in occurrences(func.body, Block) for b in block.alloc_buffers}
    if not any(scope.startswith(("shared", "warp")) for scope in scopes):
        return func
    from relaxpy.ir.tir.rewrite.inline import compute_inline  # with all of scheduling
    from relaxpy.ir.tir.rewrite.stages import stage_in_scope
    from relaxpy.ir.tir.rewrite.state import State, is_shared

    state = State(func)
    for old in list(state.blocks()):
        block = state.current(old)
        if block is None or block is state.root:
            continue
        try:
            stages, stage = stage_in_scope(state, block)
            users = [s for s in stages if not stage.writes.keys().isdisjoint({*s.reads, *s.writes})]
            if any(
                is_shared(buffer, loop) and all(loop in user.loops for user in users)
                for buffer in stage.writes
                for loop in stage.loops
            ):
                compute_inline(state, block)
        except ScheduleError:
            continue  # the block stays, which is slower
    return state.func
