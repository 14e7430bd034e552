"""Selection of elements by loops, for targets that run them natively: kernels and legalisations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.known import literal_shape, tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, TupleGetItem
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.sorting import FEW
from relaxpy.ir.te.loops import Loops, Number, written
from relaxpy.ir.te.tensor import Tensor
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


_WIDE: Final = "float64"
"""The datatype in which scores are compared with their limit, so that it is not rounded."""
_KEY: Final = "int64"
"""The datatype of a score and the number of its box together."""
_LATEST: Final = (1 << 31) - 1
"""The greatest number of a box."""
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
        ranked, kept = _Ranked.of(k, scores), _Kept.of(k, boxes)
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


def _first(buffer: Any) -> tuple[int, ...]:
    return (0,) * len(buffer.shape)


def _at_least_float32(buffer: Any) -> str:
    """The datatype in which elements of a buffer are computed."""
    return _WIDE if buffer.dtype.bits > 32 else "float32"


def _lanes(k: Loops) -> Any:
    """A loop over lanes that are compared at once."""
    return k.loop(_LANES, kind=ForKind.VECTORIZED)


def _folded(k: Loops, values: Any, better: Callable[[Number, Number], Number]) -> Number:
    """The best of the values of all lanes."""
    count = _LANES
    while count > 1:
        count //= 2
        half = k.array([count], str(values.dtype))
        with k.loop(count, kind=ForKind.VECTORIZED) as lane:
            k.store(half, lane, better(values[lane], values[lane + count]))
        values = half
    return values[0]


@dataclass(frozen=True)
class _Ranked:
    """The scores of the boxes of one class, in groups, and the best key of each group.

    A key has the score of a box in its upper half, and in the lower half a number that is the
    greater the earlier the box is. So the largest key alone says which box is the best, and boxes
    are left if their keys are less than the last one that was the largest.
    """

    loops: Loops
    scores: Any
    valid: Any
    best: Any
    best_of_lanes: Any

    @staticmethod
    def of(k: Loops, scores: Any) -> _Ranked:
        """Memory for the scores of a class."""
        rows = scores.shape[2] // (_GROUP * _LANES) + 1
        valid, best = k.array([rows, _LANES, _GROUP], "float32"), k.array([rows, _LANES], _KEY)
        return _Ranked(k, scores, valid, best, k.array([_LANES], _KEY))

    @property
    def _none(self) -> Number:
        return intrin.min_value(_KEY)

    def _key(self, line: Number, lane: Number, n: Number) -> Number:
        score, box = self.valid[line, lane, n], (line * _LANES + lane) * _GROUP + n
        rank = ops.cast_to(_float_key(score, "int32"), _KEY)
        key = rank * ops.const(1 << 32, _KEY) + (ops.const(_LATEST, _KEY) - box)
        return tir.Select(score > ops.const(-math.inf, "float32"), key, self._none)

    def fill(self, b: Number, c: Number, least: Number) -> None:
        """Replace the contents by the scores of a class above `least`."""
        k, size = self.loops, self.scores.shape[2]
        whole, none = size // (_GROUP * _LANES), ops.const(-math.inf, "float32")

        def store(row: Number, lane: Number, n: Number) -> None:
            score = self.scores[b, c, (row * _LANES + lane) * _GROUP + n]
            is_valid = ops.cast_to(score, str(least.dtype)) > least
            value = tir.Select(is_valid, ops.cast_to(score, "float32"), none)
            k.store(self.valid, (row, lane, n), value)

        with k.every((whole, _LANES, _GROUP)) as index:
            store(*index)
        with k.every((_LANES, _GROUP)) as index:
            k.store(self.valid, (whole, *index), none)
        groups = size // _GROUP % _LANES
        with k.every((groups, _GROUP)) as index:
            store(whole, *index)
        with k.loop(size % _GROUP) as n:
            store(whole, groups, n)
        with k.every(self.best.shape) as (row, lane):
            k.store(self.best, (row, lane), self._none)
            with k.loop(_GROUP) as n:
                best = ops.maximum(self.best[row, lane], self._key(row, lane, n))
                k.store(self.best, (row, lane), best)

    def pop(self) -> Number:
        """Remove the best box, or of equal ones the first, and return it; or leave the loop."""
        k, rows = self.loops, self.best.shape[0]
        top = k.local(self._greatest(rows, lambda row, lane: self.best[row, lane]))[0]
        with k.when(ops.compare(tir.EQ, top, self._none)):
            k.leave()
        box = k.local(ops.const(_LATEST, _KEY) - intrin.bitwise_and(top, number(_LATEST)))[0]
        # The group is inside; the bounds show it, so that the loops over it need no test.
        group = box // _GROUP
        line = ops.maximum(ops.minimum(group // _LANES, rows - 1), 0)
        column = ops.maximum(ops.minimum(group % _LANES, _LANES - 1), 0)

        def left(part: Number, lane: Number) -> Number:
            key = self._key(line, column, part * _LANES + lane)
            return tir.Select(key < top, key, self._none)

        k.store(self.best, (line, column), self._greatest(_GROUP // _LANES, left))
        return box

    def _greatest(self, rows: Number, key: Callable[[Number, Number], Number]) -> Number:
        """The greatest of the keys by row and lane."""
        k = self.loops
        with _lanes(k) as lane:
            k.store(self.best_of_lanes, lane, self._none)
        with k.loop(rows) as row, _lanes(k) as lane:
            k.store(self.best_of_lanes, lane, _greatest(key(row, lane), self.best_of_lanes[lane]))
        return _folded(k, self.best_of_lanes, _greatest)


@dataclass(frozen=True)
class _Kept:
    """The boxes of one class that remain: two coordinates of two corners each, and their areas."""

    loops: Loops
    corners: Any
    fields: list[Any]
    covers: Any

    @staticmethod
    def of(k: Loops, corners: Any) -> _Kept:
        """Memory for as many boxes as there are."""
        shape = corners.shape[1] // (_ROWS * _LANES) + 1, _ROWS, _LANES
        dtype = _at_least_float32(corners)
        fields = [k.array(shape, dtype) for _ in range(5)]
        for field in fields:
            with k.every(shape) as index:
                k.store(field, index, float("nan"))
        return _Kept(k, corners, fields, k.array([_LANES], dtype))

    def add_if_free(self, b: Number, box: Number, count: Number, iou: Number) -> Number:
        """True if none of `count` boxes overlaps a box too much; the box is then added to them."""
        k, dtype = self.loops, str(self.covers.dtype)
        sides = [[ops.cast_to(self.corners[b, box, n + m], dtype) for m in (0, 2)] for n in (0, 1)]
        low = [k.local(ops.minimum(*pair))[0] for pair in sides]
        high = [k.local(ops.maximum(*pair))[0] for pair in sides]
        area = k.local((high[0] - low[0]) * (high[1] - low[1]))[0]
        is_free = k.local(tir.Not(iou < 0) | ops.compare(tir.EQ, count, 0))
        with k.loop(self.fields[0].shape[0]) as block:
            start = k.local(block * (_ROWS * _LANES))[0]
            with k.when((start >= count) | tir.Not(is_free[0])):
                k.leave()
            with _lanes(k) as lane:
                k.store(self.covers, lane, -1.0)
            compare = partial(self._compare, low, high, area, block, count)
            with k.when(count - start <= _LANES):
                compare(1)
            with k.otherwise():
                compare(_ROWS)
            with k.when(_folded(k, self.covers, _greatest) > iou):
                k.store(is_free, 0, ops.const(0, "bool"))
        with k.when(is_free[0]):
            row, lane = count // _LANES, count % _LANES
            place = row // _ROWS, row % _ROWS, lane
            for field, value in zip(self.fields, (*low, *high, area), strict=True):
                k.store(field, place, value)
        return is_free[0]

    def _compare(
        self,
        low: Sequence[Number],
        high: Sequence[Number],
        area: Number,
        block: Number,
        count: Number,
        rows: int,
    ) -> None:
        """Raise `covers` to the ratios of a box and the kept ones in some rows of a block."""
        k, start = self.loops, block * (_ROWS * _LANES)
        with k.loop(rows) as row, _lanes(k) as lane:
            bottom, left, top, right, size = (field[block, row, lane] for field in self.fields)
            height = _least(high[0], top) - _greatest(low[0], bottom)
            width = _least(high[1], right) - _greatest(low[1], left)
            is_kept = start + row * _LANES + lane < count
            shared = height * width
            ratio = shared / (area + size - shared)
            meets = is_kept & (height > 0) & (width > 0)
            covers = _greatest(tir.Select(meets, ratio, -1.0), self.covers[lane])
            k.store(self.covers, lane, covers)


def _least(a: Number, b: Number) -> Number:
    """The minimum of two numbers, or the second one if one is NaN."""
    return tir.Select(a < b, a, b)


def _greatest(a: Number, b: Number) -> Number:
    """The maximum of two numbers, or the second one if one is NaN."""
    return tir.Select(a > b, a, b)


_MOST: Final = 128
"""The maximum k for which selection by loops is faster than sorting."""
_SHORT: Final = 16
"""The maximum size for which loops are faster for every k."""
_FIELDS: Final = {"values": 0, "indices": 1}


def _topk(builder: BlockBuilder, call: Call) -> Expr:
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
    if _SHORT < size.value < max(FEW * k, k * k // FEW):
        return call
    options = {"largest": attrs["largest"], "dtype": str(attrs["dtype"])}
    operands = data, k, axis
    both = rules.te_kernel(builder, selected, "topk", *operands, **options)
    field = _FIELDS.get(attrs["ret_type"])
    return both if field is None else TupleGetItem(builder.emit(both), field)


def _has_key(dtype: DataType) -> bool:
    """True if native code compares elements by integers; it has no floats of a byte."""
    return not dtype.is_float or dtype.bits >= 16


def _suppressed(builder: BlockBuilder, call: Call) -> Expr:
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


IN_LOOPS: Final[Mapping[str, Callable[[BlockBuilder, Call], Expr]]] = {
    "relax.topk": _topk,
    "relax.vision.all_class_non_max_suppression": _suppressed,
}
"""The legalisations, by operator."""
