"""compute_inline, reverse_compute_inline, fuse_reduction_epilogue: two blocks become one."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.errors import MisuseError, ScheduleError
from relaxpy.ir.arith.tvm.iter_reader import analyzer_of
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, rewrite, walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.rewrite.stages import (
    Stage,
    check_no_partial_reads,
    check_own_variables,
    check_pure_stage,
    check_stable_inputs,
    check_unconditional,
    condition_outside,
    identity_of,
    is_unit,
    reduction_of,
    stage_in_scope,
    written_box,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    domains_of,
    is_inside,
    iter_domains,
    mapped,
    open_tests,
    refreshed,
    refused,
)
from relaxpy.ir.tir.stmt import Block, BufferStore
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import replace


def compute_inline(state: State, block: Block) -> None:
    """Replace the loads of the buffer that `block` writes by its value; remove both."""
    stages, stage = stage_in_scope(state, block)
    store = _only_store(stage)
    buffer = store.buffer
    check_pure_stage(stage, stages, reduction=False)
    check_stable_inputs(state, stage, stages)
    check_unconditional(stage)
    _check_local(state, stage, buffer)
    check_loads_only(state, buffer)
    axes, values = _inverse(stage, store)

    def inlined(load: BufferLoad) -> PrimExpr:
        table = dict(zip(axes, load.indices, strict=True))
        table = {axis: ops.cast_to(index, axis.dtype) for axis, index in table.items()}
        at = {var: substitute(value, table) for var, value in values.items()}
        return substitute(store.value, at)

    _replace_loads(state, stage, buffer, inlined)


def reverse_compute_inline(state: State, block: Block) -> None:
    """Store the value of `block` where its producer stored; remove the block and the buffer.

    A reduction also stores its partial results there, so the block may only copy what it writes.
    """
    stages, stage = stage_in_scope(state, block)
    store = _only_store(stage)
    check_pure_stage(stage, stages, reduction=False)
    producers = [other for other in stages if not other.writes.keys().isdisjoint(stage.reads)]
    local = [p for p in producers if set(p.writes) <= set(state.scope(block).alloc_buffers)]
    if len(local) != 1:
        raise refused(
            f"block {stage.name} reads local buffers of {len(local)} blocks, expected one", block
        )
    producer = local[0]
    source = _only_store(producer)
    copies = isinstance(store.value, BufferLoad) and store.value.buffer is source.buffer
    check_pure_stage(producer, stages, reduction=copies)
    check_no_partial_reads(producer, [stage])
    load, at = _moved_to(state, stage, producer, stages, source)
    conditions = _conditions(producer, stage, at)
    indices = tuple(substitute(index, at) for index in store.indices)
    init = producer.block.init
    if init is None:
        value = rewrite(store.value, lambda node: source.value if node is load else None)
        assert isinstance(value, PrimExpr)
        new = BufferStore(store.buffer, substitute(value, at), indices, span=store.span)
    else:
        first = _first_store(producer, source)
        if conditions:
            raise _computes_more(producer, stage)
        partial = BufferLoad(store.buffer, indices)
        new = _stored_to(partial, source, source.buffer)
        init = _stored_to(partial, first, source.buffer)
    fused = refreshed(replace(producer.block, init=init, body=new))
    predicate = ops.all_of(producer.realize.predicate, *conditions)
    realize = replace(producer.realize, predicate=predicate, block=fused)
    scope = state.scope(block)
    state.replace({producer.realize: realize}, {producer.block: fused})
    state.replace({stage.realize: None})
    _drop(state, state.current(scope), source.buffer)


def fuse_reduction_epilogue(state: State, block: Block, epilogue: Block) -> None:
    """Initialise a reduction with the other operand of `epilogue`, and remove that block.

    As in TVM, the buffer that the reduction wrote stays allocated.
    """
    stages, stage = stage_in_scope(state, epilogue)
    producer = next((other for other in stages if other.block is block), None)
    reduction, init = reduction_of(block), block.init
    if producer is None or stage is producer or reduction is None or init is None:
        raise refused(
            f"block {block.name_hint} is not a known reduction next to block {stage.name}", block
        )
    store, update = _only_store(stage), _only_store(producer)
    check_pure_stage(stage, stages, reduction=False)
    check_pure_stage(producer, stages)
    check_no_partial_reads(producer, [stage])
    load, at = _moved_to(state, stage, producer, stages, update)
    kind, value = reduction.kind, store.value
    match value:
        case tir.BinaryOpExpr(a=a, b=b) | tir.Junction(a=a, b=b) if type(value) is kind:
            rest = b if a is load else a if b is load else None
        case _:
            rest = None
    if rest is None or any(node.buffer is load.buffer for node in occurrences(rest, BufferLoad)):
        raise refused(
            f"block {stage.name} does not combine {load.buffer.name} with another value as block "
            f"{block.name_hint} does",
            epilogue,
        )
    init = _first_store(producer, update)
    indices = tuple(substitute(index, at) for index in store.indices)
    first = substitute(rest, at)
    if not init.value.same_as(identity_of(kind, init.value.dtype)):
        first = reduction.combine(init.value, first)
    new = BufferStore(
        store.buffer,
        reduction.combine(BufferLoad(store.buffer, indices), reduction.source),
        indices,
    )
    if _conditions(producer, stage, at):
        raise _computes_more(producer, stage)
    fused = replace(block, init=BufferStore(store.buffer, first, indices), body=new)
    state.renew(block, refreshed(fused))
    state.replace({stage.realize: None})


def _first_store(producer: Stage, update: BufferStore) -> BufferStore:
    """The init of a reduction. Errors: ScheduleError if it is not one store to its element."""
    init = producer.block.init
    if not isinstance(init, BufferStore) or not all(
        map(PrimExpr.same_as, init.indices, update.indices)
    ):
        raise refused(f"block {producer.name} does not begin with one value", producer.block)
    return init


def _computes_more(producer: Stage, stage: Stage) -> ScheduleError:
    return refused(
        f"block {producer.name} computes more elements than block {stage.name} reads",
        producer.block,
    )


def _stored_to(element: BufferLoad, store: BufferStore, buffer: Buffer) -> BufferStore:
    """A store that writes `element`, and reads it, instead of the element of `buffer`."""
    value = rewrite(
        store.value,
        lambda node: element if isinstance(node, BufferLoad) and node.buffer is buffer else None,
    )
    assert isinstance(value, PrimExpr)
    return BufferStore(element.buffer, value, element.indices, span=store.span)


def _moved_to(
    state: State, stage: Stage, producer: Stage, stages: list[Stage], source: BufferStore
) -> tuple[BufferLoad, dict[Var, PrimExpr]]:
    """The load of the stored element, and the values of the variables of `stage` there."""
    block, buffer = stage.block, source.buffer
    if [other for other in stages if buffer in other.reads and other is not producer] != [stage]:
        raise refused(f"other blocks read {buffer.name}, too", block)
    _check_local(state, producer, buffer)
    check_loads_only(state, buffer)
    loads = {load for load in occurrences(block.body, BufferLoad) if load.buffer is buffer}
    if len(loads) != 1:
        raise refused(f"block {stage.name} reads {buffer.name} at several indices", block)
    check_unconditional(stage)
    _check_order(state, producer, stage, stages)
    (load,) = loads
    _check_all_written(producer, stage, load)
    axes, values = _inverse(stage, BufferStore(buffer, load, load.indices), padded=True)
    table = dict(zip(axes, source.indices, strict=True))
    at = {var: substitute(value, table) for var, value in values.items()}
    are_equal = analyzer_of(iter_domains(producer.block)).can_prove_equal
    for index, stored in zip(load.indices, source.indices, strict=True):
        if not are_equal(substitute(index, at), stored):
            raise refused(
                f"block {stage.name} reads {load}, which is not all that block {producer.name} "
                "writes",
                block,
            )
    return load, at


def _check_all_written(producer: Stage, stage: Stage, load: BufferLoad) -> None:
    """Errors: ScheduleError if `stage` has iterations for which no value is produced."""
    box = written_box(producer, load.buffer, producer.loops)
    analyzer = analyzer_of(iter_domains(stage.block))
    always = analyzer.can_prove(condition_outside(producer, producer.loops))
    if box is None or not always or not is_inside(analyzer, load.indices, box):
        raise refused(
            f"block {stage.name} has iterations for which block {producer.name} is not known to "
            f"write {load.buffer.name}",
            stage.block,
        )


def _conditions(producer: Stage, stage: Stage, at: dict[Var, PrimExpr]) -> list[PrimExpr]:
    """The conditions, beside its own, on which a producer computes what `stage` reads."""
    analyzer = analyzer_of(iter_domains(producer.block))
    tests = [
        substitute(test, producer.values())
        for var, domain in iter_domains(stage.block).items()
        if var in at
        for test in open_tests(analyzer, at[var], domain)
    ]
    outer = analyzer_of(domains_of(producer.loops))
    with outer.constraint_scope(producer.realize.predicate):
        return [outer.simplify(test) for test in tests if not outer.can_prove(test)]


def _check_order(state: State, producer: Stage, stage: Stage, stages: list[Stage]) -> None:
    """Errors: ScheduleError if `stage` cannot run where its producer runs."""
    for other in stages:
        if other in (producer, stage):
            if not other.reads.keys().isdisjoint(stage.writes):
                raise refused(f"block {other.name} reads what block {stage.name} writes")
            continue
        early = state.position(other.block) < state.position(stage.block)
        if early and not stage.writes.keys().isdisjoint(other.reads):
            raise refused(f"block {other.name} reads what block {stage.name} writes later")
        if stage.reads.keys().isdisjoint(other.writes):
            continue
        before = state.position(other.block) < state.position(producer.block)
        if not before or any(loop in other.loops for loop in producer.loops):
            raise refused(
                f"block {other.name} writes what block {stage.name} reads, and may do so after "
                f"block {producer.name}"
            )


# --- shared


def _only_store(stage: Stage) -> BufferStore:
    """The store that is the whole body of a block. Errors: ScheduleError if it is not."""
    body = stage.block.body
    if not isinstance(body, BufferStore) or body.predicate is not None:
        raise refused(f"block {stage.name} is not one store", stage.block)
    if stage.block.alloc_buffers or stage.block.match_buffers:
        raise refused(f"block {stage.name} has buffers of its own", stage.block)
    check_own_variables(stage)
    return body


def _check_local(state: State, stage: Stage, buffer: Buffer) -> None:
    if buffer not in state.scope(stage.block).alloc_buffers:
        raise refused(
            f"{buffer.name}, which block {stage.name} writes, is not allocated in the same scope",
            stage.block,
        )


def check_loads_only(state: State, buffer: Buffer) -> None:
    """Errors: ScheduleError if `buffer` is used other than by stores and loads."""
    for node in walk(state.func.body):
        if node is buffer.data:
            raise refused(f"the data of {buffer.name} is used as a pointer")
        if isinstance(node, Block):
            for match in node.match_buffers:
                if match.source.buffer is buffer:
                    raise refused(f"{match.buffer.name} is a view of {buffer.name}", node)


def _inverse(
    stage: Stage, store: BufferStore, *, padded: bool = False
) -> tuple[tuple[Var, ...], dict[Var, PrimExpr]]:
    """One variable per index of the store, and the block's variables in terms of them.

    `padded` indices need not reach all elements of the box that they span.
    """
    axes = tuple(Var(f"axis{k}", index.dtype) for k, index in enumerate(store.indices))
    iters = iter_domains(stage.block)
    values: dict[Var, PrimExpr] = {var: dom.min for var, dom in iters.items() if is_unit(dom)}
    values |= {
        index: axis
        for axis, index in zip(axes, store.indices, strict=True)
        if isinstance(index, Var) and index in iters
    }
    rest = [it for it in iters if it not in values]
    if not rest:
        return axes, values
    indices = [
        (axis, i) for axis, i in zip(axes, store.indices, strict=True) if not isinstance(i, Var)
    ]
    try:
        index_map = IndexMap(tuple(rest), tuple(i for _, i in indices))
        shape = [Range.from_min_extent(iters[var].min, iters[var].extent) for var in rest]
        inverse = index_map.non_surjective_inverse(shape)[0] if padded else index_map.inverse(shape)
    except MisuseError:
        raise refused(
            f"block {stage.name} does not use each of its variables once in the indices of "
            f"{store.buffer.name}",
            stage.block,
        ) from None
    names = dict(zip(inverse.initial_indices, (axis for axis, _ in indices), strict=True))
    values |= {
        var: substitute(value, names)
        for var, value in zip(rest, inverse.final_indices, strict=True)
    }
    return axes, values


def _replace_loads(
    state: State, stage: Stage, buffer: Buffer, inlined: Callable[[BufferLoad], PrimExpr]
) -> None:
    """Replace loads of `buffer` in the scope of `stage`, and remove the stage and the buffer."""
    scope = state.scope(stage.block)
    state.replace({stage.realize: None})
    after = state.current(scope)
    assert after is not None

    def rule(node: Node) -> Node | None:
        return inlined(node) if isinstance(node, BufferLoad) and node.buffer is buffer else None

    def change(expr: PrimExpr) -> PrimExpr:
        new = rewrite(expr, rule)
        assert isinstance(new, PrimExpr)
        return new

    renewed: dict[Block, Block] = {}
    new = mapped(after, change, renewed, refresh=True)
    assert isinstance(new, Block)
    state.replace({after: new}, renewed)
    _drop(state, state.current(scope), buffer)


def _drop(state: State, scope: Block | None, buffer: Buffer) -> None:
    """Remove the allocation of `buffer` from `scope`."""
    assert scope is not None
    kept = tuple(other for other in scope.alloc_buffers if other is not buffer)
    state.renew(scope, replace(scope, alloc_buffers=kept))
