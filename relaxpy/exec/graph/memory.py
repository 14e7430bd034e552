"""Plans the memory of a region: which tensors are results, and where the others are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from relaxpy.dataclass import dataclass
from relaxpy.exec.graph.program import Memory, Region, Tensor
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly

ALIGNMENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """Where the tensors of a region are.

    Fields:
        direct: the memory that is that of a result, with the position of the result.
        copied: the results whose elements are copied at the end, from the memory of a tensor.
        offsets: the positions in the workspace of memory with a fixed size.
        slots: the number of the slot of other memory.
        slot_sizes: each slot is as large as the largest of these.
        fixed: the size of the workspace without slots.
    Units:
        bytes
    """

    direct: Mapping[Memory, int]
    copied: Sequence[tuple[int, Tensor]]
    offsets: Mapping[Memory, int]
    slots: Mapping[Memory, int]
    slot_sizes: Sequence[Sequence[IndexPoly]]
    fixed: int


@dataclass(frozen=True, slots=True, eq=False)
class _Lifetime:
    memory: Memory
    size: IndexPoly
    first: int
    last: int


def plan_memory(region: Region) -> MemoryPlan:
    """The plan of the memory; new tensors share it if they are not needed at the same time."""
    direct: dict[Memory, int] = {}
    copied: list[tuple[int, Tensor]] = []
    new = {tensor.memory for tensor in region.new_tensors()}
    for index, tensor in enumerate(region.results):
        if tensor.memory in new and tensor.memory not in direct:
            direct[tensor.memory] = index
        else:
            copied.append((index, tensor))
    lifetimes = _lifetimes(region, direct)
    fixed = [each for each in lifetimes if each.size.constant is not None]
    offsets, total = _packed(fixed)
    slots, slot_sizes = _slots([each for each in lifetimes if each.size.constant is None])
    return MemoryPlan(direct, copied, offsets, slots, slot_sizes, total)


def byte_count(tensor: Tensor) -> IndexPoly:
    """The size of a tensor in bytes."""
    return prod((as_poly(dim) for dim in tensor.shape), start=as_poly(tensor.itemsize))


def _lifetimes(region: Region, direct: Mapping[Memory, int]) -> list[_Lifetime]:
    """The first and the last step that uses the memory of each tensor that is not a result."""
    last: dict[Memory, int] = {}
    for index, step in enumerate(region.steps):
        last.update((tensor.memory, index) for tensor in step.reads())
    return [
        _Lifetime(tensor.memory, byte_count(tensor), index, last[tensor.memory])
        for index, step in enumerate(region.steps)
        for tensor in step.outputs
        if tensor.memory not in direct
    ]


def _packed(lifetimes: Sequence[_Lifetime]) -> tuple[dict[Memory, int], int]:
    """The lowest free position for each, the largest first; and the total size."""
    placed: list[tuple[int, int, _Lifetime]] = []
    total = 0
    for each in sorted(lifetimes, key=lambda each: -(each.size.constant or 0)):
        size = _aligned(each.size.constant or 0)
        position = 0
        for start, stop, other in sorted(placed, key=lambda entry: entry[0]):
            if other.last < each.first or each.last < other.first:
                continue
            if position + size <= start:
                break
            position = max(position, stop)
        placed.append((position, position + size, each))
        total = max(total, position + size)
    return {each.memory: start for start, _, each in placed}, total


def _slots(lifetimes: Sequence[_Lifetime]) -> tuple[dict[Memory, int], list[list[IndexPoly]]]:
    """A slot for each, if possible a free one for the same size; and the sizes of the slots."""
    slots: dict[Memory, int] = {}
    sizes: list[list[IndexPoly]] = []
    busy_until: list[int] = []
    for each in lifetimes:
        free = [n for n, last in enumerate(busy_until) if last < each.first]
        same = [n for n in free if any(each.size.same(size) for size in sizes[n])]
        if not free:
            sizes.append([])
            busy_until.append(0)
        slot = (same or free or [len(sizes) - 1])[0]
        if slot not in same:
            sizes[slot].append(each.size)
        slots[each.memory], busy_until[slot] = slot, each.last
    return slots, sizes


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
