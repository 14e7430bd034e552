"""The program of a kernel whose loops run as its text has them."""

from __future__ import annotations

from relaxpy.dataclass import replace
from relaxpy.exec.kernel.nest.nodes import Axis, Loop, walk_items
from relaxpy.exec.kernel.plan.as_written import kept_kinds
from relaxpy.exec.kernel.plan.statements import Compound
from relaxpy.exec.kernel.plan.tree import For, Plan, Tree, runs
from relaxpy.exec.native.trees.cost import GRAIN
from relaxpy.exec.native.trees.program import KernelProgram, Tasks, program_of
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.stmt import ForKind


def program_as_written(plan: Plan) -> tuple[KernelProgram, str]:
    """The program of a `plan_as_written`, and why annotated loops are serial, if some are.

    Parallel loops are tasks, each of one iteration. Vectorised and unrolled loops are `annotated`.
    """
    program = program_of(plan)
    kinds, reasons = kept_kinds(plan)
    private = {var for entry in plan.nest.local for axis in entry.axes for var in (axis.var,)}
    for var in [v for v, kind in kinds.items() if kind == ForKind.PARALLEL and v in private]:
        del kinds[var]
        reasons.append(f"loop {var.name} is serial: its iterations share a local buffer")
    trees = tuple(_in_tasks(tree, kinds, in_task=False) for tree in program.trees)
    return replace(program, trees=trees, annotated=kinds), "; ".join(reasons)


def _in_tasks(tree: Tree, kinds: dict[Var, ForKind], *, in_task: bool) -> Tree:
    """`tree` with the outermost parallel loops as tasks."""
    if not isinstance(tree, For):
        return tree
    is_parallel = kinds.get(tree.axis.var) == ForKind.PARALLEL and not in_task
    body = tuple(_in_tasks(t, kinds, in_task=in_task or is_parallel) for t in tree.body)
    tree = replace(tree, body=body)
    if not is_parallel:
        return tree
    low, high = Var("lo", INT64), Var("hi", INT64)
    block = replace(tree, axis=Axis(tree.axis.var, low, high))
    return Tasks((), tree.axis, 1, low, high, block, as_poly(GRAIN))


def annotations(program: KernelProgram) -> str:
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

