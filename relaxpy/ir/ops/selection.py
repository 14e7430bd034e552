"""Selection of elements by loops, for targets that run them natively: kernels and legalisations."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.sorting import FEW
from relaxpy.ir.relax.known import literal_shape, tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, TupleGetItem
from relaxpy.ir.te.tensor import Loops, Number, Tensor, written
from relaxpy.ir.te.topi.shapes import ravel, unravel
from relaxpy.ir.te.topi.windows import number
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.ir.tir.stmt import ForKind
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Index: TypeAlias = tuple[PrimExpr, ...]
#: The element of a row at a position.
Element: TypeAlias = Callable[[Index, PrimExpr], PrimExpr]

_GAIN = 2
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
    is_row = all(isinstance(n, IntImm) and n.value == 1 for n in sizes)
    is_long = size >= _GAIN * (groups + size // groups * count + size % groups)
    is_long &= count > 1 or is_row  # the best elements of rows side by side need no groups

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


def ranked(
    data: Tensor,
    ranks: Tensor | None,
    axes: tuple[int, ...],
    fields: tuple[str, ...],
    keepdims: bool,
) -> Any:
    """The value and the index, or one of these, of an element of a stable sort along axes.

    That is the one at the rank of each row, or else the first NaN, or the one in the middle. There
    is an element along the axes, and it is known how many there are.
    """
    rest = [n for n in range(len(data.shape)) if n not in axes]
    sizes, lengths = ([data.shape[n] for n in group] for group in (rest, axes))
    size = math.prod(length.value for length in lengths if isinstance(length, IntImm))
    kind = f"int{max(data.dtype.bits, 32 if data.dtype.is_float else 8)}"
    inputs = [data] if ranks is None else [data, ranks]

    def at(row: Index, along: Sequence[PrimExpr]) -> Index:
        index = dict(zip((*rest, *axes), (*row, *along), strict=True))
        return tuple(index[n] for n in range(len(index)))

    def write(loops: Loops, data: Buffer, *buffers: Buffer) -> None:
        rows = _Rows(loops, sizes, kind, size)
        keys = rows.array("keys", size)
        with loops.every(sizes) as row, loops.every(lengths) as along:
            key = _key(BufferLoad(data, at(row, along)), kind, largest=True)
            loops.store(keys, (*row, ravel(along, lengths)), key)

        def rank(row: Index) -> Any:
            if ranks is None:
                return number((size - 1) // 2)
            place = BufferLoad(buffers[0], kept(row) if ranks.shape else ())
            return _inside(place, number(size))

        def kept(row: Index) -> Index:
            return at(row, [number(0) for _ in axes])

        places = rows.place(keys, rank, has_nan=ranks is None and data.dtype.is_float)
        with loops.every(sizes) as row:
            place = _inside(places[row], number(size))
            value = BufferLoad(data, at(row, unravel(place, lengths)))
            out = kept(row) if keepdims else row
            for field, buffer in zip(fields, buffers[len(inputs) - 1 :], strict=True):
                loops.store(buffer, out, {"values": value, "indices": place}[field])

    shape = at(tuple(sizes), [number(1) for _ in axes]) if keepdims else tuple(sizes)
    kinds = {"values": str(data.dtype), "indices": "int64"}
    found = written("ranked", [(shape, kinds[field]) for field in fields], inputs, write)
    return found if len(found) > 1 else found[0]


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

    def place(self, keys: Any, at: Callable[[Index], Any], *, has_nan: bool) -> Any:
        """The place in a stable sort of keys at a rank of each row.

        With `has_nan`, it is that of the first greatest key where there is one of a NaN.

        The key there is found bit by bit, from the highest one: each step counts the keys in half
        of the range that is left. Its place is that of the last equal key before which no more than
        `rank` elements come in order.
        """
        loops, kind = self.loops, self.kind
        most = intrin.max_value(kind)
        low = self.array("low")
        place, rank, count, lesser = (
            loops.array(self.sizes, "int32", name) for name in ("place", "rank", "count", "lesser")
        )

        def counted(meets: Element) -> None:
            with loops.every(self.sizes) as row:
                loops.store(count, row, 0)
                with loops.loop(number(self.count)) as k:
                    one = ops.cast_to(meets(row, k), "int32")
                    loops.store(count, row, count[row] + one)

        with loops.every(self.sizes) as row:
            loops.store(low, row, intrin.min_value(kind))
            loops.store(lesser, row, 0)
            loops.store(rank, row, at(row))
        if has_nan:
            counted(lambda row, k: ops.compare(tir.EQ, keys[(*row, k)], most))
            with loops.every(self.sizes) as row:
                first = self.count - count[row]
                loops.store(rank, row, tir.Select(count[row] > 0, first, rank[row]))
        with loops.loop(number(most.dtype.bits), name="n") as n:
            half = intrin.shift_right(most, ops.cast_to(n, kind))
            counted(lambda row, k: keys[(*row, k)] <= low[row] + half)
            with loops.every(self.sizes) as row:
                is_above = count[row] <= rank[row]
                above = low[row] + half + ops.const(1, kind)
                loops.store(low, row, tir.Select(is_above, above, low[row]))
                loops.store(lesser, row, tir.Select(is_above, count[row], lesser[row]))
        with loops.every(self.sizes) as row:
            loops.store(place, row, 0)
            with loops.loop(number(self.count)) as k:
                is_equal = ops.compare(tir.EQ, keys[(*row, k)], low[row])
                is_next = is_equal & (lesser[row] <= rank[row])
                loops.store(place, row, tir.Select(is_next, ops.cast_to(k, "int32"), place[row]))
                loops.store(lesser, row, lesser[row] + ops.cast_to(is_equal, "int32"))
        return place

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


_WIDE: Final = "float64"
"""The datatype in which scores are compared with their limit, so that it is not rounded."""
_LATEST: Final = (1 << 31) - 1
"""A position after all others."""
_LANES: Final = 16
"""The number of lanes that are compared at once."""
_GROUP: Final = 64
"""The number of scores in a group whose best one is tracked."""
_ROWS: Final = 8
"""The number of vector comparisons before their results are tested."""


def suppressed_by_class(
    boxes: Tensor,
    scores: Tensor,
    most: Tensor,
    iou: Tensor,
    least: Tensor,
    *,
    by_image: bool,
    rows_per_class: int | None,
) -> list[Tensor]:
    """The selected boxes of each class, best first, and their number over all images.

    With `by_image`, the boxes of each image, their scores in float32, and how many remain of each.
    """
    batch, classes, size = scores.shape
    if rows_per_class is not None:
        size = ops.minimum(size, ops.const(rows_per_class, "int64"))

    def write(k: Loops, *buffers: Any) -> None:
        boxes, scores, most, iou, least, indices, *values, totals = buffers
        with k.every(indices.shape) as index:
            k.store(indices, index, -1)
        for buffer in values:
            with k.every(buffer.shape) as index:
                k.store(buffer, index, 0.0)
        limit = k.local(ops.minimum(ops.cast_to(most[_first(most)], "int64"), size))
        iou = k.local(ops.cast_to(iou[_first(iou)], _at_least_float32(boxes)))
        least = k.local(ops.cast_to(least[_first(least)], _at_least_float32(least)))
        ranks_all = _is_small(scores.shape[2], rows_per_class)
        ranked = _Sorted.of(k, scores) if ranks_all else _Ranked.of(k, scores)
        kept = _Kept.of(k, boxes)
        count, total = (k.local(ops.const(0, "int64")) for _ in range(2))
        with k.loop(batch) as b:
            if by_image:
                k.store(total, 0, 0)
            with k.loop(classes) as c:
                ranked.fill(b, c, least[0])
                k.store(count, 0, 0)
                with k.repeat(count[0] < limit[0]):
                    box = ranked.pop()
                    with k.when(kept.add_if_free(b, box, count[0], iou[0])):
                        row = (b, total[0]) if by_image else (total[0],)
                        for field, number in enumerate([c, box] if by_image else [b, c, box]):
                            k.store(indices, (*row, field), number)
                        for buffer in values:
                            k.store(buffer, row, scores[b, c, box])
                        k.store(count, 0, count[0] + 1)
                        k.store(total, 0, total[0] + 1)
            if by_image:
                k.store(totals, b, total[0])
        if not by_image:
            k.store(totals, 0, total[0])

    rows = (batch, classes * size) if by_image else (batch * classes * size,)
    outputs: list[Any] = [((*rows, 2 if by_image else 3), "int64")]
    if by_image:
        outputs.append((rows, "float32"))
    outputs.append(((batch,) if by_image else (1,), "int64"))
    return written("non_max_suppression", outputs, [boxes, scores, most, iou, least], write)


def _is_small(boxes: PrimExpr, most: int | None) -> bool:
    """True if comparing all boxes takes less time than finding the best one `most` times."""
    return isinstance(boxes, IntImm) and boxes.value <= min(_GROUP, 2 * (most or _GROUP))


def _first(buffer: Any) -> tuple[int, ...]:
    return (0,) * len(buffer.shape)


def _at_least_float32(buffer: Any) -> str:
    """The datatype in which elements of a buffer are computed."""
    return _WIDE if buffer.dtype.bits > 32 else "float32"


def _lanes(k: Loops, count: int = _LANES) -> Any:
    """A loop over lanes that are compared at once."""
    return k.loop(count, kind=ForKind.VECTORIZED)


@dataclass(frozen=True)
class _Lanes:
    """The best value of each lane, and of halves of them; allocated outside of all loops."""

    loops: Loops
    halves: list[Any]
    better: Callable[[Number, Number], Number]

    @staticmethod
    def of(k: Loops, dtype: str, better: Callable[[Number, Number], Number]) -> _Lanes:
        """Memory for the values of all lanes."""
        sizes = [_LANES >> k for k in range(_LANES.bit_length())]
        return _Lanes(k, [k.array([size], dtype) for size in sizes], better)

    def begin(self, value: Number) -> None:
        """Set all lanes to a value."""
        with _lanes(self.loops) as lane:
            self.loops.store(self.halves[0], lane, value)

    def add(self, lane: Number, value: Number) -> None:
        """Replace the value of a lane by a better one."""
        lanes = self.halves[0]
        self.loops.store(lanes, lane, self.better(value, lanes[lane]))

    def folded(self) -> Number:
        """The best value of all lanes."""
        k, (*wider, pair, single) = self.loops, self.halves
        for whole, half in itertools.pairwise((*wider, pair)):
            count = half.shape[0].value
            with _lanes(k, count) as lane:
                k.store(half, lane, self.better(whole[lane], whole[lane + count]))
        k.store(single, 0, self.better(pair[0], pair[1]))
        return single[0]


@dataclass(frozen=True)
class _Ranked:
    """The scores of the boxes of one class, in groups, and the best score of each group.

    Boxes are left if they come after the last one that was removed. The scores of others are minus
    infinity.
    """

    loops: Loops
    scores: Any
    valid: Any
    best: Any
    top: _Lanes
    first: _Lanes
    lines: Any
    last: Any
    place: Any

    @staticmethod
    def of(k: Loops, scores: Any) -> _Ranked:
        """Memory for the scores of a class."""
        groups = (scores.shape[2] // (_GROUP * _LANES) + 1) * _LANES
        valid, best = k.array([groups, _GROUP], "float32"), k.array([groups], "float32")
        for buffer in (valid, best):
            with k.every(buffer.shape) as index:
                k.store(buffer, index, -math.inf)
        top, first = _Lanes.of(k, "float32", _greatest), _Lanes.of(k, "int32", _least)
        lines, last, place = ([_LANES], "int32"), ([2], "float32"), ([3], "int64")
        return _Ranked(
            k, scores, valid, best, top, first, *(k.array(*x) for x in (lines, last, place))
        )

    def fill(self, b: Number, c: Number, least: Number) -> None:
        """Replace the contents by the scores of a class above `least`."""
        k, size = self.loops, self.scores.shape[2]
        whole = size // _GROUP

        def store(group: Number, n: Number) -> None:
            score = self.scores[b, c, group * _GROUP + n]
            is_valid = ops.cast_to(score, str(least.dtype)) > least
            value = tir.Select(is_valid, ops.cast_to(score, "float32"), _lowest())
            k.store(self.valid, (group, n), value)

        with k.every((whole, _GROUP)) as index:
            store(*index)
        with k.loop(size % _GROUP) as n:
            store(whole, n)
        with k.loop(whole + 1) as group:
            k.store(self.best, group, _lowest())
            with k.loop(_GROUP) as n:
                best = ops.maximum(self.best[group], self.valid[group, n])
                k.store(self.best, group, best)
        k.store(self.last, 0, math.inf)
        k.store(self.place, 2, -1)

    def pop(self) -> Number:
        """Remove the best box, or of equal ones the first, and return it; or leave the loop."""
        k, (place, last) = self.loops, (self.place, self.last)
        k.store(place, 0, 0)
        with k.when(self.scores.shape[2] >= _GROUP):
            self._find()
        group = _inside(place[0], self.best.shape[0])
        top = self.best[group]
        with k.when(ops.compare(tir.EQ, top, _lowest())):
            k.leave()
        # Equal boxes were removed up to the last one. Their scores are not replaced: a vector that
        # is read next would wait until those were in memory.
        removed = tir.Select(
            ops.compare(tir.EQ, top, last[0]), place[2] - group * _GROUP, number(-1)
        )
        k.store(place, 1, removed)
        parts = [number(part) for part in range(0, _GROUP, _LANES)]

        def is_top(n: Number) -> Number:
            return ops.compare(tir.EQ, self.valid[group, n], top)

        with _lanes(k) as lane:
            found = [
                tir.Select(
                    is_top(n) & (n > place[1]), ops.cast_to(n, "int32"), ops.const(_LATEST, "int32")
                )
                for n in (lane + part for part in parts)
            ]
            k.store(self.first.halves[0], lane, functools.reduce(_least, found))
        k.store(place, 1, self.first.folded())
        with _lanes(k) as lane:
            left = [
                tir.Select(
                    (self.valid[group, n] < top) | (is_top(n) & (n > place[1])),
                    self.valid[group, n],
                    _lowest(),
                )
                for n in (lane + part for part in parts)
            ]
            k.store(self.top.halves[0], lane, functools.reduce(_greatest, left))
        k.store(last, 0, top)
        k.store(place, 2, group * _GROUP + place[1])
        k.store(self.best, group, self.top.folded())
        return place[2]

    def _find(self) -> None:
        """Set the place to the first group that has the best box."""
        k, last = self.loops, ops.const(_LATEST, "int32")
        lanes = self.top.halves[0]
        self.top.begin(_lowest())
        with _lanes(k) as lane:
            k.store(self.lines, lane, 0)
        with k.loop(self.best.shape[0] // _LANES) as line, _lanes(k) as lane:
            best, number = self.best[line * _LANES + lane], ops.cast_to(line, "int32")
            k.store(self.lines, lane, tir.Select(best > lanes[lane], number, self.lines[lane]))
            self.top.add(lane, best)
        k.store(self.last, 1, self.top.folded())
        top = self.last[1]
        with _lanes(k) as lane:
            group = self.lines[lane] * _LANES + ops.cast_to(lane, "int32")
            is_top = ops.compare(tir.EQ, lanes[lane], top)
            k.store(self.first.halves[0], lane, tir.Select(is_top, group, last))
        k.store(self.place, 0, self.first.folded())


@dataclass(frozen=True)
class _Sorted:
    """The boxes of one class in order, where they are so few that all are compared."""

    loops: Loops
    scores: Any
    valid: Any
    order: Any
    all_ranks: Any
    ranks: list[Any]
    place: Any

    @staticmethod
    def of(k: Loops, scores: Any) -> _Sorted:
        """Memory for the boxes of a class; no score follows the last one."""
        parts = -(-scores.shape[2].value // _LANES)
        shape = [parts, _LANES]
        valid, order = k.array(shape, "float32"), k.array([parts * _LANES], "int64")
        with k.every(shape) as index:
            k.store(valid, index, -math.inf)
        ranks = [k.array([_LANES], "int32") for _ in range(parts)]
        all_ranks = k.array(shape, "int32")
        return _Sorted(k, scores, valid, order, all_ranks, ranks, k.array([2], "int64"))

    def fill(self, b: Number, c: Number, least: Number) -> None:
        """Replace the contents by the boxes of a class whose scores are above `least`.

        The rank of a box is the number of those before it.
        """
        k, size = self.loops, self.scores.shape[2]
        with k.loop(size) as n:
            score = self.scores[b, c, n]
            is_valid = ops.cast_to(score, str(least.dtype)) > least
            value = tir.Select(is_valid, ops.cast_to(score, "float32"), _lowest())
            k.store(self.valid, (n // _LANES, n % _LANES), value)
        for rank in self.ranks:
            with _lanes(k) as lane:
                k.store(rank, lane, 0)
        with k.loop(size) as n:
            own, index = self.valid[n // _LANES, n % _LANES], ops.cast_to(n, "int32")
            for part, rank in enumerate(self.ranks):
                with _lanes(k) as lane:
                    other = self.valid[number(part), lane]
                    is_later = index < ops.cast_to(lane, "int32") + part * _LANES
                    is_before = (own > other) | (ops.compare(tir.EQ, own, other) & is_later)
                    k.store(rank, lane, rank[lane] + ops.cast_to(is_before, "int32"))
        for part, rank in enumerate(self.ranks):
            with _lanes(k) as lane:
                k.store(self.all_ranks, (part, lane), rank[lane])
        with k.loop(size) as n:
            place = _inside(self.all_ranks[n // _LANES, n % _LANES], self.order.shape[0])
            k.store(self.order, place, n)
        k.store(self.place, 0, 0)

    def pop(self) -> Number:
        """Remove the best box, or of equal ones the first, and return it; or leave the loop."""
        k, place = self.loops, self.place
        size = self.scores.shape[2]
        with k.when(place[0] >= size):
            k.leave()
        box = _inside(self.order[_inside(place[0], size)], size)
        with k.when(ops.compare(tir.EQ, self.valid[box // _LANES, box % _LANES], _lowest())):
            k.leave()
        k.store(place, 1, box)
        k.store(place, 0, place[0] + 1)
        return _inside(place[1], size)


def _inside(index: Number, size: Number) -> Number:
    """An index that is known to be at least 0 and less than `size`, so that it needs no test."""
    last = ops.convert(size) - 1
    return ops.maximum(ops.minimum(ops.cast_to(index, "int64"), ops.cast_to(last, "int64")), 0)


@dataclass(frozen=True)
class _Kept:
    """The boxes of one class that remain: two coordinates of two corners each, and their areas."""

    loops: Loops
    corners: Any
    fields: list[Any]
    covers: _Lanes
    box: list[Any]
    is_free: Any

    @staticmethod
    def of(k: Loops, corners: Any) -> _Kept:
        """Memory for as many boxes as there are."""
        shape = corners.shape[1] // (_ROWS * _LANES) + 1, _ROWS, _LANES
        dtype = _at_least_float32(corners)
        fields = [k.array(shape, dtype) for _ in range(5)]
        for field in fields:
            with k.every(shape) as index:
                k.store(field, index, float("nan"))
        covers, box = _Lanes.of(k, "int32", _either), [k.array([1], dtype) for _ in fields]
        return _Kept(k, corners, fields, covers, box, k.array([1], "bool"))

    def add_if_free(self, b: Number, box: Number, count: Number, iou: Number) -> Number:
        """True if none of `count` boxes overlaps a box too much; the box is then added to them."""
        k, is_free = self.loops, self.is_free
        dtype = str(self.box[0].dtype)
        sides = [[ops.cast_to(self.corners[b, box, n + m], dtype) for m in (0, 2)] for n in (0, 1)]
        low, high, area = self.box[:2], self.box[2:4], self.box[4]
        for n, pair in enumerate(sides):
            k.store(low[n], 0, ops.minimum(*pair))
            k.store(high[n], 0, ops.maximum(*pair))
        k.store(area, 0, (high[0][0] - low[0][0]) * (high[1][0] - low[1][0]))
        k.store(is_free, 0, tir.Not(iou < 0) | ops.compare(tir.EQ, count, 0))
        with k.loop(self.fields[0].shape[0]) as block:
            start = block * (_ROWS * _LANES)
            with k.when((start >= count) | tir.Not(is_free[0])):
                k.leave()
            self.covers.begin(ops.const(0, "int32"))
            with k.when(count - start <= _LANES):
                self._compare(block, count, iou, 1)
            with k.otherwise():
                self._compare(block, count, iou, _ROWS)
            with k.when(self.covers.folded() > 0):
                k.store(is_free, 0, ops.const(0, "bool"))
        with k.when(is_free[0]):
            row, lane = count // _LANES, count % _LANES
            place = row // _ROWS, row % _ROWS, lane
            for field, value in zip(self.fields, self.box, strict=True):
                k.store(field, place, value[0])
        return is_free[0]

    def _compare(self, block: Number, count: Number, iou: Number, rows: int) -> None:
        """Set `covers` where a kept box in some rows of a block overlaps the box too much."""
        k, start = self.loops, block * (_ROWS * _LANES)
        own_bottom, own_left, own_top, own_right, own_size = (value[0] for value in self.box)
        with k.loop(rows) as row, _lanes(k) as lane:
            bottom, left, top, right, size = (field[block, row, lane] for field in self.fields)
            height = _least(own_top, top) - _greatest(own_bottom, bottom)
            width = _least(own_right, right) - _greatest(own_left, left)
            is_kept = start + row * _LANES + lane < count
            shared = height * width
            ratio = shared / (own_size + size - shared)
            covers = is_kept & (height > 0) & (width > 0) & (ratio > iou)
            self.covers.add(lane, ops.cast_to(covers, "int32"))


def _lowest() -> Number:
    """The score of a box that is not left."""
    return ops.const(-math.inf, "float32")


def _either(a: Number, b: Number) -> Number:
    """The bits of two integers."""
    return intrin.bitwise_or(a, b)


def _least(a: Number, b: Number) -> Number:
    """The minimum of two numbers, or the second one if one is NaN."""
    return tir.Select(a < b, a, b)


def _greatest(a: Number, b: Number) -> Number:
    """The maximum of two numbers, or the second one if one is NaN."""
    return tir.Select(a > b, a, b)


_MOST: Final = 128
"""The maximum k for which selection by loops is faster than sorting."""
_FEWEST: Final = 10
"""The maximum size for which loops are faster than NumPy's sort."""
_SHORT: Final = 256
"""The maximum size for which loops are faster for every k."""
_FIELDS: Final = {"values": 0, "indices": 1}


