"""When the iterations of loops may change their order, or run at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.tir.analysis.regions import Interval
from relaxpy.ir.tir.expr import IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.rewrite.stages import (
    Stage,
    check_commutes,
    check_init_first,
    check_own_dependence,
    is_one_to_one,
    is_unit,
    reorders_reduction,
    stages_in,
)
from relaxpy.ir.tir.rewrite.state import State, domains_of, refused
from relaxpy.ir.tir.stmt import For
from relaxpy.ir.tir.substitution import mentions, substitute


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
