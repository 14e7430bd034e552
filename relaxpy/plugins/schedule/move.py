"""compute_at and reverse_compute_at: a block moves into a loop of its consumers or producers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_reader import analyzer_of
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.analysis.regions import Interval
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import FloorDiv, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.rewrite.stages import (
    Bodies,
    Stage,
    check_commutes,
    check_pure_stage,
    check_stable_inputs,
    condition_outside,
    covers_domain,
    stage_in_scope,
    written_box,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    domains_of,
    is_inside,
    is_shared,
    iter_domains,
    open_tests,
    refused,
    serial_nest,
)
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.plugins.schedule.cache import Site, member_index
from relaxpy.support.dataclass import replace

LAST, FIRST = -1, -2
"""The last and the first possible position among the statements of a loop."""


def compute_at(
    state: State, block: Block, loop: For, index: int, *, preserve_unit_loops: bool
) -> None:
    """Move `block` under `loop`: each iteration computes the region that its consumers read."""
    stage, others, _, _ = _prepared(state, block, loop)
    check_stable_inputs(state, stage, [stage, *others])
    scope = state.scope(block)
    readers = [other for other in others if not stage.writes.keys().isdisjoint(other.reads)]
    for buffer in stage.writes:
        if buffer not in scope.alloc_buffers:
            raise refused(f"{buffer.name} is not allocated in the scope of block {stage.name}")
    if not readers:
        raise refused(f"no block reads what block {stage.name} writes", block)
    for reader in readers:
        for buffer in reader.deciding & stage.writes.keys():
            raise refused(f"{buffer.name} decides how block {reader.name} runs", reader.block)
        if loop not in reader.loops:
            raise refused(
                f"block {reader.name} reads what block {stage.name} writes, and is not inside of "
                f"loop {loop.loop_var.name}",
                reader.block,
            )
    writers = [other for other in others if not other.writes.keys().isdisjoint(stage.reads)]
    ranges = _required(state, stage, loop)
    at = _site(state, loop, [w for w in writers if loop in w.loops], readers, index, stage)
    condition = condition_outside(stage, stage.loops)
    nest = _nest(state, stage, loop, ranges, condition, preserve_unit_loops=preserve_unit_loops)
    _check_inputs_there(state, stage, loop, nest, writers)
    _move(state, stage, loop, at, nest)


def reverse_compute_at(
    state: State, block: Block, loop: For, index: int, *, preserve_unit_loops: bool
) -> None:
    """Move `block` under `loop`: each iteration consumes the region that its producers wrote."""
    stage, others, shared, new_loops = _prepared(state, block, loop)
    old = state.position(block)
    for other in others:
        early = state.position(other.block) < old
        touched = stage.writes.keys() & (other.reads.keys() | other.writes.keys())
        if touched and (early or any(new in other.loops for new in new_loops)):
            raise refused(
                f"block {other.name} uses {next(iter(touched)).name}, which block {stage.name} "
                "would write too early",
                other.block,
            )
    writers = [other for other in others if not other.writes.keys().isdisjoint(stage.reads)]
    producers = [writer for writer in writers if loop in writer.loops]
    if not producers:
        raise refused(
            f"no block inside of loop {loop.loop_var.name} writes what block {stage.name} reads",
            block,
        )
    for writer in writers:
        if writer not in producers and (
            state.position(writer.block) > state.position(loop)
            or any(new in writer.loops for new in new_loops)
        ):
            raise refused(
                f"block {writer.name} writes what block {stage.name} reads, and may do so after "
                f"loop {loop.loop_var.name}",
                writer.block,
            )
    for producer in producers:
        check_pure_stage(producer, [stage, *others])
        _check_complete(producer, loop)
    ranges = _written(stage, producers, shared, new_loops)
    at = _site(state, loop, producers, [], index, stage)
    insides = [p.loops[p.loops.index(loop) + 1 :] for p in producers]
    own = [one for one in stage.loops if one not in shared]
    conditions = map(condition_outside, producers, insides)
    written = ops.all_of(*conditions, condition_outside(stage, own))
    nest = _nest(state, stage, loop, ranges, written, preserve_unit_loops=preserve_unit_loops)
    _move(state, stage, loop, at, nest)


def _check_complete(producer: Stage, loop: For) -> None:
    """Errors: ScheduleError if a block reduces over `loop` or a loop around it."""
    for around in producer.loops[: producer.loops.index(loop) + 1]:
        if around in producer.reduction_loops():
            raise refused(
                f"block {producer.name} reduces over loop {around.loop_var.name}, so it is not "
                "complete there",
                producer.block,
            )


def _copies_elements(stage: Stage, scope: Block) -> bool:
    """True if a block may run for all values of its variables: it copies between known elements.

    Its result is allocated in the scope, so nothing else sees elements that were not copied.
    """
    match stage.block:
        case Block(init=None, body=BufferStore(value=BufferLoad() as load) as store):
            analyzer = analyzer_of(iter_domains(stage.block))
            return (
                store.buffer in scope.alloc_buffers
                and not (stage.deciding or stage.is_guarded(stage.loops))
                and all(
                    is_inside(analyzer, access.indices, [Range(n) for n in access.buffer.shape])
                    for access in (store, load)
                )
            )
        case _:
            return False


def _prepared(
    state: State, block: Block, loop: For
) -> tuple[Stage, list[Stage], list[For], list[For]]:
    """The stage, the others of its scope, and the loops where it will be.

    Those that it is inside of already come first, the new ones are the last result.
    """
    scope = state.scope(block)
    if state.scope(loop) is not scope:
        raise refused(
            f"loop {loop.loop_var.name} is not in the scope of block {block.name_hint}", loop
        )
    stages, stage = stage_in_scope(state, block)
    if loop in stage.loops:
        raise refused(f"block {stage.name} is inside of loop {loop.loop_var.name} already", block)
    check_pure_stage(stage, stages)
    if len(stage.iters(IterVarKind.CommReduce)) > 1:
        check_commutes(stage)
    if not covers_domain(stage) and not _copies_elements(stage, scope):
        raise refused(f"the loops of block {stage.name} do not cover its variables", block)
    around = [*state.loops(loop), loop]
    for one in around:
        if one.kind in (ForKind.PARALLEL, ForKind.VECTORIZED) and one not in stage.loops:
            raise refused(
                f"loop {one.loop_var.name} is {one.kind.name.lower()}: move the block before", one
            )
    shared = [one for one in around if one in stage.loops]
    return stage, [s for s in stages if s is not stage], shared, around[len(shared) :]


def _site(
    state: State,
    loop: For,
    before: Sequence[Stage],
    after: Sequence[Stage],
    index: int,
    stage: Stage,
) -> int:
    """The position in the body of `loop` that is after and before some stages."""
    site = Site(loop, 0)
    first = max((member_index(state, site, s.block) + 1 for s in before), default=0)
    end = len(site.members())
    last = min((member_index(state, site, s.block) for s in after), default=end)
    at = {LAST: last, FIRST: first}.get(index, index)
    if not first <= at <= last:
        raise refused(
            f"block {stage.name} can be at the positions {first} to {last} of loop "
            f"{loop.loop_var.name}, not {index}"
            if first <= last
            else f"no position in loop {loop.loop_var.name} is after all writes that block "
            f"{stage.name} reads and before all reads of its own",
            loop,
        )
    return at


def _required(state: State, stage: Stage, loop: For) -> dict[Var, tuple[PrimExpr, PrimExpr]]:
    """The values of the block variables for the elements that are read in `loop`.

    Of memory that threads share, those are the elements that any of them reads.
    """
    around = [*state.loops(loop), loop]
    reads: dict[Buffer, Sequence[Interval]] = {}
    for buffer in stage.writes:
        body = loop.body
        for one in reversed(around):
            body = replace(one, body=body) if is_shared(buffer, one) else body
        accesses = Bodies(())
        accesses.statement(body)
        reads[buffer] = accesses.reads[buffer]
    simplify = analyzer_of(domains_of([*stage.loops, loop])).simplify
    spatial = {it.var for it in stage.block.iter_vars if it.iter_type == IterVarKind.DataPar}
    found: dict[Var, list[Interval]] = {}
    for store, indices, inner in stage.stores():
        if store.buffer not in stage.writes:
            continue  # the block allocates it
        for index, covered in zip(indices, reads[store.buffer], strict=True):
            for var in set(occurrences(index, Var)) & spatial:
                step = _step(index, var, inner)
                value = None
                if covered is not None and step is not None:
                    low, high = (simplify(end // step) for end in covered)
                    value = covered if index is var else (low, high)
                found.setdefault(var, []).append(value)
    return {
        var: interval
        for var, (interval, *more) in found.items()
        if interval is not None and all(other == interval for other in more)
    }


def _step(index: PrimExpr, var: Var, inner: Mapping[Var, Range]) -> int | None:
    """c if an index is var * c + r, with r in [0, c) that depends on `inner` alone."""
    if index is var:
        return 1
    analyzer = analyzer_of(inner)
    nearby = substitute(index, {var: var + 1})
    step = analyzer.simplify(nearby - index)
    if not isinstance(step, IntImm) or step.value < 1:
        return None
    rest = analyzer.simplify(substitute(index, {var: ops.const(0, var.dtype)}))
    known = analyzer.const_int_bound(rest)
    return step.value if known.min_value >= 0 and known.max_value < step.value else None


def _written(
    stage: Stage, producers: Sequence[Stage], shared: Sequence[For], new_loops: Sequence[For]
) -> dict[Var, tuple[PrimExpr, PrimExpr]]:
    """The values of block variables for the elements that all producers write in an iteration."""
    outer = {one.loop_var for one in shared}
    inner = {one.loop_var for one in stage.loops} - outer
    decided = {var: value for var, value in stage.values().items() if mentions(value, outer)}
    found = {var: (v, v) for var, v in decided.items() if not mentions(v, inner)}
    analyzer = Analyzer()
    spatial = {it.var for it in stage.block.iter_vars if it.iter_type == IterVarKind.DataPar}
    for producer, buffer in [(p, b) for p in producers for b in stage.reads if b in p.writes]:
        place, box = _read_where_written(stage, producer, buffer, new_loops[-1])
        _check_written_somewhere(stage, producer, buffer, place, shared, new_loops)
        pairs = list(zip(place, box, strict=True))
        known = analyzer_of(domains_of([*shared, *new_loops]))
        for index, rng in _solved(known, iter_domains(stage.block), pairs):
            last = rng.stop - 1
            ends = analyzer.simplify(rng.min), analyzer.simplify(last)
            if isinstance(index, Var) and index in spatial and index not in found:
                found[index] = ends
                continue
            before = found.get(index) if isinstance(index, Var) else None
            if before is not None and all(map(analyzer.can_prove_equal, before, ends)):
                continue
            if _is_inside(stage, shared, new_loops, (index,), [rng]):
                continue
            raise refused(
                f"block {stage.name} reads {buffer.name} at {index}, which other iterations of "
                f"loop {new_loops[-1].loop_var.name} may write",
                stage.block,
            )
    for var in decided:
        if var not in found or var not in spatial:
            raise refused(
                f"variable {var.name} of block {stage.name} depends on loops that the block shares "
                "with its new place",
                stage.block,
            )
    return found


def _solved(
    analyzer: Analyzer, domains: Mapping[Var, Range], pairs: list[tuple[PrimExpr, Range]]
) -> list[tuple[PrimExpr, Range]]:
    """Indices and their ranges, where digits become the number that has them, and its range.

    v // c and v % c become v, and v * c + r, where r has all of its values, becomes v.
    """
    for row in pairs:
        for var in [v for v in domains if v is not row[0] and mentions(row[0], (v,))]:
            count = _step(row[0], var, {v: dom for v, dom in domains.items() if v is not var})
            first, size = row[1].min, row[1].extent
            if count is not None and all(
                analyzer.can_prove_equal(end % count, 0) for end in (first, size)
            ):
                others = [pair for pair in pairs if pair is not row]
                whole_digits = Range.from_min_extent(first // count, size // count)
                return [(var, whole_digits), *_solved(analyzer, domains, others)]
        match row:
            case FloorDiv(a=number, b=IntImm() as step), rows if step.value > 0:
                remainder = number % step
                column = next((pair for pair in pairs if pair[0] == remainder), None)
                columns = column[1] if column else Range(step)
                whole = analyzer.can_prove_equal(columns.min, 0) and analyzer.can_prove_equal(
                    columns.extent, step
                )
                ends = [columns.min, columns.stop - 1]
                one_row = analyzer.can_prove_equal(rows.extent, 1)
                if whole or (one_row and is_inside(analyzer, ends, [Range(step)] * 2)):
                    first = rows.min * step + columns.min
                    size = rows.extent * step if whole else columns.extent
                    others = [pair for pair in pairs if pair is not row and pair is not column]
                    numbers = Range.from_min_extent(first, size)
                    return _solved(analyzer, domains, [(number, numbers), *others])
    return pairs


def _read_where_written(
    stage: Stage, producer: Stage, buffer: Buffer, loop: For
) -> tuple[tuple[PrimExpr, ...], list[Range]]:
    """The only indices at which a block reads a buffer, and the box written in an iteration."""
    loads = {load for load in occurrences(stage.block, BufferLoad) if load.buffer is buffer}
    places = {tuple(load.indices) for load in loads}
    place = next(iter(places), ())
    inside = producer.loops[producer.loops.index(loop) + 1 :]
    # Of the block variables, no values after their domains are read.
    stops = {it.var: it.dom.stop for it in stage.block.iter_vars if it.dom is not None}
    read = [stops.get(index) if isinstance(index, Var) else None for index in place]
    box = written_box(producer, buffer, inside, read)
    if box is None or len(places) != 1:
        raise refused(
            f"block {stage.name} is not known to read {buffer.name} where an iteration writes it",
            stage.block,
        )
    return place, box


def _check_written_somewhere(
    stage: Stage,
    producer: Stage,
    buffer: Buffer,
    place: tuple[PrimExpr, ...],
    shared: Sequence[For],
    new_loops: Sequence[For],
) -> None:
    """Errors: ScheduleError if the block has iterations for which nothing is written."""
    inside = producer.loops[producer.loops.index(new_loops[0]) :]
    box = written_box(producer, buffer, inside)
    always = Analyzer().can_prove(condition_outside(producer, inside))
    if box is None or not always or not _is_inside(stage, shared, new_loops, place, box):
        raise refused(
            f"block {stage.name} has iterations for which block {producer.name} is not known to "
            f"write {buffer.name}",
            stage.block,
        )


def _is_inside(
    stage: Stage,
    shared: Sequence[For],
    new_loops: Sequence[For],
    indices: Sequence[PrimExpr],
    box: Sequence[Range],
) -> bool:
    """True if indices of the block are in a box for all iterations that it has now.

    Those are all of its domain, or where it shares loops with its new place, those of its loops.
    """
    if shared:
        values = stage.values()
        indices = [substitute(index, values) for index in indices]
        bound = domains_of(stage.loops)
    else:
        bound = iter_domains(stage.block)
    return is_inside(analyzer_of(bound | domains_of(new_loops)), indices, box)


def _nest(
    state: State,
    stage: Stage,
    loop: For,
    ranges: Mapping[Var, tuple[PrimExpr, PrimExpr]],
    condition: PrimExpr | bool = True,
    *,
    preserve_unit_loops: bool,
) -> Stmt:
    """Loops in which the block runs for `ranges`, and else for all of its domains.

    It runs where `condition` holds.
    """
    analyzer = analyzer_of(domains_of([*state.loops(loop), loop]))
    values: list[PrimExpr] = []
    tests: list[PrimExpr] = []
    loops: list[tuple[Var, Range]] = []
    for it in stage.block.iter_vars:
        assert it.dom is not None
        dtype = it.var.dtype
        first, last = ranges.get(it.var, (it.dom.min, it.dom.stop - 1))
        first = analyzer.simplify(ops.cast_to(first, dtype))
        extent = analyzer.simplify(ops.sub(ops.cast_to(last, dtype), first) + 1)
        value = first
        if preserve_unit_loops or not (isinstance(extent, IntImm) and extent.value == 1):
            var = Var(f"ax{len(loops)}", dtype)
            loops.append((var, Range(extent)))
            value = first + var
            analyzer.bind(*loops[-1])
        values.append(value)
        tests += open_tests(analyzer, value, it.dom)
    realize = BlockRealize(tuple(values), ops.all_of(condition, *tests), stage.block)
    return serial_nest(loops, realize)


def _check_inputs_there(
    state: State, stage: Stage, loop: For, nest: Stmt, writers: Sequence[Stage]
) -> None:
    """Errors: ScheduleError if the block would read what an iteration has not written yet."""
    around = [*state.loops(loop), loop]
    analyzer = analyzer_of(domains_of(around))
    accesses = Bodies(())
    accesses.statement(nest)
    for writer in writers:
        shared = [one for one in around if one in writer.loops]
        if not shared:
            continue
        inside = [one for one in writer.loops if one not in shared]
        for buffer in writer.writes.keys() & stage.reads.keys():
            box = written_box(writer, buffer, inside)
            needed = accesses.reads.get(buffer)
            reduced = any(one in writer.reduction_loops() for one in shared)
            always = analyzer.can_prove(condition_outside(writer, inside))
            if (
                box is None
                or needed is None
                or reduced
                or not always
                or not _covers(analyzer, box, needed)
            ):
                raise refused(
                    f"block {stage.name} is not known to read only what block {writer.name} has "
                    f"written to {buffer.name} in the same iteration",
                    writer.block,
                )


def _covers(analyzer: Analyzer, box: Sequence[Range], needed: Sequence[Interval]) -> bool:
    """True if a box contains all of some intervals."""
    ends = zip(*(interval for interval in needed if interval is not None), strict=True)
    return None not in needed and all(is_inside(analyzer, end, box) for end in ends)


def _move(state: State, stage: Stage, loop: For, at: int, nest: Stmt) -> None:
    """Remove the block with the loops that are empty then, and put `nest` into `loop`."""
    state.replace({stage.realize: None})
    target = state.loop(loop.loop_var)
    assert target is not None
    Site(target, at).insert(state, nest)
