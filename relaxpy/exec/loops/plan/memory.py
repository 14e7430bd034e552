"""Memory planning: buffers that reuse the memory of others, and noalias requirements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence, Set

from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Plan, Run, Tree, accesses, runs, written_memory
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import children
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import BinaryOpExpr, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions


def shared_memory(
    trees: Sequence[Tree], local: Sequence[Buffer], fixed: Container[Buffer]
) -> Mapping[Buffer, Buffer]:
    """The buffers of `local` that reuse the memory of another buffer, mapped to that buffer.

    A buffer can use the memory of the target of its last use, if that is an elementwise store which
    begins the live range of the target. Buffers in `fixed` keep their memory, and so do those that
    declare strides, as their layout differs.

    Rule:
        The live ranges of the buffers that use one memory only overlap in the store that reads one
        for the last time and stores the next, and no store does so for two buffers.
    """
    owners: dict[Buffer, Buffer] = {}
    reusing: set[int] = set()
    uses: dict[Buffer, list[int]] = {}
    for number, tree in enumerate(trees):
        for buffer in {a.buffer for a in accesses(tree)}:
            uses.setdefault(buffer, []).append(number)
    for buffer in reversed(local):
        live = uses.get(buffer, [])
        if len(live) < 2 or buffer in fixed or live[-1] in reusing:
            continue
        last = trees[live[-1]]
        if not isinstance(last, Run) or (store := last.store) is None or store.guards:
            continue
        target = store.target
        if target in fixed or uses[target][0] != live[-1]:
            continue
        if target.strides or buffer.strides:
            continue
        if _same_layout(buffer, target) and _overwrites_in_place(store, last.axes, buffer):
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


def _overwrites_in_place(store: Assignment, axes: Sequence[Axis], buffer: Buffer) -> bool:
    """True if each element of `buffer` is only read for the same element of the target."""
    reads = [r for r in store.reads if r.buffer is buffer]
    if any(r.buffer is store.target for r in store.reads):
        return False
    aligned = all(x is y for r in reads for x, y in zip(r.indices, store.indices, strict=True))
    return aligned and _covers(store, axes)


def _covers(store: Assignment, axes: Sequence[Axis]) -> bool:
    """True if `store`, which has no guards, stores to every element of its target.

    Its iterations store to different elements, so their number decides.
    """
    sizes = [as_poly(size) for size in store.target.shape]
    uncovered = [size for size in sizes if not size.same(1)]
    for axis in axes:
        covered = next((size for size in uncovered if size.same(axis.extent)), None)
        if covered is None:
            return False
        uncovered.remove(covered)
    return not uncovered


def exclusions(plan: Plan) -> Iterator[tuple[Buffer, tuple[Buffer, ...], int]]:
    """The noalias requirements: each written argument, the others, and a count.

    The last `count` of the others may be the identical array.
    """
    buffers = [*plan.func.buffer_map.values(), *plan.nest.pointers.values()]
    members = list(runs(plan.trees))
    users: dict[Buffer, dict[int, Run]] = {}
    for number, run in enumerate(members):
        for access in accesses(run):
            users.setdefault(plan.views.get(access.buffer, access.buffer), {})[number] = run
    written = written_memory(plan.trees, lambda b: plan.views.get(b, b))
    earlier: set[Buffer] = set()
    for target in (b for b in buffers if b in written):
        earlier.add(target)
        others = [b for b in buffers if b in users and b not in earlier]
        allowed = _in_place_candidates(plan, users, target)
        same = [b for b in others if b in allowed]
        differ = [b for b in others if b not in same]
        yield target, (*differ, *same), len(same)


def _in_place_candidates(
    plan: Plan, users: Mapping[Buffer, Mapping[int, Run]], target: Buffer
) -> Container[Buffer]:
    """The buffers that may be the array `target` itself: one store uses both, elementwise."""
    if len(users[target]) != 1:
        return ()
    [(number, run)] = users[target].items()
    statement = run.store
    if statement is None or target in plan.shared.values():
        return ()
    if statement.target is not target:
        return ()
    return {b for b in operands_in_place(statement) if users.get(b, {}).keys() == {number}}


def operands_in_place(store: Assignment) -> Iterator[Buffer]:
    """The buffers that may be the target itself: its first operation alone reads the same element.

    Operations write the target one after the other.
    """
    if store.guards or any(r.buffer is store.target or None in r.maps for r in store.reads):
        return
    times = Counter(load.buffer for load in loads(store.value))
    for load in _first_operands(store.value, {axis.var for axis in store.axes}):
        aligned = all(x is y for x, y in zip(load.indices, store.indices, strict=False))
        if times[load.buffer] == 1 and aligned and _same_layout(store.target, load.buffer):
            yield load.buffer


def _first_operands(value: PrimExpr, axes: Set[Var]) -> set[BufferLoad]:
    """The loads that are operands of the first operation along `axes`, and of no later one.

    Of two operands that are operations, the left one is computed first.
    """
    if isinstance(value, BufferLoad):
        return {value}
    later: set[BufferLoad] = set()
    while True:
        operands = {c for c in children(value) if isinstance(c, PrimExpr)}
        direct = {c for c in operands if isinstance(c, BufferLoad)}
        nodes = operands.difference(direct)
        operations = [c for c in nodes if mentions(c, axes) and not isinstance(c, Var)]
        if not operations:
            return direct - later
        if len(operations) == 1:
            later |= direct
            [value] = operations
        elif isinstance(value, BinaryOpExpr) and value.a in operations:
            later.update(loads(value.b))
            value = value.a
        else:
            return set()


def reads_sizes_only(plan: Plan) -> bool:
    """True if no strides or offsets are read, and no scalars but 64-bit integers.

    Sizes have 32 bits at least.
    """
    func = plan.func
    buffers = [buffer for buffer in map(func.buffer_of, func.params) if buffer is not None]
    sizes = {size for buffer in buffers for size in buffer.shape if isinstance(size, Var)}
    return (
        not any(map(_has_layout, buffers))
        and all(scalar.dtype == INT64 for scalar in scalars_of(plan))
        and all(size.dtype.bits >= 32 for size in sizes.difference(func.params))
    )


def scalars_of(plan: Plan) -> list[Var]:
    """The scalar parameters; a handle without a buffer may be any object."""
    func, pointers = plan.func, plan.nest.pointers
    others = (param for param in func.params if func.buffer_of(param) is None)
    return [p for p in others if p not in pointers and p.dtype.family != "handle"]


def _has_layout(buffer: Buffer) -> bool:
    """True if `buffer` declares strides or an offset."""
    return bool(buffer.strides) or getattr(buffer.elem_offset, "value", None) != 0
