"""From a PrimFunc to its plan."""

from __future__ import annotations

from collections.abc import Iterable

from relaxpy.exec.kernel.nest.read import read
from relaxpy.exec.kernel.plan.blocking import block_rows
from relaxpy.exec.kernel.plan.fold import fold_initial
from relaxpy.exec.kernel.plan.loops import tidy
from relaxpy.exec.kernel.plan.memory import shared_memory
from relaxpy.exec.kernel.plan.parts import parts_of
from relaxpy.exec.kernel.plan.private import expand_locals
from relaxpy.exec.kernel.plan.schedule import schedule
from relaxpy.exec.kernel.plan.steps import Blocked, Plan
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.prim_func.function import PrimFunc


def make_plan(func: PrimFunc, name: str) -> Plan:
    """The plan of `func`.

    Errors:
        CompileError: a statement has no meaning outside special hardware.
    """
    buffers = list(func.buffer_map.values())
    sizes = frozenset(v for b in buffers for size in b.shape for v in _not_negative(size))
    nest = tidy(expand_locals(read(func, sizes), buffers), sizes)
    ordered = nest if nest.in_any_memory else read(func, sizes, overlapping=True)
    parts = parts_of(nest, sizes)
    steps = schedule(parts, sizes, nest.views)
    steps = fold_initial(steps, sizes, nest.views)
    made = [local.buffer for local in nest.local]
    laid_over = {*nest.views, *nest.views.values()}
    shared = shared_memory(steps, made, laid_over)
    private = [b for b in made if b not in shared and b not in laid_over]
    steps = block_rows(steps, private, shared, laid_over, sizes)
    within = {b for step in steps if isinstance(step, Blocked) for b in step.local}
    whole = tuple(b for b in made if b not in within)
    return Plan(func, name, nest, ordered, sizes, steps, whole, shared, nest.views)


def _not_negative(size: PrimExpr) -> Iterable[Var]:
    """The variable of which `size`, which an array has, is a multiple."""
    match list(as_poly(size).terms.items()):
        case [((Var() as var,), factor)] if factor > 0:
            return (var,)
        case _:
            return ()
