"""Elides copies that only reshape: both buffers alias."""

from __future__ import annotations

from relaxpy.exec.kernel.plan.reshapes import is_reshape
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Plan, Run, Tree, written_memory
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.support.dataclass import replace


def without_reshapes(plan: Plan) -> Plan:
    """`plan` with reshaping copies of parameters replaced by aliases of their memory.

    A parameter that is copied into a local buffer is not written. One that is copied from a local
    buffer has no other use, so that it may hold earlier values of the buffer; the buffer is not
    written after the copy.
    """
    parameters = {*plan.func.buffer_map.values()}
    shared, trees = dict(plan.shared), list[Tree]()
    last_writes: dict[Buffer, int] | None = None
    # The counts of uses stay, by which a parameter with a second shape has more than one.
    for number, tree in enumerate(plan.trees):
        found = _copied(tree)
        if found is None:
            trees.append(tree)
            continue
        target, source = found
        last_writes = _last_writes(plan) if last_writes is None else last_writes
        if plan.reshaped.get(target) is source:
            shared[target] = source
        elif (
            target in parameters
            and source in plan.local
            and source not in shared
            and target not in shared.values()
            and plan.uses[target] == 1
            and last_writes.get(source, -1) < number
        ):
            moved = [source, *(b for b, owner in shared.items() if owner is source)]
            shared |= dict.fromkeys(moved, target)
        else:
            trees.append(tree)
    if len(trees) == len(plan.trees):
        return plan
    return replace(plan, trees=tuple(trees), shared=shared)


def _last_writes(plan: Plan) -> dict[Buffer, int]:
    """The number of the last tree that writes each memory."""
    return {b: n for n, tree in enumerate(plan.trees) for b in written_memory((tree,), plan.root)}


def _copied(tree: Tree) -> tuple[Buffer, Buffer] | None:
    """The target and the source of a copy of all elements in row-major order, also of memory."""
    match tree:
        case Run(
            statements=[Assignment(combine=None, value=BufferLoad() as load) as store],
            after=(),
            tests=(),
        ) if is_reshape(tree.axes, store, load):
            pair = store.target, load.buffer
            return None if any(b.strides for b in pair) else pair
        case _:
            return None
