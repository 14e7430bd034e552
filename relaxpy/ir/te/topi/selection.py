"""Top-k along an axis: elements are selected one after the other, from groups with the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from relaxpy.ir.te.loops import Loops, written
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.windows import number
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import dataclass

Index: TypeAlias = tuple[PrimExpr, ...]
#: The element of a row at a position.
Element: TypeAlias = Callable[[Index, PrimExpr], PrimExpr]

_GAIN = 3
"""The minimum factor by which groups reduce the elements to compare, where they are used."""


def selected(data: Tensor, count: int, axis: int, *, largest: bool, dtype: str) -> Any:
    """The first `count` elements in order along an axis, and their indices in `dtype`.

    NaN is greater than all numbers, and equal elements keep their order. There are at least `count`
    elements, and it is known how many.
    """
    sizes = list(data.shape)
    length = sizes.pop(axis)
    assert isinstance(length, IntImm)
    size = length.value
    kind = "int64" if data.dtype.bits > 32 else "int32"
    groups = 1 << round(math.log2(count * size) / 2)
    is_long = size >= _GAIN * (groups + size // groups * count + size % groups)

    def at(row: Index, k: PrimExpr) -> Index:
        return (*row[:axis], k, *row[axis:])

    def write(loops: Loops, data: Buffer, values: Buffer, indices: Buffer) -> None:
        rows = _Rows(loops, sizes, kind, count)

        def key(row: Index, k: PrimExpr) -> PrimExpr:
            return _key(BufferLoad(data, at(row, k)), kind, largest=largest)

        order = rows.first_of_groups(key, size, groups) if is_long else rows.first(key, size)
        with rows.every(count) as (row, n):
            place = ops.cast_to(order[(*row, n)], "int64")
            loops.store(indices, at(row, n), place)
            loops.store(values, at(row, n), BufferLoad(data, at(row, place)))

    shape = (*sizes[:axis], count, *sizes[axis:])
    return written("topk", [(shape, str(data.dtype)), (shape, dtype)], [data], write)


@dataclass(frozen=True)
class _Rows:
    """Loops that select the largest `count` keys of the datatype `kind` in each row."""

    loops: Loops
    sizes: list[PrimExpr]
    kind: str
    count: int

    def array(self, name: str, *size: int) -> Any:
        """One number for each row, or a given number of them."""
        return self.loops.array([*self.sizes, *size], self.kind, name)

    @contextmanager
    def every(self, size: int) -> Iterator[tuple[Index, PrimExpr]]:
        """A loop nest over rows and positions."""
        with self.loops.every(self.sizes) as row, self.loops.loop(number(size)) as k:
            yield row, k

    def first(self, key: Element, size: int, place: Element | None = None) -> Any:
        """The places of the largest keys, one after the other, the first of equal ones first.

        Without `place`, these are positions. Otherwise, these are places modulo `size`, which is a
        power of two.
        """
        loops, kind = self.loops, self.kind
        least, most = intrin.min_value(kind), intrin.max_value(kind)
        left, free = self.array("left", size), self.array("free", size)
        best, found = self.array("best_left"), self.array("found")
        order = self.array("order", self.count)
        with self.every(size) as (row, k):
            loops.store(left, (*row, k), key(row, k))
            loops.store(free, (*row, k), k if place is None else place(row, k))
        with loops.loop(number(self.count), name="n") as n:
            with loops.every(self.sizes) as row:
                loops.store(best, row, least)
                with loops.loop(number(size)) as k:
                    better = ops.maximum(best[row], left[(*row, k)])
                    loops.store(best, row, better)
            with loops.every(self.sizes) as row:
                loops.store(found, row, most)
                with loops.loop(number(size)) as k:
                    is_best = ops.compare(tir.EQ, left[(*row, k)], best[row])
                    at = tir.Select(is_best, free[(*row, k)], most)
                    loops.store(found, row, ops.minimum(found[row], at))
            with loops.every(self.sizes) as row:
                position = ops.cast_to(found[row], "int64")
                if place is not None:
                    position = intrin.bitwise_and(position, number(size - 1))
                loops.store(order, (*row, n), found[row])
                loops.store(left, (*row, position), least)
                loops.store(free, (*row, position), most)
        return order

    def first_of_groups(self, key: Element, size: int, groups: int) -> Any:
        """As `first`, of the elements of the groups that have the best ones.

        If one of the first elements were in another group, the best of as many groups would come
        before it. The elements of a group are so far apart that groups are compared side by side.
        """
        loops, kind, count = self.loops, self.kind, self.count
        least, most = intrin.min_value(kind), intrin.max_value(kind)
        members, rest = divmod(size, groups)
        best, places = self.array("best", groups), self.array("places", groups)
        with self.every(groups) as (row, k):
            at = (*row, k)
            loops.store(best, at, least)
            with loops.loop(number(members)) as m:
                loops.store(best, at, ops.maximum(best[at], key(row, k + m * number(groups))))
        with self.every(groups) as (row, k):
            at = (*row, k)
            loops.store(places, at, most)
            with loops.loop(number(members)) as m:
                place = k + m * number(groups)
                is_best = ops.compare(tir.EQ, key(row, place), best[at])
                place = tir.Select(is_best, ops.cast_to(place, kind), most)
                loops.store(places, at, ops.minimum(places[at], place))
        found = self.first(lambda row, k: best[(*row, k)], groups, lambda row, k: places[(*row, k)])
        chosen, rank, ordered = (self.array(n, count) for n in ("chosen", "rank", "ordered"))
        with self.every(count) as (row, n):
            group = intrin.bitwise_and(ops.cast_to(found[(*row, n)], "int64"), number(groups - 1))
            loops.store(chosen, (*row, n), group)
        with self.every(count) as (row, n):
            loops.store(rank, (*row, n), 0)
            with loops.loop(number(count)) as m:
                is_before = ops.compare(tir.LT, chosen[(*row, m)], chosen[(*row, n)])
                loops.store(rank, (*row, n), rank[(*row, n)] + ops.cast_to(is_before, kind))
        with self.every(count) as (row, n):
            position = ops.cast_to(rank[(*row, n)], "int64")
            loops.store(ordered, (*row, position), chosen[(*row, n)])
        near = self.array("near", members * count + rest)
        with self.every(members) as (row, k), loops.loop(number(count)) as n:
            place = ordered[(*row, n)] + ops.cast_to(k * number(groups), kind)
            loops.store(near, (*row, k * number(count) + n), place)
        with self.every(rest) as (row, k):
            loops.store(near, (*row, k + number(members * count)), k + number(members * groups))

        def near_place(row: Index, k: PrimExpr) -> PrimExpr:
            return ops.cast_to(near[(*row, k)], "int64")

        slots = self.first(lambda row, k: key(row, near_place(row, k)), members * count + rest)
        order = self.array("order", count)
        with self.every(count) as (row, n):
            slot = ops.cast_to(slots[(*row, n)], "int64")
            loops.store(order, (*row, n), near_place(row, slot))
        return order


def _key(value: PrimExpr, kind: str, *, largest: bool) -> PrimExpr:
    """A signed integer that is greater for a better element, and equal for an equal one."""
    if value.dtype.is_float:
        key = _float_key(ops.cast_to(value, f"float{kind[3:]}"), kind)
    elif str(value.dtype) == f"u{kind}":
        key = intrin.bitwise_xor(intrin.reinterpret(kind, value), intrin.min_value(kind))
    else:
        key = ops.cast_to(value, kind)
    return key if largest else intrin.bitwise_not(key)


def _float_key(value: PrimExpr, kind: str) -> PrimExpr:
    """The bits of a float, all but the sign inverted if it is set."""
    most = intrin.max_value(kind)
    bits = intrin.reinterpret(kind, value + ops.const(0.0, str(value.dtype)))  # -0 is 0
    sign = intrin.shift_right(bits, ops.const(value.dtype.bits - 1, kind))
    inverted = intrin.bitwise_and(sign, most)
    return tir.Select(intrin.isnan(value), most, intrin.bitwise_xor(bits, inverted))
