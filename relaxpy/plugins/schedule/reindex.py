"""reindex and reindex_cache_*: a copy of a buffer at indices by the variables of a block."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.ir.arith.tvm.iter_reader import analyzer_of
from relaxpy.ir.core.dtype import INT32
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, occurrences
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.analysis.regions import with_regions
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.rewrite.inline import check_loads_only
from relaxpy.ir.tir.rewrite.stages import (
    Indices,
    Stage,
    check_init_runs,
    check_own_variables,
    check_pure_stage,
    check_stable_inputs,
    condition_outside,
    covers_domain,
    is_unit,
    stage_in_scope,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    below,
    iter_domains,
    loops_like,
    open_tests,
    refused,
    serial_nest,
)
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, Stmt
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.plugins.schedule.cache import (
    Site,
    like,
    loops_below,
    member_index,
    site_after,
    site_before,
)
from relaxpy.plugins.schedule.layout import BufferName, Map, MapOf, accessed_buffer, injective
from relaxpy.plugins.schedule.reduction import without_loops
from relaxpy.support.dataclass import replace


def reindex(state: State, block: Block, which: BufferName) -> Block:
    """Copy a buffer before a block reads it, or after it writes it."""
    stages, stage = stage_in_scope(state, block)
    buffer, is_write = accessed_buffer(stage, which)
    check_loads_only(state, buffer)
    check_pure_stage(stage, stages)
    if not is_write and buffer in stage.writes:
        raise refused(f"block {stage.name} writes {buffer.name}, too", block)
    if not covers_domain(stage):
        raise refused(f"the loops of block {stage.name} do not cover its variables", block)
    indices = only_indices(stage, buffer)
    iters = [it for it in block.iter_vars if any(mentions(i, (it.var,)) for i in indices)]
    scope = state.scope(block)
    site = Site(scope, 0)
    place = member_index(state, site, block)
    if is_write:
        _check_one_store(stage, buffer, iters)
        _check_alone(state, stage, stages, buffer)
    else:
        check_stable_inputs(state, stage, stages)
        _check_in_bounds(stage, buffer, indices, iters)
        early = {member_index(state, site, s.block) for s in stages if buffer in s.writes}
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
    Site(current, place + is_write).insert(state, serial_nest(loops, realize))
    state.allocate(scope, copy)
    return copied


def reindex_cache(
    state: State,
    block: Block,
    which: tuple[str, int],
    storage_scope: str,
    index_map: Map,
    map_of: MapOf,
) -> Block:
    """Let `block` use a copy of a buffer at the indices that a map of its variables returns.

    The copy is as close to the block as that of cache_read or cache_write, with the loops that the
    elements need.
    """
    scope = state.scope(block)
    stages, stage = stage_in_scope(state, block)
    buffer, is_write = accessed_buffer(stage, which)
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
    injective(used, doms, assume=False)
    if is_write:
        _check_one_store(stage, buffer, iters)
        check_init_runs(stage)
        site = site_after(state, scope, stages, stage, buffer)
    else:
        _check_in_bounds(stage, buffer, indices, iters)
        site = site_before(state, scope, stages, [stage], buffer)
    inner = loops_below(state, site, block)
    if stage.deciding or stage.is_guarded(inner):
        raise refused(
            f"a branch, or an element of a buffer, decides whether block {stage.name} runs", block
        )
    copy = like(buffer, storage_scope, used.map_shape(doms))
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
    """Return what of the predicate of a block decides whether it writes an element at all.

    Its init runs if any iteration of the reduction does, or if there is none.

    Errors:
        ScheduleError: a test is over loops of reductions and others.
    """
    reduced = [] if stage.block.init is None else stage.reduction_loops()
    names = {loop.loop_var for loop in reduced}
    return without_loops(
        stage.realize.predicate, names, {loop.loop_var for loop in stage.loops} - names
    )


def only_indices(stage: Stage, buffer: Buffer) -> Indices:
    """Return the indices at which a block accesses a buffer.

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
    site = Site(state.scope(stage.block), 0)
    place = member_index(state, site, stage.block)
    for other in stages:
        uses = buffer in other.reads or buffer in other.writes
        if other is not stage and uses and member_index(state, site, other.block) == place:
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
    """Return `block` with the accesses to one buffer replaced by those to another one."""

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
    """Return the block that copies a buffer at `indices` to its copy at `own`, or back."""
    names = {it.var: it.var.renamed(it.var.name) for it in iters}
    theirs, ours = (tuple(substitute(i, names) for i in at) for at in (indices, own))
    store = (
        BufferStore(buffer, BufferLoad(copy, ours), theirs)
        if is_write
        else BufferStore(copy, BufferLoad(buffer, theirs), ours)
    )
    variables = tuple(IterVar(it.dom, names[it.var], IterVarKind.DataPar) for it in iters)
    return with_regions(Block(variables, (), (), copy.name, store))
