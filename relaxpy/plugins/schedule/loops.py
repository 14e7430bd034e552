"""Primitives that change loops: split, fuse, reorder, and how a loop runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from math import prod

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.node import Attr, as_attrs
from relaxpy.ir.core.traverse import children, occurrences
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.regions import Interval
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import ExprLike, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.rewrite.stages import (
    Stage,
    bare_statements,
    check_commutes,
    check_init_first,
    check_own_dependence,
    is_one_to_one,
    is_unit,
    reorders_reduction,
    stages_in,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    domains_of,
    loops_between,
    nested,
    outermost_blocks,
    refused,
    substituted,
    with_simple_bindings,
)
from relaxpy.ir.tir.stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    LetStmt,
)
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import replace


def check_reorder(state: State, before: Sequence[For], after: Sequence[For]) -> None:
    """Errors: ScheduleError if the loops `before` may not be put into the order `after`."""
    stages = stages_in(state, before[0])
    moved = [old for old, new in zip(before, after, strict=True) if old is not new]
    for stage in stages:
        check_own_dependence(stage)
        if reorders_reduction(stage, before, after):
            check_commutes(stage)
            _check_first_stays(stage)
        if stage.block.init is not None and not stage.runs_once():
            _check_reduction_last(stage, before, after)
    for first, second in combinations(stages, 2):
        check_no_carried(first, second, moved)


def _check_first_stays(stage: Stage) -> None:
    """Errors: ScheduleError if the init could run after another iteration of its reduction."""
    if stage.block.init is None:
        return
    check_init_first(stage)
    spatial = [
        value
        for it, value in zip(stage.block.iter_vars, stage.realize.iter_values, strict=True)
        if it.iter_type != IterVarKind.CommReduce
    ]
    for loop in stage.reduction_loops():
        if any(mentions(value, (loop.loop_var,)) for value in spatial):
            raise refused(
                f"loop {loop.loop_var.name} is one of reduction and of spatial variables of block "
                f"{stage.name}, whose init would not come first",
                stage.block,
            )


def _check_reduction_last(stage: Stage, before: Sequence[For], after: Sequence[For]) -> None:
    """Errors: ScheduleError if a loop that is not one of the reduction is inside of one that is."""
    inside = stage.loops[[loop.loop_var for loop in stage.loops].index(before[-1].loop_var) + 1 :]
    relevant = {loop.loop_var for loop in stage.reduction_loops()}
    for order in ((*before, *inside), (*after, *inside)):
        kinds = [loop.loop_var in relevant for loop in order]
        if kinds != sorted(kinds):
            raise refused(
                f"the reduction {stage.name} may run twice for the same values of its variables, "
                "so its reduction loops have to be the innermost ones",
                stage.block,
            )


def check_parallel(state: State, loop: For, *, reductions: bool = False) -> None:
    """Errors: ScheduleError if iterations of `loop` may depend on each other."""
    stages = stages_in(state, loop)
    for stage in stages:
        check_own_dependence(stage)
        if any(other.loop_var is loop.loop_var for other in stage.reduction_loops()):
            if reductions:
                check_commutes(stage)
                continue
            raise refused(
                f"loop {loop.loop_var.name} is a reduction loop of block {stage.name}", loop
            )
        if stage.updates() and not stage.runs_once():
            raise refused(
                f"iterations of loop {loop.loop_var.name} may update the same element in block "
                f"{stage.name}",
                loop,
            )
    for first, second in combinations(stages, 2):
        check_no_carried(first, second, [loop])


def check_no_carried(first: Stage, second: Stage, loops: Sequence[For]) -> None:
    """Errors: ScheduleError if one stage may use what another one writes in another iteration."""
    for buffer in first.writes.keys() | second.writes.keys():
        for a, b in (
            (first.writes, second.writes),
            (first.writes, second.reads),
            (first.reads, second.writes),
        ):
            if buffer not in a or buffer not in b:
                continue
            if not _same_iteration(first, a[buffer], second, b[buffer], loops):
                names = ", ".join(loop.loop_var.name for loop in loops)
                raise refused(
                    f"blocks {first.name} and {second.name} may use an element of {buffer.name} "
                    f"in different iterations of {names}",
                    second.block,
                )


def _same_iteration(
    first: Stage, a: Sequence[Interval], second: Stage, b: Sequence[Interval], loops: Sequence[For]
) -> bool:
    """True if two accesses of an element are in the same iteration of `loops`."""
    shared = [loop for loop in first.loops if loop in second.loops]
    values = first.values(), second.values()
    equal: list[PrimExpr] = []
    windows: list[list[PrimExpr]] = []
    for x, y in zip(a, b, strict=True):
        if x is None or y is None:
            continue
        ends = [substitute(end, own) for of, own in zip((x, y), values, strict=True) for end in of]
        windows.append(ends)
        left, right = ends[0], ends[2]
        is_element = x[0] is x[1] and y[0] is y[1]
        same = is_element and left.same_as(right)
        if same and mentions(left, {loop.loop_var for loop in shared}):
            equal.append(left)
    used = [loop for loop in shared if any(mentions(index, (loop.loop_var,)) for index in equal)]
    wanted = [loop for loop in loops if not is_unit(domains_of([loop])[loop.loop_var])]
    if all(loop in used for loop in wanted) and is_one_to_one(equal, domains_of(used)):
        return True
    domains = domains_of([*first.loops, *second.loops])
    return all(
        loop in shared and any(_are_apart(loop.loop_var, ends, domains) for ends in windows)
        for loop in wanted
    )


def _are_apart(var: Var, ends: Sequence[PrimExpr], domains: Mapping[Var, Range]) -> bool:
    """True if intervals of different iterations are disjoint: a step is longer than their union.

    `ends` are the first and the last index of each interval.
    """
    analyzer = Analyzer()
    for other, domain in domains.items():
        analyzer.bind(other, domain)
    steps = [analyzer.simplify(substitute(end, {var: var + 1}) - end) for end in ends]
    step = steps[0]
    if not isinstance(step, IntImm) or any(not s.same_as(step) for s in steps) or step.value == 0:
        return False
    rests = [analyzer.const_int_bound(analyzer.simplify(end - var * step)) for end in ends]
    low, high = min(rest.min_value for rest in rests), max(rest.max_value for rest in rests)
    return high - low < abs(step.value)


_THREAD_AXES = frozenset(
    f"{unit}.{axis}" for unit in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"
) | {"vthread", "cthread"}


def run_as(state: State, loop: For, kind: ForKind) -> None:
    """Make `loop` parallel, vectorized or unrolled, if its iterations may run in any order."""
    if loop.kind != ForKind.SERIAL:
        raise refused(f"loop {loop.loop_var.name} is {loop.kind.name.lower()} already", loop)
    if kind != ForKind.UNROLLED:
        check_parallel(state, loop)
    state.replace({loop: replace(loop, kind=kind)})


def bind(state: State, loop: For, thread_axis: str) -> None:
    """Bind `loop` to an index of threads; reductions may run over a threadIdx."""
    if thread_axis not in _THREAD_AXES:
        hint = close_names(str(thread_axis), _THREAD_AXES)
        raise unexpected(thread_axis, "expected a thread axis such as 'threadIdx.x'", hint=hint)
    if loop.kind != ForKind.SERIAL:
        raise refused(f"loop {loop.loop_var.name} is {loop.kind.name.lower()} already", loop)
    check_parallel(state, loop, reductions=thread_axis.startswith("threadIdx"))
    kind = loop.loop_var.dtype
    index = IterVar(None, Var("", kind), IterVarKind.ThreadIndex, thread_axis)
    state.replace({loop: replace(loop, kind=ForKind.THREAD_BINDING, thread_binding=index)})


def annotate(state: State, node: For | Block, key: str, value: Attr | None) -> None:
    """Set the annotation `key` of a loop or block, or remove it if `value` is None."""
    table = dict(node.annotations)
    if value is None:
        if key not in table:
            raise refused(f"there is no annotation {key!r:.40} to remove", node)
        del table[key]
    else:
        if key in table:
            raise refused(f"there is an annotation {key!r:.40} already", node)
        table[key] = value
    new = replace(node, annotations=as_attrs(table))
    state.replace({node: new}, {node: new} if isinstance(node, Block) else {})  # type: ignore[dict-item]


def storage_align(
    state: State, block: Block, which: int, axis: int, factor: int, offset: int
) -> None:
    """Add an alignment of an axis of a buffer that `block` writes to its annotations."""
    written = [region.buffer for region in block.writes]
    if not 0 <= which < len(written):
        raise refused(f"block {block.name_hint} writes {len(written)} buffers, not {which}", block)
    rank = len(written[which].shape)
    if not -rank <= axis < rank:
        raise refused(f"{written[which].name} has no axis {axis}", block)
    if factor <= 0:
        raise refused(f"a factor is positive, found {factor}", block)
    table = dict(block.annotations)
    aligned = (*table.get(_ALIGNED, ()), (which, axis % rank, factor, offset))  # type: ignore[misc]
    state.renew(block, replace(block, annotations=as_attrs(table | {_ALIGNED: aligned})))


_ALIGNED = "buffer_dim_align"


def split(
    state: State,
    loop: For,
    factors: Sequence[ExprLike | None],
    *,
    preserve_unit_iters: bool,
    disable_predication: bool,
) -> list[For]:
    """Replace `loop` by one loop per factor; the blocks get a predicate where it may overshoot."""
    check_plain(loop)
    dtype = loop.loop_var.dtype
    sizes = _inferred(loop, factors)
    analyzer = Analyzer()
    value: PrimExpr = ops.const(0, dtype)
    domains = {Var(f"{loop.loop_var.name}_{k}", dtype): Range(size) for k, size in enumerate(sizes)}
    for var, domain in domains.items():
        value = ops.add(ops.mul(value, domain.extent), var)
        analyzer.bind(var, domain)
    inside = ops.compare(tir.LT, value, loop.extent)
    predicate = None if disable_predication or analyzer.can_prove(inside) else inside
    if predicate is not None:
        _check_only_blocks(loop)
    renewed: dict[Block, Block] = {}
    body = substituted(loop.body, {loop.loop_var: value}, renewed)
    new = [For(var, d.min, d.extent, ForKind.SERIAL, body) for var, d in domains.items()]
    around = [*state.loops(loop), *new]
    body = with_simple_bindings(
        body, around, renewed, predicate, keep_unit_iters=preserve_unit_iters
    )
    nest = nested(new, body)
    state.replace({loop: nest}, renewed)
    return loops_between(nest, body)


def _check_only_blocks(loop: For) -> None:
    """Errors: ScheduleError if more iterations would do more than the blocks in them."""
    bare = list(bare_statements(loop))
    names = {loop.loop_var} | {node.var for node in bare if isinstance(node, LetStmt)}
    for node in bare:
        has_effect = isinstance(node, (BufferStore, Evaluate, AssertStmt))
        loads = (
            load
            for child in children(node)
            if isinstance(child, PrimExpr)
            for load in occurrences(child, BufferLoad)
        )
        if has_effect or any(mentions(load, names) for load in loads):
            raise refused(
                f"loop {loop.loop_var.name} would have more iterations, and it has statements that "
                "are in no block, or reads buffers for conditions of blocks",
                node,
            )


def _inferred(loop: For, factors: Sequence[ExprLike | None]) -> list[PrimExpr]:
    """Return the factors with the one that is None inferred."""
    dtype = loop.loop_var.dtype
    if not isinstance(factors, (list, tuple)) or not factors:
        raise unexpected(factors, "factors is a list")
    given = [None if f is None else ops.cast_to(ops.convert(f), dtype) for f in factors]
    known = [f for f in given if f is not None]
    for factor in known:
        if isinstance(factor, IntImm) and factor.value <= 0:
            raise refused(f"a factor is positive, found {factor.value}", loop)
    if len(known) < len(given) - 1:
        raise refused("at most one of the factors is None", loop)
    product = prod(known, start=ops.const(1, dtype))
    if len(known) < len(given):
        rest = Analyzer().simplify(ops.ceildiv(loop.extent, product))
        return [rest if f is None else f for f in given]
    if not Analyzer().can_prove(ops.compare(tir.GE, product, loop.extent)):
        raise refused(
            f"the product {product} of the factors is not known to reach the extent "
            f"{loop.extent} of loop {loop.loop_var.name}",
            loop,
        )
    return known


def fuse(state: State, loops: Sequence[For], *, preserve_unit_iters: bool) -> For:
    """Replace loops, each the only content of the one before, by one loop over their product."""
    if not loops:
        raise MisuseError("fuse takes at least one loop, found none")
    for loop in loops:
        check_plain(loop)
    for outer, inner in pairwise(loops):
        if outer.body is not inner:
            raise refused(
                f"loop {inner.loop_var.name} is not the only content of loop {outer.loop_var.name}",
                inner,
            )
    _check_independent(loops, outer=True)
    _check_inits_of_nothing(loops)
    dtype = max((loop.loop_var.dtype for loop in loops), key=lambda kind: kind.bits)
    fused = Var("_".join(loop.loop_var.name for loop in loops) + "_fused", dtype)
    lower: PrimExpr = ops.const(1, dtype)
    values: dict[Var, PrimExpr] = {}
    for k, loop in reversed(list(enumerate(loops))):
        extent = ops.cast_to(loop.extent, dtype)
        whole = fused if k == 0 else ops.floormod(fused, ops.mul(lower, extent))
        is_unit = isinstance(extent, IntImm) and extent.value == 1
        value = ops.const(0, dtype) if is_unit else ops.floordiv(whole, lower)
        values[loop.loop_var] = ops.cast_to(value, loop.loop_var.dtype)
        lower = ops.mul(lower, extent)
    renewed: dict[Block, Block] = {}
    body = substituted(loops[-1].body, values, renewed)
    zero = ops.const(0, dtype)
    new = For(fused, zero, Analyzer().simplify(lower), ForKind.SERIAL, body)
    around = [*state.loops(loops[0]), new]
    body = with_simple_bindings(body, around, renewed, keep_unit_iters=preserve_unit_iters)
    nest = nested([new], body)
    state.replace({loops[0]: nest}, renewed)
    return loops_between(nest, body)[0]


def _check_inits_of_nothing(loops: Sequence[For]) -> None:
    """Errors: ScheduleError if an init that runs without iterations would not after `fuse`."""
    empty = {
        at.loop_var for at in loops if not Analyzer().can_prove(ops.compare(tir.GT, at.extent, 0))
    }
    others = {at.loop_var for at in loops} - empty
    for realize in outermost_blocks(loops[-1]):
        block = realize.block
        values = {
            kind: [
                value
                for it, value in zip(block.iter_vars, realize.iter_values, strict=True)
                if it.iter_type == kind
            ]
            for kind in (IterVarKind.DataPar, IterVarKind.CommReduce)
        }
        if (
            block.init is not None
            and any(mentions(value, empty) for value in values[IterVarKind.CommReduce])
            and any(mentions(value, others) for value in values[IterVarKind.DataPar])
        ):
            raise refused(
                f"block {block.name_hint} may have nothing to reduce, and runs its init in each "
                "iteration of other loops then",
                block,
            )


def reorder(state: State, loops: Sequence[For]) -> None:
    """Permute loops of one chain; they take each other's places in the order of `loops`."""
    if len({loop.loop_var for loop in loops}) != len(loops):
        raise refused("a loop is listed twice")
    if len(loops) < 2:
        return
    chain = _chain(state, loops)
    places = iter(loops)
    order = [next(places) if loop in loops else loop for loop in chain]
    if order == chain:
        return
    _check_independent(order)
    check_reorder(state, chain, order)
    state.replace({chain[0]: nested(order, chain[-1].body)})


