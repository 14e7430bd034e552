"""rolling_buffer: a circular buffer for rows that the next iteration reads again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
from relaxpy.ir.arith.tvm.iter_reader import IterMapLevel, analyzer_of
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.index_map import IndexMap, minimum_of, stop_of
from relaxpy.ir.tir.analysis.regions import Interval
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.rewrite.inline import check_loads_only
from relaxpy.ir.tir.rewrite.stages import (
    Bodies,
    Indices,
    Stage,
    check_dominant,
    check_init_runs,
    check_no_partial_reads,
    check_own_dependence,
    check_own_variables,
    check_plain_iterations,
    check_stable_inputs,
    is_one_to_one,
    stage_in_scope,
)
from relaxpy.ir.tir.rewrite.state import State, domains_of, refused
from relaxpy.ir.tir.stmt import Block, For, ForKind, Stmt
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.plugins.schedule.cache import Site, buffer_of, site_after
from relaxpy.plugins.schedule.layout import Relayout
from relaxpy.plugins.schedule.reindex import only_indices
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Overlap:
    """An axis of which each iteration of a loop writes `size` elements, some of them again.

    An iteration writes the elements from `low` on, at `low + rest`; the first `count` of them are
    the last ones of the iteration before. The loops `inner` are those of `rest`.
    """

    axis: int
    loop: For
    low: PrimExpr
    rest: PrimExpr
    size: int
    count: int
    inner: Sequence[Var]

    def is_new(self) -> PrimExpr:
        """Return the condition that an element was not written in the iteration before."""
        first = ops.compare(tir.LT, self.loop.loop_var, ops.add(self.loop.min, 1))
        return ops.any_of(first, ops.compare(tir.LE, self.count, self.rest))


def rolling_buffer(state: State, block: Block, which: int) -> None:
    """Write each element once, to a buffer as short as the region that an iteration writes."""
    scope = state.scope(block)
    stages, stage = stage_in_scope(state, block)
    buffer = buffer_of(stage, which, block.writes, "writes")
    check_loads_only(state, buffer)
    if buffer not in scope.alloc_buffers:
        raise refused(f"{buffer.name} is not allocated in the block around {stage.name}", block)
    check_own_variables(stage)
    readers = [s for s in stages if buffer in s.reads and s is not stage]
    check_no_partial_reads(stage, readers)
    site = site_after(state, scope, stages, stage, buffer)
    if not isinstance(site.parent, For):
        raise refused(f"block {stage.name} and the readers of {buffer.name} share no loop", block)
    shared = [*state.loops(site.parent), site.parent]
    _check_repeatable(state, stage, stages, shared)
    values = stage.values()
    indices = tuple(substitute(index, values) for index in only_indices(stage, buffer))
    found = _overlaps(stage, shared, indices, _bounds(site.members()[site.index - 1], buffer, True))
    if not found:
        raise refused(
            f"no loop writes elements of {buffer.name} again in its next iteration", block
        )
    rolled = min(found, key=lambda overlap: shared.index(overlap.loop))
    check_plain_iterations(stage, stage.loops)
    for loop in shared:
        if loop.kind != ForKind.SERIAL:
            kind = loop.kind.name.lower()
            raise refused(f"loop {loop.loop_var.name} is {kind}, expected a serial one", loop)
    _check_reads(buffer, rolled, shared, site)
    opaque = {
        var
        for s in (stage, *readers)
        for index in _indices_at(s.block, buffer, rolled.axis)
        for var in occurrences(index, Var)
    }
    _fold(state, buffer, rolled)
    for s in (stage, *readers):
        old = state.current(s.block)
        assert old is not None
        new = replace(
            old,
            iter_vars=tuple(
                replace(it, iter_type=IterVarKind.Opaque)
                if it.var in opaque and it.iter_type == IterVarKind.DataPar
                else it
                for it in old.iter_vars
            ),
        )
        realize = state.realize(old)
        tests = [overlap.is_new() for overlap in found] if s is stage else []
        predicate = ops.all_of(realize.predicate, *tests)
        state.replace({realize: replace(realize, block=new, predicate=predicate)}, {old: new})


def _check_repeatable(
    state: State, stage: Stage, stages: Sequence[Stage], shared: Sequence[For]
) -> None:
    """Errors: ScheduleError if iterations of `shared` may write other values to an element."""
    check_own_dependence(stage)
    check_dominant(stage, stages)
    is_reduction = stage.updates() or stage.iters(IterVarKind.CommReduce)
    if stage.block.init is None and is_reduction:
        raise refused(f"the reduction {stage.name} has no T.init()", stage.block)
    own = domains_of([loop for loop in stage.loops if loop not in shared])
    if is_reduction and not is_one_to_one(stage.realize.iter_values, own, stage.realize.predicate):
        raise refused(
            f"the reduction {stage.name} may run twice for the same values of its variables",
            stage.block,
        )
    check_init_runs(stage)
    check_stable_inputs(
        state,
        stage,
        stages,
        lambda writer, all_of_them: _check_repeatable(state, writer, all_of_them, shared),
    )


def _bounds(node: Stmt, buffer: Buffer, writes: bool) -> list[Interval] | None:
    """Return the first and last index of the accesses below a statement, for each axis."""
    accesses = Bodies(())
    accesses.statement(node)
    return (accesses.writes if writes else accesses.reads).get(buffer)


def _overlaps(
    stage: Stage, shared: Sequence[For], indices: Indices, bounds: Sequence[Interval] | None
) -> list[Overlap]:
    """Return the axes along which iterations of a loop write some elements again."""
    simplify = analyzer_of(domains_of(stage.loops)).simplify
    own = domains_of([loop for loop in stage.loops if loop not in shared])
    found = []
    for axis, (index, bound) in enumerate(zip(indices, bounds or (), strict=False)):
        loops = [loop for loop in shared if mentions(index, (loop.loop_var,))]
        if bound is None or len(loops) != 1:
            continue
        (loop,) = loops
        low, high = bound
        size = simplify(ops.sub(ops.add(high, 1), low))
        after = substitute(low, {loop.loop_var: ops.add(loop.loop_var, 1)})
        step = simplify(ops.sub(after, low))
        rest = simplify(ops.sub(index, low))
        if not isinstance(size, IntImm) or not isinstance(step, IntImm) or step.value <= 0:
            continue
        inner = [var for var in own if mentions(index, (var,))]
        others = [other for k, other in enumerate(indices) if k != axis]
        if any(mentions(other, (loop.loop_var, *inner)) for other in others):
            continue
        count = size.value - step.value
        if count > 0 and _is_range(rest, {var: own[var] for var in inner}, size):
            overlap = Overlap(axis, loop, low, rest, size.value, count, inner)
            _check_condition(stage, overlap, index)
            found.append(overlap)
    return found


def _is_range(rest: PrimExpr, domains: Mapping[Var, Range], size: IntImm) -> bool:
    """True if an expression takes each value in [0, size)."""
    detected = detect_iter_map([rest], domains, True, IterMapLevel.Surjective)
    if detected.errors:
        return False
    (index,) = detected.indices
    equal = Analyzer().can_prove_equal
    return equal(minimum_of(index), 0) and equal(stop_of(index), size)


def _check_condition(stage: Stage, overlap: Overlap, index: PrimExpr) -> None:
    """Errors: ScheduleError if the condition of a block may differ for the same element."""
    relevant = (overlap.loop.loop_var, *overlap.inner)
    for test in conjuncts(stage.realize.predicate):
        if not mentions(test, relevant):
            continue
        sides = (test.a, test.b) if isinstance(test, (tir.LT, tir.LE, tir.GT, tir.GE)) else None
        rest = None if sides is None else ops.sub(ops.sub(*sides), index)
        if rest is None or mentions(Analyzer().simplify(rest), relevant):
            raise refused(
                f"the condition {test} of block {stage.name} is not one of an index", stage.block
            )


def _check_reads(buffer: Buffer, rolled: Overlap, shared: Sequence[For], site: Site) -> None:
    """Errors: ScheduleError if an iteration may read other elements than it writes."""
    analyzer = analyzer_of(domains_of(shared))
    for member in site.members()[site.index :]:
        bounds = _bounds(member, buffer, False)
        bound = None if bounds is None else bounds[rolled.axis]
        if bounds is None:
            continue
        last = ops.add(rolled.low, rolled.size - 1)
        if bound is None or not (
            analyzer.can_prove(ops.compare(tir.GE, bound[0], rolled.low))
            and analyzer.can_prove(ops.compare(tir.LE, bound[1], last))
        ):
            raise refused(
                f"an iteration of loop {rolled.loop.loop_var.name} may read elements of "
                f"{buffer.name} that it does not write",
                member,
            )


def _indices_at(block: Block, buffer: Buffer, axis: int) -> list[PrimExpr]:
    """Return the indices along an axis at which a block accesses a buffer."""
    loads = [load for load in occurrences(block, BufferLoad) if load.buffer is buffer]
    regions = [region for region in (*block.reads, *block.writes) if region.buffer is buffer]
    return [load.indices[axis] for load in loads] + [r.region[axis].min for r in regions]


def _fold(state: State, buffer: Buffer, rolled: Overlap) -> None:
    """Keep only as many elements along an axis as an iteration writes."""
    variables = tuple(Var(f"i{k}", size.dtype) for k, size in enumerate(buffer.shape))
    folded: list[PrimExpr] = list(variables)
    folded[rolled.axis] = ops.floormod(variables[rolled.axis], rolled.size)
    shape = list(buffer.shape)
    shape[rolled.axis] = ops.const(rolled.size, shape[rolled.axis].dtype)
    new = decl_buffer(shape, buffer.dtype, buffer.name, scope=buffer.scope())
    relayout = Relayout(buffer, new, IndexMap(variables, tuple(folded)))
    body = relayout.visit(state.func.body)
    assert isinstance(body, Stmt)
    state.become(state.func.with_fields(body=body), relayout.renewed)
