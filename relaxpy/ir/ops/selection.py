"""Selection of elements by loops, for targets that run them natively: kernels and legalisations."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.ops.array_order import FEW
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.relax.known import literal_shape, tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, TupleGetItem
from relaxpy.ir.te.tensor import Number, Tensor
from relaxpy.ir.te.text import T, kernel_text, written
from relaxpy.ir.te.topi.shapes import ravel, unravel
from relaxpy.ir.te.topi.windows import number
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Row: TypeAlias = Sequence[PrimExpr]
#: The element of a row at a position.
Element: TypeAlias = Callable[[Row, PrimExpr], PrimExpr]

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

    def at(row: Row, k: PrimExpr) -> Row:
        return (*row[:axis], k, *row[axis:])

    def key(value: PrimExpr) -> PrimExpr:
        return order_key(value, kind, largest=largest)

    shape = (*sizes[:axis], number(count), *sizes[axis:])
    outputs = {"values": (shape, str(data.dtype)), "indices": (shape, dtype)}
    options = {"size": length, "groups": groups if is_long else 0, "at": at, "key": key}
    order = (*sizes, number(count)), kind
    return written("topk", outputs, {"data": data}, _topk, order=order, **options)


@kernel_text
def _topk(
    data: Any, values: Any, indices: Any, order: Any, size: Any, groups: int, at: Any, key: Any
) -> None:
    first = T.decl_buffer(*order)
    if groups:
        _select_of_groups(first, lambda row, k: key(data[at(row, k)]), size, groups)
    else:
        _select(first, lambda row, k: key(data[at(row, k)]), size)
    for *row, n in T.grid(*first.shape):
        place = T.Cast("int64", first[*row, n])
        indices[at(row, n)] = place
        values[at(row, n)] = data[at(row, place)]


def _of_rows(order: Any, *size: Any) -> tuple[Row, str]:
    """The shape of one number for each row of `order`, or of several, and their datatype."""
    return (*order.shape[:-1], *size), str(order.dtype)


@kernel_text
def _select(order: Any, key: Element, size: PrimExpr, place: Element | None = None) -> None:
    """The places of the largest keys, one after the other, the first of equal ones first.

    Without `place`, these are positions. Otherwise, these are places modulo `size`, which is a
    power of two.
    """
    left, free = [T.decl_buffer(*_of_rows(order, size)) for _ in range(2)]
    best, found = [T.decl_buffer(*_of_rows(order)) for _ in range(2)]
    *sizes, count = T.meta_var(order.shape)
    least, most = T.meta_var((T.min_value(order.dtype), T.max_value(order.dtype)))
    for *row, k in T.grid(*sizes, size):
        left[*row, k] = key(row, k)
        free[*row, k] = k if place is None else place(row, k)
    for n in T.serial(count):
        for (*row,) in T.grid(*sizes):
            best[*row] = least
            for k in T.serial(size):
                best[*row] = T.max(best[*row], left[*row, k])
        for (*row,) in T.grid(*sizes):
            found[*row] = most
            for k in T.serial(size):
                candidate = T.Select(left[*row, k] == best[*row], free[*row, k], most)
                found[*row] = T.min(found[*row], candidate)
        for (*row,) in T.grid(*sizes):
            position = T.Cast("int64", found[*row])
            at = position if place is None else T.bitwise_and(position, size - 1)
            order[*row, n] = found[*row]
            left[*row, at] = least
            free[*row, at] = most


@kernel_text
def _select_of_groups(order: Any, key: Element, size: IntImm, groups: int) -> None:
    """As `_select`, of the elements of the groups that have the best ones.

    If one of the first elements were in another group, the best of as many groups would come before
    it. The elements of a group are so far apart that groups are compared side by side.
    """
    *sizes, count = T.meta_var(order.shape)
    members, rest = T.meta_var([number(n) for n in divmod(size.value, groups)])
    best, places = [T.decl_buffer(*_of_rows(order, groups)) for _ in range(2)]
    for *row, k in T.grid(*sizes, number(groups)):
        best[*row, k] = T.min_value(order.dtype)
        for m in T.serial(members):
            best[*row, k] = T.max(best[*row, k], key(row, k + m * groups))
    for *row, k in T.grid(*sizes, number(groups)):
        places[*row, k] = T.max_value(order.dtype)
        for m in T.serial(members):
            place = k + m * groups
            is_best = key(row, place) == best[*row, k]
            candidate = T.Select(is_best, T.Cast(order.dtype, place), T.max_value(order.dtype))
            places[*row, k] = T.min(places[*row, k], candidate)
    found, chosen, rank, ordered = [T.decl_buffer(order.shape, order.dtype) for _ in range(4)]
    _select(found, lambda row, k: best[*row, k], number(groups), lambda row, k: places[*row, k])
    for *row, n in T.grid(*sizes, count):
        chosen[*row, n] = T.bitwise_and(T.Cast("int64", found[*row, n]), groups - 1)
    for *row, n in T.grid(*sizes, count):
        rank[*row, n] = 0
        for m in T.serial(count):
            rank[*row, n] += T.Cast(order.dtype, chosen[*row, m] < chosen[*row, n])
    for *row, n in T.grid(*sizes, count):
        ordered[*row, T.Cast("int64", rank[*row, n])] = chosen[*row, n]
    near = T.decl_buffer(*_of_rows(order, members * count + rest))
    for *row, k, n in T.grid(*sizes, members, count):
        near[*row, k * count + n] = ordered[*row, n] + T.Cast(order.dtype, k * groups)
    for *row, k in T.grid(*sizes, rest):
        near[*row, k + members * count] = k + members * groups
    slots = T.decl_buffer(order.shape, order.dtype)
    _select(slots, lambda row, k: key(row, T.Cast("int64", near[*row, k])), members * count + rest)
    for *row, n in T.grid(*sizes, count):
        order[*row, n] = near[*row, T.Cast("int64", slots[*row, n])]


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

    def at(row: Row, along: Row) -> Row:
        index = dict(zip((*rest, *axes), (*row, *along), strict=True))
        return tuple(index[n] for n in range(len(index)))

    def kept(row: Row) -> Row:
        return at(row, [number(0) for _ in axes])

    shape = at(sizes, [number(1) for _ in axes]) if keepdims else tuple(sizes)
    kinds = {"values": str(data.dtype), "indices": "int64"}
    outputs = {field: (shape, kinds[field]) for field in fields}
    kind = f"int{max(data.dtype.bits, 32 if data.dtype.is_float else 8)}"
    options = {"sizes": sizes, "lengths": lengths, "kind": kind, "at": at}
    options["kept"] = kept if keepdims else tuple
    options["asked"] = kept if ranks is not None and ranks.shape else lambda row: ()
    found = written("ranked", outputs, {"data": data, "ranks": ranks}, _ranked, **options)
    return found if len(found) > 1 else found[0]


@kernel_text
def _ranked(
    data: Any,
    sizes: Row,
    lengths: Any,
    kind: str,
    at: Any,
    kept: Any,
    asked: Any,
    ranks: Any = None,
    values: Any = None,
    indices: Any = None,
) -> None:
    """The key at the rank is found bit by bit, from the highest one.

    Each step counts the keys in half of the range that is left. The place is that of the first
    equal key, or of the one after it before which `rank` elements come in order.
    """
    size = T.meta_var(math.prod(length.value for length in lengths))
    keys = T.decl_buffer((*sizes, size), kind)
    low, middle = [T.decl_buffer(sizes, kind) for _ in range(2)]
    place, rank, count, lesser = [T.decl_buffer(sizes, "int32") for _ in range(4)]
    for (*row,) in T.grid(*sizes):
        for (*along,) in T.grid(*lengths):
            keys[*row, ravel(along, lengths)] = order_key(data[at(row, along)], kind, largest=True)
    for (*row,) in T.grid(*sizes):
        low[*row] = T.min_value(kind)
        lesser[*row] = 0
        rank[*row] = (size - 1) // 2 if ranks is None else inside(ranks[asked(row)], size)
    if ranks is None and data.dtype.is_float:
        for (*row,) in T.grid(*sizes):
            middle[*row] = T.max_value(kind) - 1
        _count_up_to(count, keys, middle)
        for (*row,) in T.grid(*sizes):
            rank[*row] = T.Select(count[*row] < size, count[*row], rank[*row])
    for n in T.serial(T.max_value(kind).dtype.bits):
        for (*row,) in T.grid(*sizes):
            middle[*row] = low[*row] + T.shift_right(T.max_value(kind), T.Cast(kind, n))
        _count_up_to(count, keys, middle)
        for (*row,) in T.grid(*sizes):
            is_above = count[*row] <= rank[*row]
            low[*row] = T.Select(is_above, middle[*row] + 1, low[*row])
            lesser[*row] = T.Select(is_above, count[*row], lesser[*row])
    for (*row,) in T.grid(*sizes):
        place[*row] = size - 1
        for k in T.serial(size):
            is_equal = T.meta_var(keys[*row, k] == low[*row])
            place[*row] = T.min(place[*row], T.Select(is_equal, T.Cast("int32", k), size - 1))
    for (*row,) in T.grid(*sizes):
        while (lesser[*row] < rank[*row]) & (place[*row] < size - 1):
            place[*row] += 1
            is_equal = T.meta_var(keys[*row, inside(place[*row], size)] == low[*row])
            lesser[*row] += T.Cast("int32", is_equal)
    for (*row,) in T.grid(*sizes):
        found = inside(place[*row], size)
        if values is not None:
            values[kept(row)] = data[at(row, unravel(found, lengths))]
        if indices is not None:
            indices[kept(row)] = found


@kernel_text
def _count_up_to(count: Any, keys: Any, last: Any) -> None:
    """The number of the keys of each row that are not above its last one."""
    *sizes, size = T.meta_var(keys.shape)
    for (*row,) in T.grid(*sizes):
        count[*row] = 0
        for k in T.serial(size):
            count[*row] += T.Cast("int32", keys[*row, k] <= last[*row])


def order_key(value: PrimExpr, kind: str, *, largest: bool) -> PrimExpr:
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
_NONE: Final = ops.const(-math.inf, "float32")
"""The score of a box that is not left."""


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
    rows = (batch, classes * size) if by_image else (batch * classes * size,)
    outputs: dict[str, Any] = {"indices": ((*rows, 2 if by_image else 3), "int64")}
    if by_image:
        outputs["values"] = rows, "float32"
    outputs["totals"] = (batch,) if by_image else (1,), "int64"
    inputs = {"boxes": boxes, "scores": scores, "most": most, "iou": iou, "least": least}
    options = {"size": size, "is_small": _is_small(scores.shape[2], rows_per_class)}
    return written("non_max_suppression", outputs, inputs, _suppress, **options)


@kernel_text
def _suppress(
    boxes: Any,
    scores: Any,
    most: Any,
    iou: Any,
    least: Any,
    indices: Any,
    totals: Any,
    size: PrimExpr,
    is_small: bool,
    values: Any = None,
) -> None:
    _clear(indices, -1)
    if values is not None:
        _clear(values, 0)
    limit = T.meta_var(T.min(T.Cast("int64", most[_first(most)]), size))
    ratio = T.meta_var(T.Cast(_at_least_float32(boxes), iou[_first(iou)]))
    lowest = T.meta_var(T.Cast(_at_least_float32(least), least[_first(least)]))
    box, place = T.decl_buffer((1,), "int64"), T.decl_buffer((3,), "int64")
    number_of_boxes = T.meta_var(scores.shape[2])
    operands = T.meta_var((boxes, scores, limit, ratio, indices, totals, values, box))
    if is_small:
        lanes = T.meta_var(number(-(-number_of_boxes.value // _LANES) * _LANES))
        valid, order = T.decl_buffer((lanes,), "float32"), T.decl_buffer((lanes,), "int64")
        ranks, all_ranks = [T.decl_buffer((lanes,), "int32") for _ in range(2)]
        _clear(valid, -math.inf)
        _each_class(
            operands,
            lambda b, c: _sort(scores, b, c, lowest, valid, order, ranks, all_ranks, place),
            lambda: _pop_sorted(box, number_of_boxes, valid, order, place),
        )
    else:
        groups = T.meta_var((number_of_boxes // (_GROUP * _LANES) + 1) * _LANES)
        valid, best = (
            T.decl_buffer((groups, _GROUP), "float32"),
            T.decl_buffer((groups,), "float32"),
        )
        top, first = [
            [T.decl_buffer((_LANES >> n,), kind) for n in range(_LANES.bit_length())]
            for kind in ("float32", "int32")
        ]
        lines, last = T.decl_buffer((_LANES,), "int32"), T.decl_buffer((2,), "float32")
        _clear(valid, -math.inf)
        _clear(best, -math.inf)
        _each_class(
            operands,
            lambda b, c: _group(scores, b, c, lowest, valid, best, last, place),
            lambda: _pop_grouped(box, number_of_boxes, valid, best, top, first, lines, last, place),
        )


@kernel_text
def _clear(buffer: Any, value: float) -> None:
    """All elements have a value."""
    for (*index,) in T.grid(*buffer.shape):
        buffer[*index] = value


@kernel_text
def _each_class(operands: Any, fill: Callable[[Number, Number], None], pop: Any) -> None:
    """Keep the boxes that `pop` finds, unless those that were kept overlap them too much.

    Of the boxes that are kept, two coordinates of two corners each, and their areas, are known.
    """
    boxes, scores, limit, ratio, indices, totals, values, box = T.meta_var(operands)
    blocks = T.meta_var(boxes.shape[1] // (_ROWS * _LANES) + 1)
    kept = T.decl_buffer((5, blocks, _ROWS, _LANES), _at_least_float32(boxes))
    own = T.decl_buffer((5,), _at_least_float32(boxes))
    covers = [T.decl_buffer((_LANES >> n,), "int32") for n in range(_LANES.bit_length())]
    is_free = T.decl_buffer((1,), "bool")
    count, total = T.decl_buffer((1,), "int64"), T.decl_buffer((1,), "int64")
    _clear(kept, math.nan)
    total[0] = 0
    for b in T.serial(scores.shape[0]):
        if values is not None:
            total[0] = 0
        for c in T.serial(scores.shape[1]):
            fill(b, c)
            count[0] = 0
            while count[0] < limit:
                pop()
                found = T.meta_var(inside(box[0], boxes.shape[1]))
                _add_if_free(is_free, boxes, b, found, count[0], ratio, own, kept, covers)
                if is_free[0]:
                    if values is None:
                        indices[total[0], 0] = b
                        indices[total[0], 1] = c
                        indices[total[0], 2] = found
                    else:
                        indices[b, total[0], 0] = c
                        indices[b, total[0], 1] = found
                        values[b, total[0]] = scores[b, c, found]
                    count[0] += 1
                    total[0] += 1
        if values is not None:
            totals[b] = total[0]
    if values is None:
        totals[0] = total[0]


@kernel_text
def _add_if_free(
    is_free: Any,
    boxes: Any,
    b: Any,
    box: Any,
    count: Any,
    ratio: Any,
    own: Any,
    kept: Any,
    covers: Any,
) -> None:
    """True if none of `count` boxes overlaps a box too much; the box is then added to them."""
    own[0] = T.min(boxes[b, box, 0], boxes[b, box, 2])
    own[1] = T.min(boxes[b, box, 1], boxes[b, box, 3])
    own[2] = T.max(boxes[b, box, 0], boxes[b, box, 2])
    own[3] = T.max(boxes[b, box, 1], boxes[b, box, 3])
    own[4] = (own[2] - own[0]) * (own[3] - own[1])
    is_free[0] = T.Not(ratio < 0) | (count == 0)
    for block in T.serial(kept.shape[1]):
        start = block * (_ROWS * _LANES)
        if (start >= count) | T.Not(is_free[0]):
            break
        for lane in T.vectorized(number(_LANES)):
            covers[0][lane] = 0
        if count - start <= _LANES:
            _compare(covers[0], own, kept, block, count, ratio, 1)
        else:
            _compare(covers[0], own, kept, block, count, ratio, _ROWS)
        _fold(covers, T.bitwise_or)
        if covers[-1][0] > 0:
            is_free[0] = False
    if is_free[0]:
        at = T.meta_var((count // _LANES // _ROWS, count // _LANES % _ROWS, count % _LANES))
        kept[0, *at] = own[0]
        kept[1, *at] = own[1]
        kept[2, *at] = own[2]
        kept[3, *at] = own[3]
        kept[4, *at] = own[4]


@kernel_text
def _compare(
    covers: Any, own: Any, kept: Any, block: Number, count: Number, ratio: Number, rows: int
) -> None:
    """Set `covers` where a kept box in some rows of a block overlaps the box too much."""
    for row in T.serial(number(rows)):
        for lane in T.vectorized(number(_LANES)):
            bottom, left, top, right, size = T.meta_var(
                [kept[n, block, row, lane] for n in range(5)]
            )
            height = T.meta_var(_least(own[2], top) - _greatest(own[0], bottom))
            width = T.meta_var(_least(own[3], right) - _greatest(own[1], left))
            is_kept = T.meta_var((block * _ROWS + row) * _LANES + lane < count)
            shared = T.meta_var(height * width)
            is_much = T.meta_var(shared / (own[4] + size - shared) > ratio)
            is_covered = T.meta_var(is_kept & (height > 0) & (width > 0) & is_much)
            covers[lane] = T.bitwise_or(T.Cast("int32", is_covered), covers[lane])


@kernel_text
def _fold(halves: Any, better: Callable[[Number, Number], Number]) -> None:
    """The best value of all lanes: each buffer has the better halves of the one before."""
    if len(halves) == 2:
        halves[1][0] = better(halves[0][0], halves[0][1])
    else:
        for lane in T.vectorized(number(halves[1].shape[0].value)):
            halves[1][lane] = better(halves[0][lane], halves[0][lane + halves[1].shape[0]])
        _fold(halves[1:], better)


def _is_small(boxes: PrimExpr, most: int | None) -> bool:
    """True if comparing all boxes takes less time than finding the best one `most` times."""
    return isinstance(boxes, IntImm) and boxes.value <= min(_GROUP, 2 * (most or _GROUP))


def _first(buffer: Any) -> tuple[int, ...]:
    return (0,) * len(buffer.shape)


def _at_least_float32(buffer: Any) -> str:
    """The datatype in which elements of a buffer are computed."""
    return _WIDE if buffer.dtype.bits > 32 else "float32"


def _valid(score: Number, lowest: Number) -> Number:
    """A score above the lowest one, or else that of a box that is not left: minus infinity."""
    is_valid = ops.cast_to(score, str(lowest.dtype)) > lowest
    return tir.Select(is_valid, ops.cast_to(score, "float32"), _NONE)


@kernel_text
def _group(
    scores: Any, b: Number, c: Number, lowest: Number, valid: Any, best: Any, last: Any, place: Any
) -> None:
    """Read the scores of a class, in groups, and find the best score of each group.

    Boxes are left if they come after the last one that was removed.
    """
    groups = T.meta_var(scores.shape[2] // _GROUP)
    for group, n in T.grid(groups, number(_GROUP)):
        valid[group, n] = _valid(scores[b, c, group * _GROUP + n], lowest)
    for n in T.serial(scores.shape[2] % _GROUP):
        valid[groups, n] = _valid(scores[b, c, groups * _GROUP + n], lowest)
    for group in T.serial(groups + 1):
        best[group] = _NONE
        for n in T.serial(number(_GROUP)):
            best[group] = T.max(best[group], valid[group, n])
    last[0] = math.inf
    place[2] = -1


@kernel_text
def _pop_grouped(
    box: Any,
    size: PrimExpr,
    valid: Any,
    best: Any,
    top: Any,
    first: Any,
    lines: Any,
    last: Any,
    place: Any,
) -> None:
    """Remove the best box, or of equal ones the first; or leave the loop."""
    place[0] = 0
    if size >= _GROUP:
        _find_group(best, top, first, lines, last, place)
    group = T.meta_var(inside(place[0], best.shape[0]))
    score = T.meta_var(best[group])
    if score == _NONE:
        T.break_loop()
    # Equal boxes were removed up to the last one. Their scores are not replaced: a vector that is
    # read next would wait until those were in memory.
    place[1] = T.Select(score == last[0], place[2] - group * _GROUP, number(-1))
    for lane in T.vectorized(number(_LANES)):
        numbers = T.meta_var([lane + part for part in range(0, _GROUP, _LANES)])
        is_next = T.meta_var([(valid[group, n] == score) & (n > place[1]) for n in numbers])
        found = T.meta_var(
            [
                T.Select(p, T.Cast("int32", n), T.int32(_LATEST))
                for p, n in zip(is_next, numbers, strict=True)
            ]
        )
        first[0][lane] = functools.reduce(_least, found)
    _fold(first, _least)
    place[1] = first[-1][0]
    for lane in T.vectorized(number(_LANES)):
        numbers = T.meta_var([lane + part for part in range(0, _GROUP, _LANES)])
        is_next = T.meta_var([(valid[group, n] == score) & (n > place[1]) for n in numbers])
        left = T.meta_var(
            [
                T.Select((valid[group, n] < score) | p, valid[group, n], _NONE)
                for p, n in zip(is_next, numbers, strict=True)
            ]
        )
        top[0][lane] = functools.reduce(_greatest, left)
    _fold(top, _greatest)
    last[0] = score
    place[2] = group * _GROUP + place[1]
    best[group] = top[-1][0]
    box[0] = place[2]


@kernel_text
def _find_group(best: Any, top: Any, first: Any, lines: Any, last: Any, place: Any) -> None:
    """Set the place to the first group that has the best box."""
    for lane in T.vectorized(number(_LANES)):
        top[0][lane] = _NONE
    for lane in T.vectorized(number(_LANES)):
        lines[lane] = 0
    for line in T.serial(best.shape[0] // _LANES):
        for lane in T.vectorized(number(_LANES)):
            score = T.meta_var(best[line * _LANES + lane])
            lines[lane] = T.Select(score > top[0][lane], T.Cast("int32", line), lines[lane])
            top[0][lane] = _greatest(score, top[0][lane])
    _fold(top, _greatest)
    last[1] = top[-1][0]
    for lane in T.vectorized(number(_LANES)):
        group = T.meta_var(lines[lane] * _LANES + T.Cast("int32", lane))
        first[0][lane] = T.Select(top[0][lane] == last[1], group, T.int32(_LATEST))
    _fold(first, _least)
    place[0] = first[-1][0]


@kernel_text
def _sort(
    scores: Any,
    b: Any,
    c: Any,
    lowest: Any,
    valid: Any,
    order: Any,
    ranks: Any,
    all_ranks: Any,
    place: Any,
) -> None:
    """Read the scores of a class, where they are so few that all are compared.

    The rank of a box is the number of those before it.
    """
    for n in T.serial(scores.shape[2]):
        valid[n] = _valid(scores[b, c, n], lowest)
    for lane in T.vectorized(ranks.shape[0]):
        ranks[lane] = 0
    for n in T.serial(scores.shape[2]):
        for lane in T.vectorized(ranks.shape[0]):
            is_later = T.meta_var(T.Cast("int32", n) < T.Cast("int32", lane))
            is_before = T.meta_var(
                (valid[n] > valid[lane]) | ((valid[n] == valid[lane]) & is_later)
            )
            ranks[lane] += T.Cast("int32", is_before)
    for lane in T.vectorized(ranks.shape[0]):
        all_ranks[lane] = ranks[lane]
    for n in T.serial(scores.shape[2]):
        order[inside(all_ranks[n], order.shape[0])] = n
    place[0] = 0


@kernel_text
def _pop_sorted(box: Any, size: PrimExpr, valid: Any, order: Any, place: Any) -> None:
    """Remove the best box, or of equal ones the first; or leave the loop."""
    if place[0] >= size:
        T.break_loop()
    found = T.meta_var(inside(order[inside(place[0], size)], size))
    if valid[found] == _NONE:
        T.break_loop()
    box[0] = found
    place[0] += 1


def inside(index: Number, size: Number) -> Number:
    """An index that is known to be at least 0 and less than `size`, so that it needs no test."""
    last = ops.convert(size) - 1
    return ops.maximum(ops.minimum(ops.cast_to(index, "int64"), ops.cast_to(last, "int64")), 0)


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
    if shape is None or not has_key(sinfo.dtype) or not 0 < k <= _MOST:
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
    if shape is None or not has_key(sinfo.dtype) or sinfo.dtype.is_bool:
        return call
    axis = rules.normal_axis(attrs["axis"], len(shape))
    size, dtype = shape[axis], attrs.get("dtype", INT64)
    if not isinstance(size, IntImm) or not 0 < size.value <= _FEWEST or not dtype.is_int:
        return call
    options = {"largest": attrs["descending"], "dtype": str(dtype)}
    both = rules.te_kernel(builder, selected, "sort", data, size.value, axis, **options)
    return TupleGetItem(builder.emit(both), 1 if "dtype" in attrs else 0)


def whole_rows(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that sorts rows of any length; calls whose shapes are unknown are as they were."""
    attrs: Any = call.attrs
    [data] = call.args
    sinfo = tensor_of(builder.struct_info_of(data))
    shape, dtype = literal_shape(sinfo), attrs.get("dtype", INT64)
    if shape is None or not has_key(sinfo.dtype) or not dtype.is_int:
        return call
    axis = rules.normal_axis(attrs["axis"], len(shape))
    largest = attrs["largest"] if "largest" in attrs else attrs["descending"]
    options = {"largest": largest, "dtype": str(dtype)}
    operands = data, attrs.get("k", 0), axis
    both = rules.te_kernel(builder, merged_rows, "merge_sort", *operands, **options)
    kind = attrs.get("ret_type", "indices" if "dtype" in attrs else "values")
    return TupleGetItem(builder.emit(both), _FIELDS[kind]) if kind in _FIELDS else both


