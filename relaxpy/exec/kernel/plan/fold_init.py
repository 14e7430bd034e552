"""Folds stores of initial values into the accumulations that start from them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from relaxpy.exec.kernel.nest.bounds import unproved
from relaxpy.exec.kernel.nest.nodes import loads
from relaxpy.exec.kernel.plan.alignment import aligned_axes
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import For, Run, Tree, accesses, written_memory
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import replace


def fold_initial(
    trees: Sequence[Tree],
    shape_vars: Container[Var],
    roots: Mapping[Buffer, Buffer],
    serial: tuple[Var, ...] = (),
) -> tuple[Tree, ...]:
    """`trees` with each store of an initial value folded into its accumulation.

    `roots` maps buffers to the owners of their memory, and `serial` are the enclosing loops.
    """
    result: list[Tree] = []
    for tree in trees:
        match tree:
            case For(axis=axis, body=body):
                inner = fold_initial(body, shape_vars, roots, (*serial, axis.var))
                tree = replace(tree, body=inner)
            case Run(accumulation=Assignment() as update) if _initialises_all(
                tree, update, shape_vars, roots
            ):
                init = _initial(result, tree, update, roots, serial)
                if init is not None:
                    position, value = init
                    update = replace(update, initial=value)
                    tree = replace(tree, statements=(update,))
                    del result[position]
            case _:
                pass
        result.append(tree)
    return tuple(result)


def _initialises_all(
    run: Run, update: Assignment, shape_vars: Container[Var], roots: Mapping[Buffer, Buffer]
) -> bool:
    """True if an accumulation initialises all elements, also those for which no guard holds.

    Elements of a view, or at unproved indices, may be out of bounds.
    """
    variables = {a.var for a in run.loops}
    return not update.guards or (
        all(mentions(guard, variables) for guard in update.guards)
        and update.target not in roots
        and not unproved(update.target, update.indices, run.loops, shape_vars)
    )


def _initial(
    trees: Sequence[Tree],
    run: Run,
    update: Assignment,
    roots: Mapping[Buffer, Buffer],
    serial: tuple[Var, ...],
) -> tuple[int, PrimExpr] | None:
    """The position in `trees` of the store of the initial value of `update`, and this value."""
    target = update.target
    memory = roots.get(target, target)
    operands = (update.value, *update.guards, *update.indices)
    if any(roots.get(load.buffer, load.buffer) is memory for e in operands for load in loads(e)):
        return None  # it may read an initial value, which may only be in a register
    for position, before in reversed([*enumerate(trees)]):
        if all(roots.get(a.buffer, a.buffer) is not memory for a in accesses(before)):
            continue
        match before:
            case Run(statement=Assignment() as store, over=(), ordered=()):
                pass
            case _:
                return None
        if store.target is not target or store.guards:
            return None
        if not _same_iterations(store, update, serial):
            return None
        renamed = aligned_axes(store.indices, before.axes, update.indices, run.axes)
        written = {memory, *written_memory(trees[position + 1 :], lambda b: roots.get(b, b))}
        read = {roots.get(load.buffer, load.buffer) for load in loads(store.value)}
        if renamed is None or not read.isdisjoint(written):
            return None
        return position, substitute(store.value, renamed)
    return None


def _same_iterations(store: Assignment, update: Assignment, serial: Container[Var]) -> bool:
    """True if both run in the same iterations of the enclosing loops `serial`."""
    axes = {axis.var: axis for axis in update.axes}
    return all(axis.has_bounds_of(axes[axis.var]) for axis in store.axes if axis.var in serial)
