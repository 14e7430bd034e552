"""The program of a kernel whose loops run as scheduled in the source."""

from __future__ import annotations

from collections.abc import Set

from relaxpy.exec.loops.nest.nodes import Axis, Loop, walk_items
from relaxpy.exec.loops.plan.planner import kept_kinds
from relaxpy.exec.loops.plan.statements import Compound
from relaxpy.exec.loops.plan.tree import For, Plan, Tree, runs
from relaxpy.exec.machine.tuning import Cost
from relaxpy.exec.native.trees.program import KernelProgram, Tasks, program_of
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.stmt import ForKind
from relaxpy.support.dataclass import replace


def program_as_written(plan: Plan) -> tuple[KernelProgram, str]:
    """The program of a `plan_as_written`, and the reason why annotated loops are serial, if any.

    Parallel loops are tasks, each of one iteration. Vectorised and unrolled loops are `annotated`.
    """
    program = program_of(plan)
    kinds, reasons = kept_kinds(plan)
    private = {axis.var for entry in plan.nest.local for axis in entry.axes}
    parallel = {v for v, kind in kinds.items() if kind == ForKind.PARALLEL}
    for var in parallel & private:
        reasons.append(f"loop {var.name} is serial: its iterations share a local buffer")
    tasks: set[Var] = set()
    trees = tuple(_in_tasks(tree, parallel - private, tasks) for tree in program.trees)
    for var in parallel - private - tasks:
        reasons.append(f"loop {var.name} is serial: it is in another parallel loop, or a branch")
    annotated = {v: kind for v, kind in kinds.items() if v not in parallel or v in tasks}
    return replace(program, trees=trees, annotated=annotated), "; ".join(reasons)


def _in_tasks(tree: Tree, parallel: Set[Var], tasks: set[Var]) -> Tree:
    """`tree` with its outermost loops of `parallel` as tasks, which are added to `tasks`."""
    if not isinstance(tree, For):
        return tree
    if tree.axis.var not in parallel:
        return replace(tree, body=tuple(_in_tasks(t, parallel, tasks) for t in tree.body))
    tasks.add(tree.axis.var)
    low, high = Var("lo", INT64), Var("hi", INT64)
    block = replace(tree, axis=Axis(tree.axis.var, low, high))
    return Tasks((), tree.axis, 1, low, high, block, as_poly(Cost.GRAIN))


def without_vectors(program: KernelProgram) -> KernelProgram:
    """`program` with serial loops instead of vectorised ones."""
    kinds = {v: k for v, k in program.annotated.items() if k != ForKind.VECTORIZED}
    return replace(program, annotated=kinds)


def description(program: KernelProgram) -> str:
    """The loops of a program that are not serial, as a report names them."""
    order = [tree.axis.var for tree in _loops(program.plan.trees)]
    order += [
        item.axis.var
        for run in runs(program.plan.trees)
        if isinstance(run.statement, Compound)
        for item in walk_items(run.statement.items)
        if isinstance(item, Loop)
    ]
    names = [
        f"{program.annotated[var].name.lower()} {var.name}"
        for var in dict.fromkeys(order)
        if var in program.annotated
    ]
    return ", ".join(["as written", *names])


def _loops(trees: tuple[Tree, ...]) -> list[For]:
    """The loops of trees, outer ones first."""
    own = [tree for tree in trees if isinstance(tree, For)]
    return [*own, *(inner for tree in own for inner in _loops(tree.body))]
