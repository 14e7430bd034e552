"""The first elements in order along an axis, as loops that keep the best so far in a heap."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as folded
from typing import Any

from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.loops import Loops
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.windows import number
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.stmt import Stmt

KEY_BITS = 32
"""The bits of the widest elements that can be selected."""
_GROUP = 8
"""The elements whose best one is compared with the worst that was selected so far."""
_LOW = (1 << KEY_BITS) - 1


def selected(data: Tensor, count: PrimExpr, axis: int, *, largest: bool, dtype: str) -> Any:
    """The first `count` elements in order along an axis, and their indices in `dtype`.

    NaN is greater than all numbers, and equal elements keep their order. Elements have at most
    `KEY_BITS` bits, there are at least `count` of them, and their indices have as many bits.
    """
    rest = [size for k, size in enumerate(data.shape) if k != axis]
    shape = (*rest[:axis], count, *rest[axis:])
    size, best = data.shape[axis], _best_of_groups(data, axis, largest=largest)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        loops, (values, indices) = Loops(), outs
        heap = _Heap(loops, count)
        with loops.every(rest) as place:

            def at(k: Any) -> tuple[Any, ...]:
                return (*place[:axis], k, *place[axis:])

            heap.clear()

            def offer(k: PrimExpr) -> None:
                high = ops.cast_to(_key(BufferLoad(ins[0], at(k)), largest=largest), "int64")
                heap.offer(intrin.shift_left(high, KEY_BITS) + (number(_LOW) - k))

            groups = _groups(size)
            with loops.loop(groups, name="group") as group:
                worst = intrin.shift_right(heap.keys[0], KEY_BITS)
                candidate = ops.cast_to(BufferLoad(ins[1], at(group)), "int64")
                with (
                    loops.when(ops.compare(tir.GE, candidate, worst)),
                    loops.loop(number(_GROUP), name="member") as member,
                ):
                    offer(group + member * groups)
            whole = groups * number(_GROUP)
            with loops.loop(size - whole, whole, name="rest") as k:
                offer(k)
            heap.sort()
            with loops.loop(count, name="k") as k:
                index = number(_LOW) - intrin.bitwise_and(heap.keys[k], number(_LOW))
                loops.store(indices, at(k), index)
                loops.store(values, at(k), BufferLoad(ins[0], at(index)))
        return loops.body()

    kinds = [str(data.dtype), dtype]
    return te.extern([shape, shape], [data, best], body, "topk", kinds)


def _key(value: PrimExpr, *, largest: bool) -> PrimExpr:
    """An integer of 32 bits that is greater for a better element, and equal for an equal one."""
    if value.dtype.is_float:
        key = _float_key(ops.cast_to(value, "float32"))
    elif str(value.dtype) == "uint32":
        key = ops.cast_to(ops.cast_to(value, "int64") - number(1 << KEY_BITS - 1), "int32")
    else:
        key = ops.cast_to(value, "int32")
    return key if largest else intrin.bitwise_not(key)


def _float_key(value: PrimExpr) -> PrimExpr:
    """The bits of a float, of which all but the sign are inverted if it is set."""
    most = ops.const((1 << KEY_BITS - 1) - 1, "int32")
    bits = intrin.reinterpret("int32", value + ops.const(0.0, "float32"))  # -0 is 0
    inverted = intrin.bitwise_and(intrin.shift_right(bits, KEY_BITS - 1), most)
    return tir.Select(intrin.isnan(value), most, intrin.bitwise_xor(bits, inverted))


def _best_of_groups(data: Tensor, axis: int, *, largest: bool) -> Tensor:
    """The key of the best element of each group; those of a group are a number of groups apart."""
    shape = list(data.shape)
    shape[axis] = groups = _groups(data.shape[axis])

    def element(*index: PrimExpr) -> PrimExpr:
        members = (
            data(*index[:axis], index[axis] + groups * number(k), *index[axis + 1 :])
            for k in range(_GROUP)
        )
        return folded(ops.maximum, (_key(member, largest=largest) for member in members))

    return computed(shape, element, "best_of_groups")


def _groups(size: PrimExpr) -> PrimExpr:
    return ops.floordiv(size, number(_GROUP))


class _Heap:
    """The greatest keys so far, of which the least one is the first."""

    def __init__(self, loops: Loops, count: PrimExpr) -> None:
        self._loops, self._count = loops, count
        self.keys = loops.array([count], "int64", "heap")
        self._hole, self._child = (loops.array([1], "int64", name) for name in ("hole", "child"))

    def clear(self) -> None:
        """Fill the heap with keys that are less than any other."""
        with self._loops.loop(self._count, name="k") as k:
            self._loops.store(self.keys, k, intrin.min_value("int64"))

    def offer(self, key: PrimExpr) -> None:
        """Put a key in place of the least one, if it is greater."""
        with self._loops.when(ops.compare(tir.GT, key, self.keys[0])):
            self._sink(self._count, key)

    def sort(self) -> None:
        """Put the keys in order, the greatest one first."""
        with self._loops.loop(self._count - 1, name="k") as k:
            last = self._count - 1 - k
            key = self._loops.local(self.keys[last], name="key")
            self._loops.store(self.keys, last, self.keys[0])
            self._sink(last, key[0])

    def _sink(self, count: PrimExpr, key: PrimExpr) -> None:
        """Put a key in place of the first one of so many, and let it sink to its position."""
        loops, keys, one = self._loops, self.keys, number(1)
        hole, child = self._hole, self._child
        loops.store(hole, 0, number(0))
        loops.store(child, 0, one)
        with loops.repeat(ops.compare(tir.LT, child[0], count)):
            left, right = child[0], ops.minimum(child[0] + one, count - one)
            is_right = ops.compare(tir.LT, keys[right], keys[left])
            loops.store(child, 0, tir.Select(is_right, right, left))
            with loops.when(ops.compare(tir.LT, keys[child[0]], key)):
                loops.store(keys, hole[0], keys[child[0]])
                loops.store(hole, 0, child[0])
                loops.store(child, 0, child[0] * number(2) + one)
            with loops.otherwise():
                loops.store(child, 0, count)
        loops.store(keys, hole[0], key)
