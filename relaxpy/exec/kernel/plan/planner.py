"""From a PrimFunc to its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from relaxpy.exec.kernel.nest.intrinsics import check_datatypes, with_float_intrinsics
from relaxpy.exec.kernel.nest.nodes import Nest
from relaxpy.exec.kernel.nest.read import read
from relaxpy.exec.kernel.plan.copies import forward_copies, reshaped_parameters, reshapes_first
from relaxpy.exec.kernel.plan.expansion import expand_locals, fill_tables_first
from relaxpy.exec.kernel.plan.initialisation import fold_initial, with_initialisation
from relaxpy.exec.kernel.plan.loops import normalise_loops
from relaxpy.exec.kernel.plan.memory import shared_memory
from relaxpy.exec.kernel.plan.schedule import schedule
from relaxpy.exec.kernel.plan.statements import statements_of
from relaxpy.exec.kernel.plan.tree import Plan, accesses, runs
from relaxpy.exec.runtime.scalar import with_checked_counts
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.rewrite.inline import inline_shared


def nest_of(func: PrimFunc, name: str) -> tuple[PrimFunc, Nest, frozenset[Var]]:
    """`func` with supported intrinsics, its nest, and the variables of its dimensions.

    Errors:
        CompileError: a statement has no meaning outside special hardware, or a datatype does not
            fit.
    """
    check_datatypes(func, name)
    func = with_checked_counts(with_float_intrinsics(inline_shared(func)))
    buffers = func.buffer_map.values()
    shape_vars = frozenset(v for b in buffers for size in b.shape for v in _not_negative(size))
    return func, read(func, shape_vars), shape_vars


def make_plan(func: PrimFunc, name: str) -> Plan:
    """The plan of `func`.

    Errors:
        CompileError: as for `nest_of`.
    """
    func, nest, shape_vars = nest_of(func, name)
    buffers = list(func.buffer_map.values())
    nest = fill_tables_first(nest)
    nest = with_initialisation(expand_locals(nest, buffers), shape_vars)
    nest = normalise_loops(nest, shape_vars)
    aliased = {*nest.views, *nest.views.values()}
    local = [entry.buffer for entry in nest.local]
    statements = statements_of(nest, shape_vars)
    statements, copied = forward_copies(statements, {*local} - aliased, shape_vars, nest.views)
    local = [buffer for buffer in local if buffer not in copied]
    trees = schedule(statements, shape_vars, nest.views)
    trees = fold_initial(trees, shape_vars, nest.views)
    own_memory = {*local} - aliased
    reshaped = reshaped_parameters(trees, buffers, own_memory, nest.views, shape_vars)
    first = reshapes_first(trees, reshaped)
    shared = shared_memory(first, local, {*aliased, *reshaped})
    return Plan(
        func,
        name,
        nest,
        shape_vars,
        tuple(first),
        tuple(local),
        shared,
        nest.views,
        reshaped,
        frozenset(copied),
        Counter(b for run in runs(first) for b in {a.buffer for a in accesses(run)}),
    )


def _not_negative(size: PrimExpr) -> Iterable[Var]:
    """The variable of `size`, a dimension of an array, if that is a multiple of a variable."""
    match list(as_poly(size).terms.items()):
        case [((Var() as var,), factor)] if factor > 0:
            return (var,)
        case _:
            return ()
