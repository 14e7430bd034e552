"""decompose_reduction and rfactor: two steps of a reduction; blockize: a loop becomes a block."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.arith.tvm.iter_map import subspace_divide
from relaxpy.ir.arith.tvm.iter_reader import IterMapLevel, analyzer_of
from relaxpy.ir.core.dtype import BOOL
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.analysis.regions import with_regions
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.rewrite.reducers import IDEMPOTENT, Reduction, identity_of, reduction_of
from relaxpy.ir.tir.rewrite.stages import (
    Stage,
    check_decided_before,
    check_kinds,
    check_only_content,
    check_own_variables,
    check_plain_iterations,
    check_pure_stage,
    shared_loops,
    stage_in_scope,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    copied_block,
    domains_of,
    loops_like,
    nested,
    only_block,
    open_tests,
    refused,
    substituted,
)
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt, stmt_seq
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.plugins.schedule.loops import check_no_carried
from relaxpy.support.dataclass import replace


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
    predicate = without_loops(stage.realize.predicate, dropped, {at.loop_var for at in kept})
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
    """Return the block without its init, so that it reads what it writes."""
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
    """Return the conjuncts without `dropped` loops. Errors: ScheduleError if one has both."""
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
        """Return the indices of a partial result."""
        indices = [substitute(index, values) for index in self.reduction.store.indices]
        size = self.partial.shape[self.axis].dtype
        return (*indices[: self.axis], ops.cast_to(part, size), *indices[self.axis :])

    def _parts(self) -> tuple[Block, list[PrimExpr]]:
        """Return the block that reduces for each iteration of the loop, and its values."""
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
        load = BufferLoad(self.partial, indices)
        source = substitute(self.reduction.source, values)
        value = self.reduction.combine(load, source)
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
            BufferStore(self.partial, self._identity(values), indices),
            annotations=self.stage.block.annotations,
        )
        bound = [
            self.loop.loop_var,
            *(old_values[it.var] for it in self.spatial),
            *(var for var in iters if var is not self.loop.loop_var),
        ]
        return with_regions(block), bound

    def _identity(self, values: dict[Var, PrimExpr]) -> PrimExpr:
        """Return the value from which the partial results begin."""
        init = self.stage.block.init
        assert isinstance(init, BufferStore)
        kind = self.reduction.kind
        if kind in IDEMPOTENT:
            return substitute(init.value, values)
        return identity_of(kind, self.partial.dtype)

    def _whole(self) -> tuple[Block, Stmt]:
        """Return the block that reduces over the loop, and its loops."""
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
            self.values[it.var] = ops.add(ops.mul(first, step), second)
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
        """Return the variable for one half of the values of another."""
        dtype = it.var.dtype
        value, size = ops.cast_to(source, dtype), ops.cast_to(extent, dtype)
        domain = Range(size)
        if open_tests(self.analyzer, value, domain):
            raise self._indivisible()
        var = it.var.renamed(f"{it.var.name}_{suffix}")
        entered.append((IterVar(domain, var, it.iter_type), value))
        return var

    def _divided_condition(self, outer: Sequence[Var]) -> tuple[PrimExpr, PrimExpr]:
        """Return the conditions over outer and over inner loops."""
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
        """Return the variables of one half."""
        return tuple(it for it, _ in bound)

    def init(self) -> Stmt:
        """Return loops over the inner spatial variables with the init of the block."""
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