def merged_rows(data: Tensor, k: int, axis: int, *, largest: bool, dtype: str) -> Any:
    """The first `k` elements in order along an axis, all if k is not positive; and their indices.

    As `selected`, for any number of elements, which need not be known.
    """
    sizes = list(data.shape)
    length = sizes.pop(axis)
    count = length if k <= 0 else ops.minimum(length, ops.const(k, length.dtype))
    shape = (*sizes[:axis], count, *sizes[axis:])
    outputs = {"values": (shape, str(data.dtype)), "indices": (shape, dtype)}
    kind = "int64" if data.dtype.bits > 32 else "int32"

    def at(row: Row, place: PrimExpr) -> Row:
        return (*row[:axis], place, *row[axis:])

    def key(value: PrimExpr) -> PrimExpr:
        return order_key(value, kind, largest=largest)

    options = {"sizes": sizes, "size": length, "count": count, "kind": kind, "at": at, "key": key}
    return written("merge_sort", outputs, {"data": data}, _merge_sort, **options)


@kernel_text
def _merge_sort(
    data: Any,
    values: Any,
    indices: Any,
    sizes: Row,
    size: PrimExpr,
    count: PrimExpr,
    kind: str,
    at: Any,
    key: Any,
) -> None:
    """Sorted runs of a row are merged in pairs; the places alternate between two buffers."""
    keys, places = T.decl_buffer((size,), kind), T.decl_buffer((2, size), "int64")
    side, width, left, middle, right, place = [T.decl_buffer((1,), "int64") for _ in range(6)]
    for (*row,) in T.grid(*sizes):
        for k in T.serial(size):
            keys[k] = key(data[at(row, k)])
            places[0, k] = T.Cast("int64", k)
        side[0] = 0
        width[0] = 1
        while width[0] < size:
            old, new = T.meta_var((inside(side[0], 2), inside(1 - side[0], 2)))
            place[0] = 0
            while place[0] < size:
                left[0] = place[0]
                middle[0] = T.min(place[0] + width[0], size)
                right[0] = middle[0]
                end = T.min(middle[0] + width[0], size)
                while place[0] < end:
                    first = T.meta_var(places[old, inside(left[0], size)])
                    second = T.meta_var(places[old, inside(right[0], size)])
                    is_better = T.meta_var(keys[inside(first, size)] >= keys[inside(second, size)])
                    if (left[0] < middle[0]) & ((right[0] >= end) | is_better):
                        places[new, inside(place[0], size)] = first
                        left[0] = left[0] + 1
                    else:
                        places[new, inside(place[0], size)] = second
                        right[0] = right[0] + 1
                    place[0] = place[0] + 1
            side[0] = 1 - side[0]
            width[0] = width[0] * 2
        for k in T.serial(count):
            found = T.meta_var(inside(places[inside(side[0], 2), k], size))
            indices[at(row, k)] = T.Cast(indices.dtype, found)
            values[at(row, k)] = data[at(row, found)]


def median(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that counts elements; others are a call of the runtime."""
    attrs: Any = call.attrs
    sinfo = tensor_of(builder.struct_info_of(call.args[0]))
    shape = literal_shape(sinfo)
    if shape is None or not has_key(sinfo.dtype):
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
    if shape is None or kept is None or not has_key(sinfo.dtype):
        return call
    axis = rules.normal_axis(attrs["axis"], len(shape))
    size = shape[axis]
    if kept and not all(map(rules.same, kept, (*shape[:axis], rules.one(), *shape[axis + 1 :]))):
        return call
    if not isinstance(size, IntImm) or not 0 < size.value <= _LATEST:
        return call
    return rules.te_kernel(builder, ranked, "nth_index", *call.args, (axis,), ("indices",), True)


def has_key(dtype: DataType) -> bool:
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