def _chain(state: State, loops: Sequence[For]) -> list[For]:
    """Return the loops from the outermost of `loops` to the innermost."""
    innermost = max(loops, key=lambda loop: len(list(state.ancestors(loop))))
    waiting = {loop.loop_var for loop in loops} - {innermost.loop_var}
    chain = [innermost]
    for above in state.ancestors(innermost):
        if not waiting:
            break
        if not isinstance(above, For):
            what = "is a block" if isinstance(above, BlockRealize) else "are other statements"
            raise refused(f"the loops are not one chain: there {what} between them", innermost)
        chain.append(above)
        waiting -= {above.loop_var}
    if waiting:
        raise refused("the loops are not inside each other", innermost)
    return chain[::-1]


def add_unit_loop(state: State, node: For | Block) -> For:
    """Put a loop of extent 1 around a loop, or around a block."""
    target = state.realize(node) if isinstance(node, Block) else node
    if state.parent(target) is None:
        raise refused("there is no loop around the root block", node)
    dtype = node.loop_var.dtype if isinstance(node, For) else ops.const(0).dtype
    zero, one = ops.const(0, dtype), ops.const(1, dtype)
    unit = For(Var("u", dtype), zero, one, ForKind.SERIAL, target)
    state.replace({target: unit})
    return unit


def check_plain(loop: For) -> None:
    """Errors: ScheduleError if `loop` is bound, annotated or parallel, or does not begin at 0."""
    name = loop.loop_var.name
    if loop.annotations or loop.thread_binding is not None:
        raise refused(f"loop {name} has annotations or is bound to a thread", loop)
    if loop.kind != ForKind.SERIAL:
        raise refused(f"loop {name} is {loop.kind.name.lower()}, expected a serial one", loop)
    if not Analyzer().can_prove_equal(loop.min, 0):
        raise refused(f"loop {name} begins at {loop.min}, expected 0", loop)


def _check_independent(loops: Sequence[For], *, outer: bool = False) -> None:
    """Errors: ScheduleError if bounds depend on a loop not outside of theirs, or on an `outer`."""
    for k, loop in enumerate(loops):
        inner = {other.loop_var for other in loops[0 if outer else k :]}
        for bound in (loop.min, loop.extent):
            if mentions(bound, inner):
                raise refused(
                    f"the bounds of loop {loop.loop_var.name} depend on one of the loops", loop
                )
