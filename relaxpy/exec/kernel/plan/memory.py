"""Which buffers reuse the memory of others, and which arguments must not overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

from relaxpy.exec.kernel.nest.nodes import loads
from relaxpy.exec.kernel.plan.statements import Access
from relaxpy.exec.kernel.plan.steps import Map, Plan, Step, accesses, flatten_steps
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.traverse import children
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import ConstExpr, PrimExpr, Var


def shared_memory(
    steps: Sequence[Step], local: Sequence[Buffer], fixed: Container[Buffer]
) -> Mapping[Buffer, Buffer]:
    """The buffers of `local` that use the memory of another buffer, and that buffer for each.

    A buffer can use the memory of the target of its last use, if that is an elementwise step which
    begins the live range of the target. Buffers in `fixed` keep their memory.

    Rule:
        The live ranges of the buffers that use one memory only overlap in the step that reads one
        for the last time and stores the next, and no step does so for two buffers.
    """
    owners: dict[Buffer, Buffer] = {}
    reusing: set[int] = set()
    uses: dict[Buffer, list[int]] = {}
    for number, step in enumerate(steps):
        for buffer in {a.buffer for a in accesses(step)}:
            uses.setdefault(buffer, []).append(number)
    for buffer in reversed(local):
        live = uses.get(buffer, [])
        if len(live) < 2 or buffer in fixed or live[-1] in reusing:
            continue
        last = steps[live[-1]]
        if not isinstance(last, Map) or last.statement.guards:
            continue
        target = last.statement.target
        if target in fixed or uses[target][0] != live[-1]:
            continue
        if _same_layout(buffer, target) and _overwrites_in_place(last, buffer):
            reusing.add(live[-1])
            # Buffers that use the memory of this one move with it.
            moved = [buffer, *(b for b, memory in owners.items() if memory is buffer)]
            owners |= dict.fromkeys(moved, owners.get(target, target))
    return owners


def _same_layout(a: Buffer, b: Buffer) -> bool:
    if a.dtype != b.dtype or a.ndim != b.ndim:
        return False
    pairs = zip(a.shape, b.shape, strict=True)
    return all(as_poly(x).same(as_poly(y)) for x, y in pairs)


def _overwrites_in_place(step: Map, buffer: Buffer) -> bool:
    """Whether each element of `buffer` is only read for the same element of the target."""
    statement = step.statement
    reads = [r for r in statement.reads if r.buffer is buffer]
    if any(r.buffer is statement.target for r in statement.reads):
        return False
    aligned = all(x is y for r in reads for x, y in zip(r.indices, statement.indices, strict=True))
    return aligned and _covers(step)


def _covers(step: Map) -> bool:
    """Whether `step`, which has no guards, stores to every element of its target.

    Its iterations store to different elements, so it does if there are as many of them.
    """
    sizes = [as_poly(size) for size in step.statement.target.shape]
    uncovered = [size for size in sizes if not size.same(1)]
    for axis in step.axes:
        covered = next((size for size in uncovered if size.same(axis.extent)), None)
        if covered is None:
            return False
        uncovered.remove(covered)
    return not uncovered


def exclusions(plan: Plan) -> Iterator[tuple[Buffer, tuple[Buffer, ...], int]]:
    """For each argument that is written: the others that must not overlap it, and a count.

    So many of them, at the end, may be the identical array.
    """
    buffers = [*plan.func.buffer_map.values(), *plan.nest.pointers.values()]
    steps = list(flatten_steps(plan.steps))
    users: dict[Buffer, dict[int, Step]] = {}
    for number, step in enumerate(steps):
        for access in accesses(step):
            users.setdefault(_root(plan, access), {})[number] = step
    written = {_root(plan, w) for step in steps for w in step.statement.writes}
    earlier: set[Buffer] = set()
    for target in (b for b in buffers if b in written):
        earlier.add(target)
        others = [b for b in buffers if b in users and b not in earlier]
        allowed = _in_place_candidates(plan, users, target)
        same = [b for b in others if b in allowed]
        differ = [b for b in others if b not in same]
        yield target, (*differ, *same), len(same)


def _root(plan: Plan, access: Access) -> Buffer:
    return plan.views.get(access.buffer, access.buffer)


def _in_place_candidates(
    plan: Plan, users: Mapping[Buffer, Mapping[int, Step]], target: Buffer
) -> Container[Buffer]:
    """The buffers that may be the array `target` itself: one step uses both, elementwise."""
    if len(users[target]) != 1:
        return ()
    [(number, step)] = users[target].items()
    if not isinstance(step, Map) or target in plan.shared.values():
        return ()
    statement = step.statement
    if statement.target is not target or statement.guards:
        return ()
    if any(read.buffer is target or None in read.maps for read in statement.reads):
        return ()
    times = Counter(load.buffer for load in loads(statement.value))
    return {
        load.buffer
        for load in _first_operands(statement.value)
        if times[load.buffer] == 1
        and users.get(load.buffer, {}).keys() == {number}
        and _same_layout(target, load.buffer)
        and all(x is y for x, y in zip(load.indices, statement.indices, strict=True))
    }


def _first_operands(value: PrimExpr) -> set[BufferLoad]:
    """The loads that are operands of the first operation and of no later one."""
    if isinstance(value, BufferLoad):
        return {value}
    later: set[BufferLoad] = set()
    while True:
        operands = {c for c in children(value) if isinstance(c, PrimExpr)}
        operations = [c for c in operands if not isinstance(c, (BufferLoad, Var, ConstExpr))]
        direct = {c for c in operands if isinstance(c, BufferLoad)}
        if not operations:
            return direct - later
        if len(operations) > 1:
            return set()
        later |= direct
        [value] = operations
