"""From a PrimFunc to its plan."""

from __future__ import annotations

from collections.abc import Iterable

from relaxpy.exec.kernel.nest.read import read
from relaxpy.exec.kernel.plan.blocking import block_rows
from relaxpy.exec.kernel.plan.copies import forward_copies
from relaxpy.exec.kernel.plan.expansion import expand_locals
from relaxpy.exec.kernel.plan.extremes import searches_of, unused_extremes
from relaxpy.exec.kernel.plan.fold_init import fold_initial
from relaxpy.exec.kernel.plan.loops import normalise_loops
from relaxpy.exec.kernel.plan.memory import shared_memory
from relaxpy.exec.kernel.plan.reshapes import reshaped_parameters, reshapes_first
from relaxpy.exec.kernel.plan.schedule import schedule
from relaxpy.exec.kernel.plan.statements import statements_of
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
    shape_vars = frozenset(v for b in buffers for size in b.shape for v in _not_negative(size))
    nest = normalise_loops(expand_locals(read(func, shape_vars), buffers), shape_vars)
    sequential = nest if nest.allows_aliasing else read(func, shape_vars, may_alias=True)
    aliased = {*nest.views, *nest.views.values()}
    local = [entry.buffer for entry in nest.local]
    statements = statements_of(nest, shape_vars)
    statements, copied = forward_copies(statements, {*local} - aliased, shape_vars, nest.views)
    local = [buffer for buffer in local if buffer not in copied]
    steps = schedule(statements, shape_vars, nest.views)
    steps = fold_initial(steps, shape_vars, nest.views)
    own_memory = {*local} - aliased
    reshaped = reshaped_parameters(steps, buffers, own_memory, nest.views)
    steps = tuple(reshapes_first(steps, reshaped))
    fixed = {*aliased, *reshaped}
    shared = shared_memory(steps, local, fixed)
    private = [b for b in local if b not in shared and b not in fixed]
    searches = searches_of(steps, shared, nest.views)
    unused = unused_extremes(steps, searches, private)
    fast = {*searches, *unused.values()}
    steps = block_rows(steps, private, shared, fixed, shape_vars, fast)
    per_block = {b for step in steps if isinstance(step, Blocked) for b in step.local}
    allocated = tuple(
        b for b in local if b not in per_block and b not in unused and b not in reshaped
    )
    return Plan(
        func,
        name,
        nest,
        sequential,
        shape_vars,
        steps,
        allocated,
        shared,
        nest.views,
        reshaped,
        searches,
        unused,
        frozenset(copied),
    )


def _not_negative(size: PrimExpr) -> Iterable[Var]:
    """The variable of `size`, a dimension of an array, if it is a multiple of a variable."""
    match list(as_poly(size).terms.items()):
        case [((Var() as var,), factor)] if factor > 0:
            return (var,)
        case _:
            return ()