def topk(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that selects a few of many elements; others are a call of the runtime."""
    attrs: Any = call.attrs
    [data], k = call.args, attrs["k"]
    sinfo = tensor_of(builder.struct_info_of(data))
    shape = literal_shape(sinfo)
    if shape is None or not _has_key(sinfo.dtype) or not 0 < k <= _MOST:
        return call
    axis = rules.normal_axis(attrs["axis"], len(shape))
    size = shape[axis]
    if not isinstance(size, IntImm) or size.value < k:
        return call
    if _SHORT < size.value < FEW * k:
        return call
    options = {"largest": attrs["largest"], "dtype": str(attrs["dtype"])}
    operands = data, k, axis
    both = rules.te_kernel(builder, selected, "topk", *operands, **options)
    field = _FIELDS.get(attrs["ret_type"])
    return both if field is None else TupleGetItem(builder.emit(both), field)


def ordered(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that sorts short rows, or finds their order; others are a call of the runtime."""
    attrs: Any = call.attrs
    [data] = call.args
    sinfo = tensor_of(builder.struct_info_of(data))
    shape = literal_shape(sinfo)
    if shape is None or not _has_key(sinfo.dtype) or sinfo.dtype.is_bool:
        return call
    axis = rules.normal_axis(attrs["axis"], len(shape))
    size, dtype = shape[axis], attrs.get("dtype", INT64)
    if not isinstance(size, IntImm) or not 0 < size.value <= _FEWEST or not dtype.is_int:
        return call
    options = {"largest": attrs["descending"], "dtype": str(dtype)}
    both = rules.te_kernel(builder, selected, "sort", data, size.value, axis, **options)
    return TupleGetItem(builder.emit(both), 1 if "dtype" in attrs else 0)


def median(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that counts elements; others are a call of the runtime."""
    attrs: Any = call.attrs
    sinfo = tensor_of(builder.struct_info_of(call.args[0]))
    shape = literal_shape(sinfo)
    if shape is None or not _has_key(sinfo.dtype):
        return call
    axis, rank = attrs["axis"], len(shape)
    axes = tuple(range(rank)) if axis is None else rules.normal_axes(axis, rank)
    lengths = [shape[n] for n in axes]
    size = math.prod(n.value if isinstance(n, IntImm) else 0 for n in lengths)
    if not 0 < size <= _LATEST:
        return call
    fields = ("values", "indices") if axis is not None and len(axes) == 1 else ("values",)
    options = None, axes, fields, attrs["keepdims"]
    return rules.te_kernel(builder, ranked, "median", *call.args, *options)


def nth_index(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that counts elements; others are a call of the runtime."""
    attrs: Any = call.attrs
    sinfo, ranks = (tensor_of(builder.struct_info_of(arg)) for arg in call.args)
    shape = literal_shape(sinfo)
    kept = literal_shape(ranks)
    if shape is None or kept is None or not _has_key(sinfo.dtype):
        return call
    axis = rules.normal_axis(attrs["axis"], len(shape))
    size = shape[axis]
    if kept and not all(map(rules.same, kept, (*shape[:axis], rules.one(), *shape[axis + 1 :]))):
        return call
    if not isinstance(size, IntImm) or not 0 < size.value <= _LATEST:
        return call
    return rules.te_kernel(builder, ranked, "nth_index", *call.args, (axis,), ("indices",), True)


def _has_key(dtype: DataType) -> bool:
    """True if native code compares elements by integers; it has no floats of a byte."""
    return not dtype.is_float or dtype.bits >= 16


def suppressed(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that looks at boxes until enough remain; others are a call of the runtime.

    A score is half of an integer of 64 bits, so those of float64 are compared by the runtime.
    """
    shapes = []
    for arg in call.args:
        sinfo = builder.struct_info_of(arg)
        if not isinstance(sinfo, TensorStructInfo) or sinfo.dtype.is_void:
            return call
        if arg is call.args[1] and sinfo.dtype.bits > 32:
            return call
        shape = literal_shape(sinfo)
        if shape is None:
            return call
        shapes.append(shape)
    boxes, scores, *limits = shapes
    if not all(map(rules.same, boxes, (scores[0], scores[2], ops.const(4, "int64")))):
        return call
    if not all(rules.same(size, rules.one()) for shape in limits for size in shape):
        return call
    options = {
        "by_image": call.attrs["output_format"] == "tensorflow",
        "rows_per_class": call.attrs["rows_per_class"],
    }
    function, name = suppressed_by_class, "non_max_suppression"
    return rules.te_kernel(builder, function, name, *call.args, **options)
