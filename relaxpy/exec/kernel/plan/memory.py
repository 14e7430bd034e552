"""Which buffers may use another's memory, and which arguments must not overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

from relaxpy.exec.kernel.nest.nodes import loads
from relaxpy.exec.kernel.plan.parts import Access
from relaxpy.exec.kernel.plan.steps import Map, Plan, Step, accesses, flat, parts_in
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.traverse import children
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import ConstExpr, PrimExpr, Var


def shared_memory(
    steps: Sequence[Step], local: Sequence[Buffer], fixed: Container[Buffer]
) -> Mapping[Buffer, Buffer]:
    """For each of `local` that can have it, the buffer whose memory it uses from the start.

    That is the target of the elementwise step in which it is read last, if nothing touches that
    target before. Buffers in `fixed` keep their own memory.

    Rule:
        Of buffers that use one memory each is read last where the next is first stored, so that no
        two are needed at once, unless a step receives two.
    """
    owners: dict[Buffer, Buffer] = {}
    receiving: set[int] = set()
    touched: dict[Buffer, list[int]] = {}
    for number, step in enumerate(steps):
        for buffer in {a.buffer for a in accesses(step)}:
            touched.setdefault(buffer, []).append(number)
    for buffer in reversed(local):
        uses = touched.get(buffer, [])
        if len(uses) < 2 or buffer in fixed or uses[-1] in receiving:
            continue
        last = steps[uses[-1]]
        if not isinstance(last, Map) or last.statement.guards:
            continue
        target = last.statement.target
        if target in fixed or touched[target][0] != uses[-1]:
            continue
        if _alike(buffer, target) and _replaces(last, buffer):
            receiving.add(uses[-1])
            # What uses the buffer's memory moves along.
            moving = [buffer, *(b for b, memory in owners.items() if memory is buffer)]
            owners |= dict.fromkeys(moving, owners.get(target, target))
    return owners


def _alike(a: Buffer, b: Buffer) -> bool:
    if a.dtype != b.dtype or a.ndim != b.ndim:
        return False
    pairs = zip(a.shape, b.shape, strict=True)
    return all(as_poly(x).same(as_poly(y)) for x, y in pairs)


def _replaces(step: Map, buffer: Buffer) -> bool:
    """Whether each element of the target replaces the same element of `buffer`, and all do."""
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
    left = [size for size in sizes if not size.same(1)]
    for axis in step.axes:
        extent = as_poly(axis.stop) - as_poly(axis.start)
        of_axis = next((size for size in left if size.same(extent)), None)
        if of_axis is None:
            return False
        left.remove(of_axis)
    return not left


def exclusions(plan: Plan) -> Iterator[tuple[Buffer, tuple[Buffer, ...], int]]:
    """For each argument that is written: others that must not overlap it for the plan to hold.

    Of these the last so many may be the very same array.
    """
    buffers = [*plan.func.buffer_map.values(), *plan.nest.pointers.values()]
    steps = list(flat(plan.steps))
    users: dict[Buffer, dict[int, Step]] = {}
    for number, step in enumerate(steps):
        for found in accesses(step):
            users.setdefault(_root(plan, found), {})[number] = step
    written = {_root(plan, w) for step in steps for p in parts_in(step) for w in p.writes}
    done: set[Buffer] = set()
    for target in (b for b in buffers if b in written):
        done.add(target)
        others = [b for b in buffers if b in users and b not in done]
        allowed = _interchangeable(plan, users, target)
        same = [b for b in others if b in allowed]
        differ = [b for b in others if b not in same]
        yield target, (*differ, *same), len(same)


def _root(plan: Plan, access: Access) -> Buffer:
    return plan.views.get(access.buffer, access.buffer)


def _interchangeable(
    plan: Plan, users: Mapping[Buffer, Mapping[int, Step]], target: Buffer
) -> Container[Buffer]:
    """Buffers that may be the array `target` itself: one step meets both, element by element."""
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
        for load in _read_first(statement.value)
        if times[load.buffer] == 1
        and users.get(load.buffer, {}).keys() == {number}
        and _alike(target, load.buffer)
        and all(x is y for x, y in zip(load.indices, statement.indices, strict=True))
    }


def _read_first(value: PrimExpr) -> set[BufferLoad]:
    """What the first operation that is performed reads, and no later one."""
    if isinstance(value, BufferLoad):
        return {value}
    later: set[BufferLoad] = set()
    while True:
        parts = {c for c in children(value) if isinstance(c, PrimExpr)}
        inner = [c for c in parts if not isinstance(c, (BufferLoad, Var, ConstExpr))]
        found = {c for c in parts if isinstance(c, BufferLoad)}
        if not inner:
            break
        if len(inner) > 1:
            return set()
        later |= found
        [value] = inner
    return found - later
