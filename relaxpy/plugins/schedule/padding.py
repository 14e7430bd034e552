"""pad_einsum and decompose_padding: pad extents to multiples, and separate the padding."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import unexpected
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_reader import analyzer_of
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, rewrite
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.analysis.regions import with_regions
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer, outside_indices
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.rewrite.reducers import reduction_of
from relaxpy.ir.tir.rewrite.stages import (
    Stage,
    check_own_variables,
    check_plain_iterations,
    check_pure_stage,
    shared_loops,
    stage_in_scope,
)
from relaxpy.ir.tir.rewrite.state import State, copied_block, refused, serial_nest, spatial_block
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, Stmt, stmt_seq
from relaxpy.ir.tir.substitution import substitute
from relaxpy.plugins.schedule.cache import with_buffer
from relaxpy.plugins.schedule.conditions import check_no_carried
from relaxpy.plugins.schedule.layout import check_trivial_loops
from relaxpy.support.dataclass import replace

_EINSUM = (tir.Var, tir.IntImm, tir.FloatImm, tir.Cast, tir.Add, tir.Sub, tir.Mul, BufferLoad)


def pad_einsum(state: State, block: Block, padding: Sequence[int]) -> None:
    """Let the extents of a block be multiples, and its operands have copies of these sizes."""
    stages, stage = stage_in_scope(state, block)
    if not isinstance(padding, (list, tuple)) or len(padding) != len(block.iter_vars):
        raise unexpected(
            padding,
            f"padding has a number for each of the {len(block.iter_vars)} variables of block "
            f"{stage.name}",
        )
    factors = [ops.as_int(factor) for factor in padding]
    if any(factor < 1 for factor in factors):
        raise refused(f"padding is positive, found {min(factors)}", block)
    check_trivial_loops(stage)
    check_pure_stage(stage, stages)
    analyzer = Analyzer()
    sizes: dict[Var, PrimExpr] = {}
    extents: dict[Var, PrimExpr] = {}
    for it, factor in zip(block.iter_vars, factors, strict=True):
        assert it.dom is not None
        extents[it.var] = it.dom.extent
        padded = ops.mul(ops.ceildiv(it.dom.extent, factor), factor)
        sizes[it.var] = analyzer.simplify(padded)
    grown = {var for var, size in sizes.items() if not analyzer.can_prove_equal(size, extents[var])}
    accesses = _accesses(stage)
    _check_sum(stage, grown)
    changed = [b for b, indices in accesses.items() if not grown.isdisjoint(indices)]
    copies = {
        buffer: decl_buffer(
            [ops.cast_to(sizes[var], var.dtype) for var in accesses[buffer]],
            buffer.dtype,
            f"{buffer.name}_pad",
            scope=buffer.scope(),
        )
        for buffer in changed
    }
    iters = tuple(
        IterVar(Range.from_min_extent(it.dom.min, sizes[it.var]), it.var, it.iter_type)
        for it in block.iter_vars
        if it.dom is not None
    )
    new = replace(block, iter_vars=iters)
    renewed: dict[Block, Block] = {}
    for old, copy in copies.items():
        new = with_buffer(new, old, copy, renewed)
    new = with_regions(new)
    nest: Stmt = replace(stage.realize, block=new)
    for loop, it in reversed(list(zip(stage.loops, block.iter_vars, strict=True))):
        nest = replace(loop, extent=ops.cast_to(sizes[it.var], loop.loop_var.dtype), body=nest)
    before: list[Stmt] = []
    after: list[Stmt] = []
    for old, copy in copies.items():
        axes = accesses[old]
        full, inside = ([table[v] for v in axes] for table in (sizes, extents))
        if old in stage.writes:
            after.append(_copied(copy, old, inside, inside, f"{old.name}_pad"))
        else:
            before.append(_copied(old, copy, full, inside, copy.name))
    scope = state.scope(block)
    state.replace({stage.loops[0]: stmt_seq(*before, nest, *after)}, {block: new})
    state.allocate(scope, *copies.values())


def _accesses(stage: Stage) -> dict[Buffer, tuple[Var, ...]]:
    """Return the variables by which a block indexes each buffer.

    Errors:
        ScheduleError: the block is not one store, or an index is not a variable of the block.
    """
    block = stage.block
    body = block.body
    if not isinstance(body, BufferStore) or (
        block.init is not None and not isinstance(block.init, BufferStore)
    ):
        raise refused(f"block {stage.name} is not one store", block)
    found: dict[Buffer, tuple[Var, ...]] = {}
    variables = {it.var for it in block.iter_vars}
    stores = [body, *([] if block.init is None else [block.init])]
    for node in (*occurrences(body, BufferLoad), *stores):
        assert isinstance(node, (BufferLoad, BufferStore))
        indices = tuple(index for index in node.indices if index in variables)
        plain = tuple(index for index in indices if isinstance(index, Var))
        known = found.setdefault(node.buffer, plain)
        if len(plain) != len(node.indices) or len(set(plain)) != len(plain) or known != plain:
            raise refused(
                f"block {stage.name} does not access {node.buffer.name} at one tuple of its "
                "variables",
                block,
            )
    return found


def _check_sum(stage: Stage, grown: set[Var]) -> None:
    """Errors: ScheduleError if what is added to a block changes a sum, or cannot be computed."""
    body = stage.block.body
    assert isinstance(body, BufferStore)
    if any(not isinstance(node, _EINSUM) for node in outside_indices(body.value)):
        raise refused(f"block {stage.name} is not an einsum of products and sums", stage.block)
    reduced = {it.var for it in stage.block.iter_vars if it.iter_type == IterVarKind.CommReduce}
    if grown.isdisjoint(reduced):
        return
    reduction = reduction_of(stage.block)
    loads = [] if reduction is None else list(occurrences(reduction.source, BufferLoad))

    def zero(node: Node) -> Node | None:
        return ops.const(0, node.dtype) if isinstance(node, BufferLoad) else None

    nothing = None if reduction is None else rewrite(reduction.source, zero)
    if (
        reduction is None
        or reduction.kind is not tir.Add
        or any(not (grown & reduced) <= set(load.indices) for load in loads)
        or not Analyzer().can_prove_equal(nothing, ops.const(0, body.value.dtype))  # type: ignore[arg-type]
    ):
        raise refused(
            f"block {stage.name} is not a sum to which operands of zeros add nothing", stage.block
        )


def _copied(
    source: Buffer,
    target: Buffer,
    extents: Sequence[PrimExpr],
    inside: Sequence[PrimExpr],
    name: str,
) -> Stmt:
    """Return loops that copy elements `inside`, and store zeros for the rest of `extents`."""
    loops = {Var(f"ax{k}", size.dtype): Range(size) for k, size in enumerate(extents)}

    def store(variables: Sequence[Var]) -> BufferStore:
        analyzer = analyzer_of(dict(zip(variables, loops.values(), strict=True)))
        tests = [ops.compare(tir.LT, v, size) for v, size in zip(variables, inside, strict=True)]
        needed = [test for test in tests if not analyzer.can_prove(test)]
        value: PrimExpr = BufferLoad(source, variables)
        if needed:
            value = intrin.if_then_else(ops.all_of(*needed), value, ops.const(0, source.dtype))
        return BufferStore(target, value, tuple(variables))

    block = spatial_block(name, extents, store)
    return serial_nest(loops.items(), BlockRealize(tuple(loops), ops.all_of(True), block))


def decompose_padding(state: State, block: Block, loop: For) -> Block:
    """Store the value of padding before `loop`, and let `block` store only the rest."""
    stages, stage = stage_in_scope(state, block)
    if loop not in stage.loops:
        raise refused(f"loop {loop.loop_var.name} is not around block {stage.name}", loop)
    check_pure_stage(stage, stages, reduction=False)
    body = block.body
    match body:
        case BufferStore(
            value=tir.Call(op=Op(name="tir.if_then_else"), args=(condition, value, pad)),
            predicate=None,
        ) if next(occurrences(pad, BufferLoad), None) is None:
            pass
        case _:
            raise refused(
                f"block {stage.name} is not one store of T.if_then_else(condition, value, "
                "padding), where padding reads no buffer",
                block,
            )
    check_own_variables(stage)
    inner = list(stage.loops[stage.loops.index(loop) :])
    check_plain_iterations(stage, inner)
    for other in stages:
        shared = [at for at in shared_loops(stage, other) if at in inner]
        if other is not stage and shared:
            check_no_carried(stage, other, shared)
    assert isinstance(body, BufferStore)
    iters = list(zip(block.iter_vars, stage.realize.iter_values, strict=True))
    padded = replace(body, value=pad)
    start, nest = copied_block(
        f"{block.name_hint}_pad_const", iters, padded, stage.realize.predicate, inner, "_pad"
    )
    rest = with_regions(replace(block, body=replace(body, value=value)))
    inside = substitute(condition, stage.values())
    guarded = replace(
        stage.realize, predicate=ops.all_of(stage.realize.predicate, inside), block=rest
    )
    state.replace({stage.realize: guarded}, {block: rest})
    current = state.loop(loop.loop_var)
    assert current is not None
    state.replace({current: stmt_seq(nest, current)})
    return start
