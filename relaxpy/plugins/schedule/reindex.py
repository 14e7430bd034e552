"""reindex, reindex_cache_* and rolling_buffer: copies of buffers at other indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
from relaxpy.ir.arith.tvm.iter_reader import IterMapLevel, analyzer_of
from relaxpy.ir.core.dtype import INT32
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, occurrences
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.index_inverse import minimum_of, stop_of
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.analysis.regions import Interval, with_regions
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
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
    check_pure_stage,
    check_stable_inputs,
    condition_outside,
    covers_domain,
    is_one_to_one,
    is_unit,
    stage_in_scope,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    below,
    domains_of,
    iter_domains,
    loops_like,
    open_tests,
    refused,
    serial_nest,
)
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.plugins.schedule import cache, change_layout
from relaxpy.plugins.schedule.loops import without_loops
from relaxpy.support.dataclass import dataclass, replace


def reindex(state: State, block: Block, which: change_layout.BufferName) -> Block:
    """Copy a buffer before a block reads it, or after it writes it."""
    stages, stage = stage_in_scope(state, block)
    buffer, is_write = change_layout.accessed_buffer(stage, which)
    check_loads_only(state, buffer)
    check_pure_stage(stage, stages)
    if not is_write and buffer in stage.writes:
        raise refused(f"block {stage.name} writes {buffer.name}, too", block)
    if not covers_domain(stage):
        raise refused(f"the loops of block {stage.name} do not cover its variables", block)
    indices = only_indices(stage, buffer)
    iters = [it for it in block.iter_vars if any(mentions(i, (it.var,)) for i in indices)]
    scope = state.scope(block)
    site = cache.Site(scope, 0)
    place = cache.member_index(state, site, block)
    if is_write:
        _check_one_store(stage, buffer, iters)
        _check_alone(state, stage, stages, buffer)
    else:
        check_stable_inputs(state, stage, stages)
        _check_in_bounds(stage, buffer, indices, iters)
        early = {cache.member_index(state, site, s.block) for s in stages if buffer in s.writes}
        if any(at >= place for at in early):
            raise refused(f"{buffer.name} is written in the loops around block {stage.name}", block)
    shape = [it.dom.extent for it in iters if it.dom is not None]
    copy = decl_buffer(shape, buffer.dtype, f"{buffer.name}_reindex", scope=buffer.scope())
    own = tuple(it.var for it in iters)
    new = _accessing(block, buffer, copy, own)
    copied = _copy(buffer, copy, indices, own, iters, is_write=is_write)
    loops = [(Var(f"ax{k}", it.var.dtype), it.dom) for k, it in enumerate(iters) if it.dom]
    condition = condition_outside(stage, stage.loops)
    realize = BlockRealize(tuple(var for var, _ in loops), condition, copied)
    state.renew(block, new)
    current = state.current(scope)
    assert current is not None
    cache.Site(current, place + is_write).insert(state, serial_nest(loops, realize))
    state.allocate(scope, copy)
    return copied


def reindex_cache(
    state: State,
    block: Block,
    which: tuple[str, int],
    storage_scope: str,
    index_map: change_layout.Map,
    map_of: change_layout.MapOf,
) -> Block:
    """Let `block` use a copy of a buffer at the indices that a map of its variables returns.

    The copy is as close to the block as that of cache_read or cache_write, with the loops that the
    elements need.
    """
    scope = state.scope(block)
    stages, stage = stage_in_scope(state, block)
    buffer, is_write = change_layout.accessed_buffer(stage, which)
    check_loads_only(state, buffer)
    check_own_variables(stage)
    indices = only_indices(stage, buffer)
    every = [it.var for it in block.iter_vars]
    dtype = every[0].dtype if every else INT32
    own = tuple(map_of(index_map, len(every), dtype).map_indices(every))
    iters = [it for it in block.iter_vars if any(mentions(i, (it.var,)) for i in (*own, *indices))]
    for it in iters:
        is_mapped, is_index = (any(mentions(i, (it.var,)) for i in at) for at in (own, indices))
        if is_mapped != is_index and not is_unit(it.dom):
            where = "the map" if is_mapped else f"the indices of {buffer.name}"
            raise refused(
                f"variable {it.var.name} of block {stage.name} is in {where} alone", block
            )
    domains = iter_domains(block)
    used = IndexMap(tuple(it.var for it in iters), own)
    doms = [domains[it.var] for it in iters]
    change_layout.injective(used, doms, assume=False)
    if is_write:
        _check_one_store(stage, buffer, iters)
        check_init_runs(stage)
        site = cache.site_after(state, scope, stages, stage, buffer)
    else:
        _check_in_bounds(stage, buffer, indices, iters)
        site = cache.site_before(state, scope, stages, [stage], buffer)
    inner = cache.loops_below(state, site, block)
    if stage.deciding or stage.is_guarded(inner):
        raise refused(
            f"a branch, or an element of a buffer, decides whether block {stage.name} runs", block
        )
    copy = cache.like(buffer, storage_scope, used.map_shape(doms))
    copied = _copy(buffer, copy, indices, own, iters, is_write=is_write)
    values = stage.values()
    bound = tuple(values[it.var] for it in iters)
    condition = _first_condition(stage) if is_write else stage.realize.predicate
    loops = [
        loop for loop in inner if any(mentions(e, (loop.loop_var,)) for e in (*bound, condition))
    ]
    names = {loop.loop_var: loop.loop_var.renamed(loop.loop_var.name) for loop in loops}
    realize = BlockRealize(
        tuple(substitute(value, names) for value in bound), substitute(condition, names), copied
    )
    site.insert(state, loops_like(loops, names, realize))
    state.renew(block, _accessing(block, buffer, copy, own))
    state.allocate(state.scope(copied), copy)
    return copied


def _first_condition(stage: Stage) -> PrimExpr:
    """The part of the predicate of a block that decides if it writes an element at all.

    Its init runs if any iteration of the reduction does, or if there is none.
    """
    reduced = [] if stage.block.init is None else stage.reduction_loops()
    names = {loop.loop_var for loop in reduced}
    return without_loops(
        stage.realize.predicate, names, {loop.loop_var for loop in stage.loops} - names
    )


def only_indices(stage: Stage, buffer: Buffer) -> Indices:
    """The indices at which a block accesses a buffer.

    Errors:
        ScheduleError: there are several, or loops or blocks in the block.
    """
    if any(isinstance(node, (For, Block)) for node in below(stage.block.body)):
        raise refused(f"there are loops or blocks in block {stage.name}", stage.block)
    nodes: list[BufferLoad | BufferStore] = [
        *occurrences(stage.block.body, BufferLoad),
        *(node for node in below(stage.block.body) if isinstance(node, BufferStore)),
    ]
    found = [node.indices for node in nodes if node.buffer is buffer]
    first, *others = found or [()]
    if not found or any(not all(map(PrimExpr.same_as, first, other)) for other in others):
        raise refused(f"block {stage.name} accesses {buffer.name} at several indices", stage.block)
    if any(next(occurrences(index, BufferLoad), None) is not None for index in first):
        raise refused(f"an index of {buffer.name} is read from a buffer", stage.block)
    return first


def _check_one_store(stage: Stage, buffer: Buffer, iters: Sequence[IterVar]) -> None:
    """Errors: ScheduleError unless a block is one store, at indices of spatial variables."""
    if any(it.iter_type != IterVarKind.DataPar for it in iters):
        raise refused(f"an index of {buffer.name} is of a reduction variable", stage.block)
    if any(not isinstance(node, BufferStore) for node in below(stage.block.body)):
        raise refused(f"block {stage.name} is not one store", stage.block)


def _check_alone(state: State, stage: Stage, stages: Sequence[Stage], buffer: Buffer) -> None:
    """Errors: ScheduleError if a copy cannot follow all of the loops of a block."""
    site = cache.Site(state.scope(stage.block), 0)
    place = cache.member_index(state, site, stage.block)
    for other in stages:
        uses = buffer in other.reads or buffer in other.writes
        if other is not stage and uses and cache.member_index(state, site, other.block) == place:
            raise refused(
                f"block {other.name} uses {buffer.name} in the loops around block {stage.name}",
                other.block,
            )


def _check_in_bounds(
    stage: Stage, buffer: Buffer, indices: Indices, iters: Sequence[IterVar]
) -> None:
    """Errors: ScheduleError if an index may be outside, as one that a condition guards."""
    analyzer = analyzer_of({it.var: it.dom for it in iters if it.dom is not None})
    for index, size in zip(indices, buffer.shape, strict=True):
        if open_tests(analyzer, index, Range(size)):
            raise refused(
                f"index {index} is not known to be in {buffer.name} for all iterations of block "
                f"{stage.name}",
                stage.block,
            )


def _accessing(block: Block, old: Buffer, new: Buffer, own: Indices) -> Block:
    """`block` with the accesses to one buffer replaced by those to another one."""

    def visit(item: Node) -> Node:
        if item._variable:
            return item
        rebuilt = map_children(visit, item)
        if isinstance(rebuilt, BufferStore) and rebuilt.buffer is old:
            return replace(rebuilt, buffer=new, indices=own)
        if isinstance(rebuilt, BufferLoad) and rebuilt.buffer is old:
            return BufferLoad(new, own, rebuilt.predicate)
        return rebuilt

    body = visit(block.body)
    init = None if block.init is None else visit(block.init)
    assert isinstance(body, Stmt)
    assert init is None or isinstance(init, Stmt)
    return with_regions(replace(block, body=body, init=init))


def _copy(
    buffer: Buffer,
    copy: Buffer,
    indices: Indices,
    own: Indices,
    iters: Sequence[IterVar],
    *,
    is_write: bool,
) -> Block:
    """The block that copies a buffer at `indices` to its copy at `own`, or back."""
    names = {it.var: it.var.renamed(it.var.name) for it in iters}
    theirs, ours = (tuple(substitute(i, names) for i in at) for at in (indices, own))
    store = (
        BufferStore(buffer, BufferLoad(copy, ours), theirs)
        if is_write
        else BufferStore(copy, BufferLoad(buffer, theirs), ours)
    )
    variables = tuple(IterVar(it.dom, names[it.var], IterVarKind.DataPar) for it in iters)
    return with_regions(Block(variables, (), (), copy.name, store))


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
        """The condition that an element was not written in the iteration before."""
        first = self.loop.loop_var < ops.add(self.loop.min, 1)
        return ops.any_of(first, ops.compare(tir.LE, self.count, self.rest))


def rolling_buffer(state: State, block: Block, which: int) -> None:
    """Write each element once, to a buffer as short as the region that an iteration writes."""
    scope = state.scope(block)
    stages, stage = stage_in_scope(state, block)
    buffer = cache.buffer_of(stage, which, block.writes, "writes")
    check_loads_only(state, buffer)
    if buffer not in scope.alloc_buffers:
        raise refused(f"{buffer.name} is not allocated in the block around {stage.name}", block)
    check_own_variables(stage)
    readers = [s for s in stages if buffer in s.reads and s is not stage]
    check_no_partial_reads(stage, readers)
    site = cache.site_after(state, scope, stages, stage, buffer)
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
    """The first and last index of the accesses below a statement, for each axis."""
    accesses = Bodies(())
    accesses.statement(node)
    return (accesses.writes if writes else accesses.reads).get(buffer)


def _overlaps(
    stage: Stage, shared: Sequence[For], indices: Indices, bounds: Sequence[Interval] | None
) -> list[Overlap]:
    """The axes along which iterations of a loop write some elements again."""
    simplify = analyzer_of(domains_of(stage.loops)).simplify
    own = domains_of([loop for loop in stage.loops if loop not in shared])
    found = []
    for axis, (index, bound) in enumerate(zip(indices, bounds or (), strict=False)):
        loops = [loop for loop in shared if mentions(index, (loop.loop_var,))]
        if bound is None or len(loops) != 1:
            continue
        (loop,) = loops
        low, high = bound
        size = simplify(ops.add(high, 1) - low)
        after = substitute(low, {loop.loop_var: loop.loop_var + 1})
        step = simplify(after - low)
        rest = simplify(index - low)
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
        rest = None if sides is None else ops.sub(*sides) - index
        if rest is None or mentions(Analyzer().simplify(rest), relevant):
            raise refused(
                f"the condition {test} of block {stage.name} is not one of an index", stage.block
            )


def _check_reads(buffer: Buffer, rolled: Overlap, shared: Sequence[For], site: cache.Site) -> None:
    """Errors: ScheduleError if an iteration may read other elements than it writes."""
    analyzer = analyzer_of(domains_of(shared))
    for member in site.members()[site.index :]:
        bounds = _bounds(member, buffer, False)
        bound = None if bounds is None else bounds[rolled.axis]
        if bounds is None:
            continue
        last = rolled.low + (rolled.size - 1)
        if bound is None or not (
            analyzer.can_prove(bound[0] >= rolled.low) and analyzer.can_prove(bound[1] <= last)
        ):
            raise refused(
                f"an iteration of loop {rolled.loop.loop_var.name} may read elements of "
                f"{buffer.name} that it does not write",
                member,
            )


def _indices_at(block: Block, buffer: Buffer, axis: int) -> list[PrimExpr]:
    """The indices along an axis at which a block accesses a buffer."""
    loads = [load for load in occurrences(block, BufferLoad) if load.buffer is buffer]
    regions = [region for region in (*block.reads, *block.writes) if region.buffer is buffer]
    return [load.indices[axis] for load in loads] + [r.region[axis].min for r in regions]


def _fold(state: State, buffer: Buffer, rolled: Overlap) -> None:
    """Keep only as many elements along an axis as an iteration writes."""
    variables = tuple(Var(f"i{k}", size.dtype) for k, size in enumerate(buffer.shape))
    folded: list[PrimExpr] = list(variables)
    folded[rolled.axis] = variables[rolled.axis] % rolled.size
    shape = list(buffer.shape)
    shape[rolled.axis] = ops.const(rolled.size, shape[rolled.axis].dtype)
    new = decl_buffer(shape, buffer.dtype, buffer.name, scope=buffer.scope())
    relayout = change_layout.Relayout(buffer, new, IndexMap(variables, tuple(folded)))
    body = relayout.visit(state.func.body)
    assert isinstance(body, Stmt)
    state.become(state.func.with_fields(body=body), relayout.renewed)
