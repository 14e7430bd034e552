"""blockize: a loop and what is in it become a block."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.arith.tvm.iter_map import subspace_divide
from relaxpy.ir.arith.tvm.iter_reader import IterMapLevel, analyzer_of
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.analysis.regions import with_regions
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.rewrite.stages import (
    Stage,
    check_decided_before,
    check_kinds,
    check_only_content,
    check_own_variables,
    check_pure_stage,
    stage_in_scope,
)
from relaxpy.ir.tir.rewrite.state import (
    State,
    copied_block,
    domains_of,
    nested,
    only_block,
    open_tests,
    refused,
    substituted,
)
from relaxpy.ir.tir.stmt import Block, BlockRealize, For, Stmt
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.plugins.schedule.reduction import without_loops
from relaxpy.support.dataclass import replace


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
