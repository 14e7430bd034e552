"""Primitives that change loops: split, fuse, reorder, decompose_reduction, rfactor, blockize."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, pairwise, product, takewhile
from math import prod
from typing import cast

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_map import subspace_divide
from relaxpy.ir.arith.tvm.iter_reader import IterMapLevel, analyzer_of
from relaxpy.ir.core.dtype import BOOL
from relaxpy.ir.core.node import Attr, as_attrs
from relaxpy.ir.core.traverse import children, occurrences, rewrite
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.analysis.regions import Interval, with_regions
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import ExprLike, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.rewrite.stages import (
    IDEMPOTENT,
    Reduction,
    Stage,
    bare_statements,
    check_commutes,
    check_decided_before,
    check_init_first,
    check_kinds,
    check_only_content,
    check_own_dependence,
    check_own_variables,
    check_plain_iterations,
    check_pure_stage,
    identity_of,
    is_one_to_one,
    is_unit,
    reduction_of,
    reorders_reduction,
    shared_loops,
    stage_in_scope,
    stages_in,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    copied_block,
    domains_of,
    loops_between,
    loops_like,
    nested,
    only_block,
    open_tests,
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
    Stmt,
    stmt_seq,
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
    written = {buffer for stage in stages for buffer in stage.writes}
    for first, second in combinations(stages, 2):
        repeats = not first.is_opaque and not first.uses(loop)
        if (
            repeats
            and shared_loops(first, second)[-1] is loop
            and first.reads.keys().isdisjoint(written)
            and first.writes.keys().isdisjoint(second.writes)
        ):
            first = replace(first, writes={})  # each iteration stores the same values first
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
    outer = {loop.loop_var for loop in takewhile(lambda loop: loop not in loops, shared)}
    return all(loop in shared and _are_in_tiles(loop, windows, domains, outer) for loop in wanted)


def _are_in_tiles(
    loop: For,
    windows: Sequence[Sequence[PrimExpr]],
    domains: Mapping[Var, Range],
    outer: Collection[Var],
) -> bool:
    """True if intervals of different iterations of `loop` are disjoint in one dimension.

    `windows` has the first and the last index of each interval by dimension. Both are in one
    iteration of the `outer` loops, and in any of the others. Of a fused loop, each dimension may
    decide a digit, which both have in common then.
    """
    var, others = loop.loop_var, domains.keys() - {loop.loop_var}
    if any(_are_apart(var, ends, domains, outer) for ends in windows):
        return True
    found = (n for w in windows for end in w for n in occurrences(end, tir.FloorDiv, tir.FloorMod))
    digits = dict.fromkeys(n for n in found if mentions(n, {var}) and not mentions(n, others))
    decided: dict[PrimExpr, Var] = {}
    while True:
        fixed = {*outer, *decided.values()}
        known = [[_with(end, decided) for end in ends] for ends in windows]
        new = (n for n in digits if n not in decided)
        digit = next((n for n in new if any(_are_apart(n, e, domains, fixed) for e in known)), None)
        if digit is None:
            return bool(decided) and is_one_to_one(list(decided), domains_of([loop]))
        decided[digit] = Var("digit", digit.dtype)


def _with(expr: PrimExpr, numbers: Mapping[PrimExpr, Var]) -> PrimExpr:
    """`expr` with variables for some of its subexpressions."""
    return cast("PrimExpr", rewrite(expr, lambda node: numbers.get(cast("PrimExpr", node))))


def _are_apart(
    number: PrimExpr, ends: Sequence[PrimExpr], domains: Mapping[Var, Range], outer: Collection[Var]
) -> bool:
    """True if intervals of different numbers are disjoint: a step is longer than their union."""
    analyzer = Analyzer()
    copies = {own: Var(own.name, own.dtype) for own in domains if own not in outer}
    for own, domain in domains.items():
        analyzer.bind(own, domain)
        if own in copies:
            analyzer.bind(copies[own], domain)
    tile = Var("tile", number.dtype)
    numbered = [_with(end, {number: tile}) for end in ends]
    steps = [analyzer.simplify(substitute(end, {tile: tile + 1}) - end) for end in numbered]
    step = steps[0]
    if not isinstance(step, IntImm) or any(not s.same_as(step) for s in steps) or step.value == 0:
        return False
    rests = dict.fromkeys(analyzer.simplify(end - tile * step) for end in numbered)
    gaps = (analyzer.simplify(p - substitute(q, copies)) for p, q in product(rests, repeat=2))
    return all(analyzer.const_int_bound(gap).max_value < abs(step.value) for gap in gaps)


_THREAD_AXES = frozenset(
    f"{unit}.{axis}" for unit in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"
) | {"vthread", "cthread"}


def run_as(state: State, loop: For, kind: ForKind) -> None:
    """Make `loop` parallel, vectorized or unrolled, if its iterations may run in any order."""
    if kind != ForKind.UNROLLED:
        check_parallel(state, loop)
    state.replace({loop: replace(loop, kind=kind, thread_binding=None)})


def bind(state: State, loop: For, thread_axis: str) -> None:
    """Bind `loop` to an index of threads; reductions may run over a threadIdx."""
    if thread_axis not in _THREAD_AXES:
        hint = close_names(str(thread_axis), _THREAD_AXES)
        raise unexpected(thread_axis, "expected a thread axis such as 'threadIdx.x'", hint=hint)
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
_LONGEST_NAME = 80


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
        value = value * domain.extent + var
        analyzer.bind(var, domain)
    inside = value < loop.extent
    predicate = None if disable_predication or analyzer.can_prove(inside) else inside
    if predicate is not None:
        _check_only_blocks(loop)
    renewed: dict[Block, Block] = {}
    body = substituted(loop.body, {loop.loop_var: value}, renewed)
    new = [For(var, d.min, d.extent, ForKind.SERIAL, body) for var, d in domains.items()]
    around = [*state.loops(loop), *new]
    body = with_simple_bindings(body, around, predicate, keep_unit_iters=preserve_unit_iters)
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
    """The factors with the one that is None inferred."""
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
    if not Analyzer().can_prove(product >= loop.extent):
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
    fused = Var(_fused_name([loop.loop_var.name for loop in loops]), dtype)
    lower: PrimExpr = ops.const(1, dtype)
    values: dict[Var, PrimExpr] = {}
    for k, loop in reversed(list(enumerate(loops))):
        extent = ops.cast_to(loop.extent, dtype)
        whole = fused if k == 0 else fused % (lower * extent)
        is_unit = isinstance(extent, IntImm) and extent.value == 1
        value = ops.const(0, dtype) if is_unit else whole // lower
        values[loop.loop_var] = ops.cast_to(value, loop.loop_var.dtype)
        lower = lower * extent
    renewed: dict[Block, Block] = {}
    body = substituted(loops[-1].body, values, renewed)
    zero = ops.const(0, dtype)
    new = For(fused, zero, Analyzer().simplify(lower), ForKind.SERIAL, body)
    around = [*state.loops(loops[0]), new]
    body = with_simple_bindings(body, around, keep_unit_iters=preserve_unit_iters)
    nest = nested([new], body)
    state.replace({loops[0]: nest}, renewed)
    return loops_between(nest, body)[0]


def _fused_name(names: Sequence[str]) -> str:
    """The name of the loop that replaces loops of these names, which would double at each use."""
    name = "_".join(names) + "_fused"
    return name if len(name) <= _LONGEST_NAME else f"{names[0][: _LONGEST_NAME // 2]}_fused"


def _check_inits_of_nothing(loops: Sequence[For]) -> None:
    """Errors: ScheduleError if an init that runs without iterations would not after `fuse`."""
    empty = {at.loop_var for at in loops if not Analyzer().can_prove(at.extent > 0)}
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
    """The loops from the outermost of `loops` to the innermost."""
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


def decompose(state: State, block: Block, loop: For) -> Block:
    """Put the init of `block` into a block of its own before `loop`."""
    stages, stage = stage_in_scope(state, block)
    if block.init is None:
        raise refused(f"block {stage.name} has no T.init()", block)
    check_pure_stage(stage, stages)
    if loop not in stage.loops:
        raise refused(f"loop {loop.loop_var.name} is not around block {stage.name}", loop)
    inner = list(stage.loops[stage.loops.index(loop) :])
    check_plain_iterations(stage, inner)
    relevant = stage.reduction_loops()
    outer = [at for at in stage.loops if at not in inner and at in relevant]
    if outer:
        raise refused(
            f"block {stage.name} reduces over loop {outer[0].loop_var.name}, which is outside of "
            f"loop {loop.loop_var.name}",
            loop,
        )
    _check_readers(stage, stages, inner)
    spatial = [it for it in block.iter_vars if it.iter_type == IterVarKind.DataPar]
    values = stage.values()
    bound = [values[it.var] for it in spatial]
    kept = [at for at in inner if any(mentions(value, (at.loop_var,)) for value in bound)]
    dropped = {at.loop_var for at in inner if at not in kept}
    # Loops outside decide with the first iteration of those that the init is not in.
    outside = {at.loop_var for at in stage.loops if at not in inner}
    first = {
        at.loop_var: at.min
        for at in inner
        if at.loop_var in dropped and Analyzer().can_prove(at.extent > 0)
    }
    tests = [
        substitute(test, first) if mentions(test, outside) else test
        for test in conjuncts(stage.realize.predicate)
    ]
    predicate = without_loops(
        ops.all_of(*tests) if tests else stage.realize.predicate,
        dropped,
        outside | {at.loop_var for at in kept},
    )
    if next(occurrences(block.init, BufferLoad), None) is not None:
        raise refused(f"the init of block {stage.name} reads buffers", block)
    iters = list(zip(spatial, bound, strict=True))
    name = f"{block.name_hint}_init"
    start, nest = copied_block(name, iters, block.init, predicate, kept, "_init")
    update = _without_init(block)
    state.renew(block, update)
    current = state.loop(loop.loop_var)
    assert current is not None
    state.replace({current: stmt_seq(nest, current)})
    return start


def _without_init(block: Block) -> Block:
    """The block without its init, so that it reads what it writes."""
    updated = {region.buffer for region in block.writes}
    reads = (*block.writes, *(r for r in block.reads if r.buffer not in updated))
    return replace(block, name_hint=f"{block.name_hint}_update", init=None, reads=reads)


def _check_readers(stage: Stage, stages: Sequence[Stage], inner: Sequence[For]) -> None:
    """Errors: ScheduleError if another stage may see the init too early."""
    for other in stages:
        shared = [loop for loop in shared_loops(stage, other) if loop in inner]
        if other is not stage and shared and not stage.writes.keys().isdisjoint(other.reads):
            check_no_carried(stage, other, shared)


def without_loops(predicate: PrimExpr, dropped: set[Var], kept: set[Var]) -> PrimExpr:
    """The conjuncts without `dropped` loops. Errors: ScheduleError if one has both."""
    found = []
    for conjunct in conjuncts(predicate):
        if not mentions(conjunct, dropped):
            found.append(conjunct)
        elif mentions(conjunct, kept):
            raise refused(f"the predicate {conjunct} is over loops of both kinds")
    return ops.all_of(*found) if found else ops.const(True, BOOL)


def rfactor(state: State, loop: For, factor_axis: int) -> Block:
    """Reduce for each iteration of `loop` by itself, and then over `loop`."""
    block = only_block(loop)
    stages, stage = stage_in_scope(state, block)
    check_pure_stage(stage, stages)
    reduction = reduction_of(block)
    if reduction is None or not isinstance(block.init, BufferStore):
        raise refused(f"block {stage.name} is not a known commutative reduction", block)
    relevant = stage.reduction_loops()
    if loop not in relevant:
        raise refused(
            f"loop {loop.loop_var.name} is not a reduction loop of block {stage.name}", loop
        )
    check_only_content(stage, stage.loops, (ForKind.SERIAL, ForKind.THREAD_BINDING))
    values = stage.values()
    spatial = [it for it in block.iter_vars if it.iter_type == IterVarKind.DataPar]
    for other in relevant:
        if any(mentions(values[it.var], (other.loop_var,)) for it in spatial):
            raise refused(f"loop {other.loop_var.name} is one of spatial variables, too", other)
    axis = ops.as_int(factor_axis)
    buffer = reduction.buffer
    if not -buffer.ndim - 1 <= axis <= buffer.ndim:
        raise refused(f"factor_axis {axis} is outside of [{-buffer.ndim - 1}, {buffer.ndim}]")
    axis = axis + buffer.ndim + 1 if axis < 0 else axis
    _check_every_part_runs(stage, loop, relevant)
    return _Factored(state, stage, reduction, loop, axis).apply()


def _check_every_part_runs(stage: Stage, loop: For, relevant: Sequence[For]) -> None:
    """Errors: ScheduleError if an iteration of `loop` may reduce nothing."""
    analyzer = analyzer_of(domains_of(stage.loops))
    first = {other.loop_var: other.min for other in relevant if other is not loop}
    for conjunct in conjuncts(stage.realize.predicate):
        if mentions(conjunct, {other.loop_var for other in relevant}) and not analyzer.can_prove(
            substitute(conjunct, first)
        ):
            raise refused(
                f"an iteration of loop {loop.loop_var.name} may have nothing to reduce, because of "
                f"the predicate {conjunct}",
                loop,
            )


class _Factored:
    """The two blocks of a reduction that is factored over a loop."""

    def __init__(
        self, state: State, stage: Stage, reduction: Reduction, loop: For, axis: int
    ) -> None:
        self.state = state
        self.stage = stage
        self.reduction = reduction
        self.loop = loop
        self.axis = axis
        self.relevant = stage.reduction_loops()
        self.spatial = [it for it in stage.block.iter_vars if it.iter_type == IterVarKind.DataPar]
        old = reduction.buffer
        size = ops.cast_to(loop.extent, old.shape[0].dtype if old.shape else loop.extent.dtype)
        shape = (*old.shape[:axis], size, *old.shape[axis:])
        self.partial = decl_buffer(shape, old.dtype, f"{old.name}_rf", scope=old.scope())

    def apply(self) -> Block:
        """Replace the block by two, and return the first."""
        stage, state, scope = self.stage, self.state, self.state.scope(self.stage.block)
        parts, part_values = self._parts()
        whole, whole_nest = self._whole()
        realize = BlockRealize(tuple(part_values), stage.realize.predicate, parts)
        nest = nested(stage.loops, realize)
        state.replace({stage.loops[0]: stmt_seq(nest, whole_nest)}, {stage.block: whole})
        state.allocate(scope, self.partial)
        return parts

    def _element(self, part: PrimExpr, values: dict[Var, PrimExpr]) -> tuple[PrimExpr, ...]:
        """The indices of a partial result."""
        indices = [substitute(index, values) for index in self.reduction.store.indices]
        size = self.partial.shape[self.axis].dtype
        return (*indices[: self.axis], ops.cast_to(part, size), *indices[self.axis :])

    def _parts(self) -> tuple[Block, list[PrimExpr]]:
        """The block that reduces for each iteration of the loop, and its values."""
        old_values = self.stage.values()
        kinds = {self.loop.loop_var: IterVarKind.DataPar}
        iters = {
            var: IterVar(dom, var.renamed(f"v{var.name}"), kinds.get(var, IterVarKind.CommReduce))
            for var, dom in domains_of(self.relevant).items()
        }
        loop_values: dict[Var, PrimExpr] = {var: it.var for var, it in iters.items()}
        copies = {it.var: it.var.renamed(it.var.name) for it in self.spatial}
        values: dict[Var, PrimExpr] = dict(copies)
        for it in self.stage.block.iter_vars:
            if it.iter_type == IterVarKind.CommReduce:
                values[it.var] = substitute(old_values[it.var], loop_values)
        part = iters[self.loop.loop_var]
        indices = self._element(part.var, values)
        value = substitute(self.reduction.source, values)
        init = None
        if len(iters) > 1:  # otherwise each partial result is one element
            value = self.reduction.combine(BufferLoad(self.partial, indices), value)
            init = BufferStore(self.partial, self._identity(values), indices)
        block = Block(
            (
                part,
                *(IterVar(it.dom, copies[it.var], it.iter_type) for it in self.spatial),
                *(it for var, it in iters.items() if var is not self.loop.loop_var),
            ),
            (),
            (),
            f"{self.stage.block.name_hint}_rf",
            BufferStore(self.partial, value, indices),
            init,
            annotations=self.stage.block.annotations,
        )
        bound = [
            self.loop.loop_var,
            *(old_values[it.var] for it in self.spatial),
            *(var for var in iters if var is not self.loop.loop_var),
        ]
        return with_regions(block), bound

    def _identity(self, values: dict[Var, PrimExpr]) -> PrimExpr:
        """The value from which the partial results begin."""
        init = self.stage.block.init
        assert isinstance(init, BufferStore)
        kind = self.reduction.kind
        if kind in IDEMPOTENT:
            return substitute(init.value, values)
        return identity_of(kind, self.partial.dtype)

    def _whole(self) -> tuple[Block, Stmt]:
        """The block that reduces over the loop, and its loops."""
        store, old_values = self.reduction.store, self.stage.values()
        part = IterVar(
            domains_of([self.loop])[self.loop.loop_var],
            self.loop.loop_var.renamed(f"v{self.loop.loop_var.name}"),
            IterVarKind.CommReduce,
        )
        load = BufferLoad(self.partial, self._element(part.var, {}))
        value = self.reduction.combine(BufferLoad(store.buffer, store.indices), load)
        block = replace(
            self.stage.block,
            iter_vars=(part, *self.spatial),
            body=BufferStore(store.buffer, value, store.indices),
        )
        bound = [old_values[it.var] for it in self.spatial]
        kept = [
            loop
            for loop in self.stage.loops
            if loop is self.loop or any(mentions(value, (loop.loop_var,)) for value in bound)
        ]
        names = {loop.loop_var: loop.loop_var.renamed(loop.loop_var.name) for loop in kept}
        reduced = {loop.loop_var for loop in self.relevant}
        conditions = [
            c for c in conjuncts(self.stage.realize.predicate) if not mentions(c, reduced)
        ]
        predicate = ops.all_of(*conditions) if conditions else ops.const(True, BOOL)
        new = with_regions(block)
        realize = BlockRealize(
            (names[self.loop.loop_var], *(substitute(value, names) for value in bound)),
            substitute(predicate, names),
            new,
        )
        return new, loops_like(kept, names, realize)


def blockize(state: State, loop: For, *, preserve_unit_iters: bool) -> Block:
    """Make a block of `loop`, whose variables are those of the loops around it."""
    block = only_block(loop)
    stages, stage = stage_in_scope(state, block)
    check_kinds(stage)
    if block.init is not None:
        check_pure_stage(stage, stages)
    start = stage.loops.index(loop)
    inner = stage.loops[start:]
    check_only_content(stage, inner)
    check_decided_before(stage)
    check_own_variables(stage)
    division = _Division(stage, stage.loops[:start], inner, keep_unit_iters=preserve_unit_iters)
    renewed: dict[Block, Block] = {}
    init = None if block.init is None else division.init()
    updates = substituted(
        replace(block, iter_vars=division.iters(division.inner), init=None),
        division.values,
        renewed,
    )
    assert isinstance(updates, Block)
    update = renewed[block] = with_regions(updates)
    realize = BlockRealize(_bound(division.inner), division.conditions[1], update)
    nest = nested(inner, realize)
    iters = division.iters(division.outer)
    new = with_regions(Block(iters, (), (), f"{block.name_hint}_o", nest, init))
    realize = BlockRealize(_bound(division.outer), division.conditions[0], new)
    state.replace({loop: realize}, renewed)
    return new


Bound = list[tuple[IterVar, PrimExpr]]


def _bound(iters: Bound) -> tuple[PrimExpr, ...]:
    return tuple(value for _, value in iters)


class _Division:
    """The variables of a block as outer * extent of inner + inner, and its condition."""

    def __init__(
        self, stage: Stage, outer: Sequence[For], inner: Sequence[For], *, keep_unit_iters: bool
    ) -> None:
        self.stage, self.loops = stage, inner
        self.outer: Bound = []
        self.inner: Bound = []
        self.values: dict[Var, PrimExpr] = {}
        around = domains_of([*outer, *inner])
        divided = subspace_divide(
            stage.realize.iter_values,
            around,
            [at.loop_var for at in inner],
            True,
            IterMapLevel.Surjective,
            not keep_unit_iters,
        )
        self.analyzer = analyzer_of(around)
        if not divided:
            raise self._indivisible()
        for it, (high, low) in zip(stage.block.iter_vars, divided[:-1], strict=True):
            only_outer = self.analyzer.can_prove_equal(
                low.extent, 1
            ) and self.analyzer.can_prove_equal(low.source, 0)
            first = self._half(it, high.source, high.extent, self.outer, "o")
            if only_outer:
                self.values[it.var] = first
                continue
            if self.analyzer.can_prove_equal(high.extent, 1):
                first = ops.const(0, it.var.dtype)
            second = self._half(it, low.source, low.extent, self.inner, "i")
            step = ops.cast_to(low.extent, it.var.dtype)
            self.values[it.var] = first * step + second
        self.conditions = self._divided_condition([at.loop_var for at in outer])

    def _indivisible(self) -> Exception:
        return refused(
            f"block {self.stage.name} cannot be divided into the loops outside of loop "
            f"{self.loops[0].loop_var.name}, and it with those inside",
            self.stage.block,
        )

    def _half(
        self, it: IterVar, source: PrimExpr, extent: PrimExpr, entered: Bound, suffix: str
    ) -> PrimExpr:
        """The variable for one half of the values of another."""
        dtype = it.var.dtype
        value, size = ops.cast_to(source, dtype), ops.cast_to(extent, dtype)
        domain = Range(size)
        if open_tests(self.analyzer, value, domain):
            raise self._indivisible()
        var = it.var.renamed(f"{it.var.name}_{suffix}")
        entered.append((IterVar(domain, var, it.iter_type), value))
        return var

    def _divided_condition(self, outer: Sequence[Var]) -> tuple[PrimExpr, PrimExpr]:
        """The conditions over outer and over inner loops."""
        halves: tuple[list[PrimExpr], list[PrimExpr]] = ([], [])
        inner = [at.loop_var for at in self.loops]
        for test in conjuncts(self.stage.realize.predicate):
            if mentions(test, outer) and mentions(test, inner):
                raise refused(
                    f"the condition {test} of block {self.stage.name} is over loops outside and "
                    f"inside of loop {inner[0].name}",
                    self.stage.block,
                )
            halves[mentions(test, inner)].append(test)
        return ops.all_of(True, *halves[0]), ops.all_of(True, *halves[1])

    def iters(self, bound: Bound) -> tuple[IterVar, ...]:
        """The variables of one half."""
        return tuple(it for it, _ in bound)

    def init(self) -> Stmt:
        """Loops over the inner spatial variables with the init of the block."""
        block = self.stage.block
        assert block.init is not None
        spatial = [pair for pair in self.inner if pair[0].iter_type == IterVarKind.DataPar]
        reduced = [value for it, value in self.inner if it.iter_type != IterVarKind.DataPar]
        kept = [at for at in self.loops if any(mentions(v, (at.loop_var,)) for _, v in spatial)]
        for at in kept:
            if any(mentions(value, (at.loop_var,)) for value in reduced):
                raise refused(
                    f"loop {at.loop_var.name} is one of reduction and of spatial variables of "
                    f"block {self.stage.name}",
                    at,
                )
        dropped = {at.loop_var for at in self.loops if at not in kept}
        condition = without_loops(self.conditions[1], dropped, {at.loop_var for at in kept})
        body = substitute(block.init, self.values)
        return copied_block(f"{block.name_hint}_init", spatial, body, condition, kept, "_init")[1]
