"""reindex: a copy of a buffer whose indices are the variables of a block."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.dataclass import replace
from relaxpy.ir.arith.tvm.extents import analyzer_of
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, occurrences
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.schedule.cache import Site, member_index
from relaxpy.ir.tir.schedule.inline import check_loads_only
from relaxpy.ir.tir.schedule.layout import BufferName, accessed_buffer
from relaxpy.ir.tir.schedule.nests import open_tests, serial_nest
from relaxpy.ir.tir.schedule.stages import (
    Indices,
    Stage,
    check_pure_stage,
    check_stable_inputs,
    covers_domain,
    stage_in_scope,
)
from relaxpy.ir.tir.schedule.state import State, refused, with_regions
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, Stmt
from relaxpy.ir.tir.substitution import mentions, substitute


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
    if any(isinstance(node, (For, Block)) for node in _inside(block)):
        raise refused(f"there are loops or blocks in block {stage.name}", block)
    indices = _only_indices(stage, buffer)
    iters = [it for it in block.iter_vars if any(mentions(i, (it.var,)) for i in indices)]
    scope = state.scope(block)
    site = Site(scope, 0)
    place = member_index(state, site, block)
    if is_write:
        _check_alone(state, stage, stages, buffer, iters)
    else:
        check_stable_inputs(state, stage, stages)
        _check_in_bounds(stage, buffer, indices, iters)
        early = {member_index(state, site, s.block) for s in stages if buffer in s.writes}
        if any(at >= place for at in early):
            raise refused(f"{buffer.name} is written in the loops around block {stage.name}", block)
    shape = [it.dom.extent for it in iters if it.dom is not None]
    copy = decl_buffer(shape, buffer.dtype, f"{buffer.name}_reindex", scope=buffer.scope())
    new = _accessing(block, buffer, copy, [it.var for it in iters])
    nest, copied = _copy(buffer, copy, indices, iters, is_write=is_write)
    state.renew(block, new)
    current = state.current(scope)
    assert current is not None
    Site(current, place + is_write).insert(state, nest)
    state.allocate(scope, copy)
    return copied


def _inside(block: Block) -> list[Node]:
    found: list[Node] = []
    stack: list[Node] = [block.body]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += [child for child in node._children() if isinstance(child, Stmt)]
    return found


def _only_indices(stage: Stage, buffer: Buffer) -> Indices:
    """Return the indices at which a block accesses a buffer. Errors: ScheduleError for several."""
    nodes: list[BufferLoad | BufferStore] = [
        *occurrences(stage.block.body, BufferLoad),
        *(node for node in _inside(stage.block) if isinstance(node, BufferStore)),
    ]
    found = [node.indices for node in nodes if node.buffer is buffer]
    first, *others = found or [()]
    if not found or any(not all(map(PrimExpr.same_as, first, other)) for other in others):
        raise refused(f"block {stage.name} accesses {buffer.name} at several indices", stage.block)
    if any(next(occurrences(index, BufferLoad), None) is not None for index in first):
        raise refused(f"an index of {buffer.name} is read from a buffer", stage.block)
    return first


def _check_alone(
    state: State, stage: Stage, stages: Sequence[Stage], buffer: Buffer, iters: Sequence[IterVar]
) -> None:
    """Errors: ScheduleError if a copy cannot follow all of the loops of a block."""
    if any(it.iter_type != IterVarKind.DataPar for it in iters):
        raise refused(f"an index of {buffer.name} is of a reduction variable", stage.block)
    guards = [node for node in _inside(stage.block) if not isinstance(node, BufferStore)]
    if guards:
        raise refused(f"block {stage.name} is not one store", stage.block)
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


def _accessing(block: Block, old: Buffer, new: Buffer, variables: Sequence[Var]) -> Block:
    """Return `block` with the accesses to one buffer replaced by those to another one."""

    def visit(item: Node) -> Node:
        if item._variable:
            return item
        rebuilt = map_children(visit, item)
        if isinstance(rebuilt, BufferStore) and rebuilt.buffer is old:
            return replace(rebuilt, buffer=new, indices=tuple(variables))
        if isinstance(rebuilt, BufferLoad) and rebuilt.buffer is old:
            return BufferLoad(new, tuple(variables), rebuilt.predicate)
        return rebuilt

    body = visit(block.body)
    init = None if block.init is None else visit(block.init)
    assert isinstance(body, Stmt)
    assert init is None or isinstance(init, Stmt)
    return with_regions(replace(block, body=body, init=init))


def _copy(
    buffer: Buffer, copy: Buffer, indices: Indices, iters: Sequence[IterVar], *, is_write: bool
) -> tuple[Stmt, Block]:
    """Return loops that copy a buffer to its copy, or back, and their block."""
    names = {it.var: it.var.renamed(it.var.name) for it in iters}
    own = [names[it.var] for it in iters]
    theirs = [substitute(index, names) for index in indices]
    store = (
        BufferStore(buffer, BufferLoad(copy, own), tuple(theirs))
        if is_write
        else BufferStore(copy, BufferLoad(buffer, theirs), tuple(own))
    )
    block = with_regions(
        Block(
            tuple(IterVar(it.dom, names[it.var], IterVarKind.DataPar) for it in iters),
            (),
            (),
            copy.name,
            store,
        )
    )
    loops = [(Var(f"ax{k}", it.var.dtype), it.dom) for k, it in enumerate(iters) if it.dom]
    realize = BlockRealize(tuple(var for var, _ in loops), ops.all_of(True), block)
    return serial_nest(loops, realize), block
