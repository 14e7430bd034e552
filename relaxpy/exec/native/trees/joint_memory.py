"""Leaves out copies from a local buffer to one of another shape, which gets the same memory."""

from __future__ import annotations

from relaxpy.dataclass import replace
from relaxpy.exec.kernel.plan.tree import Plan, Tree, accesses
from relaxpy.exec.native.trees.program import KernelProgram
from relaxpy.exec.native.trees.reshapes import copied
from relaxpy.ir.tir.buffer import Buffer


def without_copies(program: KernelProgram) -> KernelProgram:
    """`program` with one memory for local buffers in place of copies between them.

    Runs are joined before, since they take less time with a copy among them than apart. Nothing
    uses the source of a copy after it, nor its target before.
    """
    plan = program.plan
    local = {*plan.local} - program.elided - {load.buffer for load in program.rows.values()}
    shared, trees = dict(plan.shared), list[Tree]()
    uses: dict[Buffer, list[int]] | None = None
    for tree in program.trees:
        found = copied(tree)
        if found is None or not local.issuperset(found):
            trees.append(tree)
            continue
        target, source = found
        uses = _uses(plan) if uses is None else uses
        owner = shared.get(target, target)
        if owner in local and source not in shared and uses[source][-1] == uses[target][0]:
            moved = [source, *(b for b, other in shared.items() if other is source)]
            shared |= dict.fromkeys(moved, owner)
        else:
            trees.append(tree)
    if len(trees) == len(program.trees):
        return program
    return replace(program, plan=replace(plan, shared=shared), trees=tuple(trees))


def _uses(plan: Plan) -> dict[Buffer, list[int]]:
    """The numbers of the trees that access each buffer."""
    uses: dict[Buffer, list[int]] = {}
    for number, tree in enumerate(plan.trees):
        for buffer in {a.buffer for a in accesses(tree)}:
            uses.setdefault(buffer, []).append(number)
    return uses
