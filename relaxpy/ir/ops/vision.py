"""Operators on boxes that were detected in images, or predicted as moves of anchors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import FLOAT32, INT32, INT64, Array
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.ops.definition.signature import integer_literal
from relaxpy.ir.ops.regions import (
    non_max_suppression as non_max_suppression,
    roi_align as roi_align,
    roi_pool as roi_pool,
)
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape, tensor_of
from relaxpy.ir.te.topi.shapes import product, shape_text
from relaxpy.ir.tir import ops
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


class _Boxes:
    """The expressions of a call: columns (batch, n, 1) of moves, columns (1, n, 1) of anchors."""

    def __init__(self, builder: BlockBuilder, call: rx.Call) -> None:
        self.builder = builder
        self.attrs: Any = call.attrs
        scores: Any
        scores, moves, anchors = call.args
        batch, _, count = gradients.require_shape(scores, "multibox_transform_loc")
        self.shape = rx.ShapeExpr((batch, count, ops.const(4, INT64)))
        self.scores = scores
        self.dtype = scores.struct_info.dtype
        columns = self.columns(R.reshape(moves, self.shape))
        factors: Any = call.attrs["variances"]
        self.moves = [
            self.bound(column * self.number(factor))
            for column, factor in zip(columns, factors, strict=True)
        ]
        left, top, right, bottom = self.columns(anchors)
        self.sides = self.bound(right - left), self.bound(bottom - top)
        self.middles = ((left + right) * self.number(0.5), (top + bottom) * self.number(0.5))
        self.halves = [self.bound(self.number(0.5) * R.exp(move)) for move in self.moves[2:]]

    def number(self, value: float) -> Any:
        return rx.const(value, self.dtype)

    def bound(self, value: Any) -> Any:
        return self.builder.emit(value)

    def columns(self, boxes: Any) -> list[Any]:
        """The four fields of boxes along the last axis."""
        boxes = self.bound(boxes)
        return [self.bound(R.strided_slice(boxes, [2], [k], [k + 1])) for k in range(4)]

    def unclipped(self) -> Any:
        """The boxes as [ymin, xmin, ymax, xmax]."""
        low, high = [], []
        for axis in (1, 0):
            side = self.sides[axis]
            middle = self.bound(self.moves[axis] * side + self.middles[axis])
            half = self.bound(self.halves[axis] * side)
            low.append(self.bound(middle - half))
            high.append(self.bound(middle + half))
        return R.concat([*low, *high], axis=2)

    def probabilities(self) -> Any:
        """The scores before the threshold."""
        softmax = self.attrs["apply_softmax"]
        return self.bound(R.nn.softmax(self.scores, 1)) if softmax else self.scores

    def kept(self, values: Any, probabilities: Any) -> Any:
        """Values times 1 where a score reaches the threshold, or 0; and 0 for the background."""
        reaches = R.greater_equal(probabilities, self.number(self.attrs["threshold"]))
        values = self.bound(values * R.astype(reaches, self.dtype))
        if self.attrs["keep_background"]:
            return values
        classes = self.scores.struct_info.shape.values[1]
        number = R.reshape(R.arange(0, rx.PrimValue(classes), 1, "int64"), (1, -1, 1))
        return R.where(R.greater(number, rx.const(0, "int64")), values, self.number(0))


def _legalize(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    new = _Boxes(builder, call)
    boxes, probabilities = new.unclipped(), new.probabilities()
    if call.attrs["clip"]:
        boxes = R.clip(new.bound(boxes), 0, 1)
    return rx.Tuple((new.bound(boxes), new.bound(new.kept(probabilities, probabilities))))


def _gradient(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """The chain rule: a box is its middle plus or minus half of its side."""
    new = _Boxes(builder, call)
    to_boxes: Any
    to_scores: Any
    to_boxes, to_scores = gradients.tuple_fields(gradient, 2)
    if call.attrs["clip"]:
        boxes = new.bound(new.unclipped())
        zero, one = new.number(0), new.number(1)
        inside = R.logical_and(R.greater(boxes, zero), R.less(boxes, one))
        to_boxes = to_boxes * R.astype(inside, new.dtype)
    low_high = new.columns(to_boxes)
    moves: list[Any] = [None] * 4
    anchors: list[Any] = [None] * 4
    for axis in (0, 1):
        low, high = low_high[1 - axis], low_high[3 - axis]
        to_middle, to_half = new.bound(low + high), new.bound(high - low)
        side, half = new.sides[axis], new.halves[axis]
        factors = new.attrs["variances"][axis::2]
        moves[axis] = to_middle * side * new.number(factors[0])
        moves[2 + axis] = to_half * half * side * new.number(factors[1])
        to_side = new.bound(to_middle * new.moves[axis] + to_half * half)
        part = new.bound(to_middle * new.number(0.5))
        anchors[axis], anchors[2 + axis] = part - to_side, part + to_side
    to_moves = R.concat([new.bound(move) for move in moves], axis=2)
    to_anchors = R.concat([new.bound(anchor) for anchor in anchors], axis=2)
    probabilities = new.probabilities()
    to_scores = new.bound(new.kept(to_scores, probabilities))
    if call.attrs["apply_softmax"]:
        total = R.sum(new.bound(to_scores * probabilities), [1], keepdims=True)
        to_scores = probabilities * (to_scores - total)
    flat = rx.ShapeExpr(gradients.require_shape(call.args[1], "multibox_transform_loc"))
    return [
        to_scores,
        R.reshape(new.bound(to_moves), flat),
        R.sum(new.bound(to_anchors), [0], keepdims=True),
    ]


@register(
    "relax.vision.multibox_transform_loc",
    pure=True,
    legalize=_legalize,
    gradient=gradients.gradient_in_float32(_gradient),
)
def multibox_transform_loc(
    cls_pred: rx.TensorStructInfo,
    loc_pred: rx.TensorStructInfo,
    anchor: rx.TensorStructInfo,
    clip: bool = False,
    threshold: float = 0.0,
    variances: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0),
    keep_background: bool = True,
    apply_softmax: bool = True,
) -> rx.TupleStructInfo:
    """The boxes that anchors become by predicted moves, and the scores of their classes.

    With the moves (x, y, w, h) times `variances`, the middle of a box is that of its anchor plus x
    widths and y heights of it, and its width and height are those of the anchor times exp(w) and
    exp(h). With `clip`, coordinates are between 0 and 1. Scores are 0 below `threshold`, and those
    of class 0 without `keep_background`.

    Shapes:
        cls_pred  (batch, classes, n), floats: scores, or logits with `apply_softmax`
        loc_pred  (batch, 4 * n): the moves
        anchor    (1, n, 4): left, top, right, bottom
        result    (batch, n, 4): ymin, xmin, ymax, xmax; as cls_pred: the scores
    Errors:
        StructInfoError: an operand has another rank, datatype or shape, or `variances` are not
            four.
    """
    operands = (("cls_pred", cls_pred, 3), ("loc_pred", loc_pred, 2), ("anchor", anchor, 3))
    for name, sinfo, ndim in operands:
        rules.require_float(sinfo, name)
        if sinfo.ndim not in (-1, ndim):
            raise rules.refuse(f"{name} has rank {ndim}, found {sinfo}", sinfo)
        if not (sinfo.dtype.is_void or cls_pred.dtype.is_void) and sinfo.dtype != cls_pred.dtype:
            raise rules.refuse(f"{name} has the datatype of cls_pred, {cls_pred.dtype}", sinfo)
    if len(variances) != 4:
        raise rules.refuse(f"variances are four numbers, found {list(variances)}", variances)
    vdevice = rules.joint_vdevice((cls_pred, loc_pred, anchor), strict=False)
    sizes = literal_shape(cls_pred)
    if sizes is None:
        open_shape = rules.tensor(None, cls_pred.dtype, vdevice, 3)
        return rx.TupleStructInfo((open_shape, open_shape))
    batch, _, count = sizes
    four = ops.const(4, INT64)
    for name, sinfo, expected in (
        ("loc_pred", loc_pred, (batch, four * count)),
        ("anchor", anchor, (ops.const(1, INT64), count, four)),
    ):
        shape = literal_shape(sinfo)
        if shape is not None and any(map(rules.differ, shape, expected)):
            wanted = ", ".join(map(rules.shown, expected))
            raise rules.refuse(
                f"{name} has the shape ({wanted}) for cls_pred {shape_text(sizes)}, found "
                f"{shape_text(shape)}",
                sinfo,
            )
    boxes = rules.tensor((batch, count, four), cls_pred.dtype, vdevice)
    return rx.TupleStructInfo((boxes, rules.tensor(sizes, cls_pred.dtype, vdevice)))


Format: TypeAlias = Literal["onnx", "tensorflow"]
Scalar: TypeAlias = rx.TensorStructInfo | rx.PrimStructInfo

_AT_ONCE: Final = 64
"""The minimum batch of boxes that are compared with those selected before and each other."""


@dataclass(frozen=True, slots=True)
class _CornerBoxes:
    """Boxes of one image: rows of their minimum and maximum coordinates, and of their areas."""

    low: Array
    high: Array
    area: Array

    @staticmethod
    def of(corners: Array) -> _CornerBoxes:
        """The boxes with two opposite corners in each row, computed in float32 at least."""
        dtype = np.result_type(corners.dtype, np.float32)
        sides = np.ascontiguousarray(corners.T, dtype).reshape(2, 2, -1)
        low, high = sides.min(0), sides.max(0)
        return _CornerBoxes(low, high, (high[0] - low[0]) * (high[1] - low[1]))

    def __getitem__(self, index: Array) -> _CornerBoxes:
        """Some of the boxes."""
        return _CornerBoxes(self.low[:, index], self.high[:, index], self.area[index])

    def cover(self, other: _CornerBoxes, iou: float) -> Array:
        """For each pair of boxes, whether their intersection over union (IoU) exceeds `iou`."""
        meet = np.full((self.area.size, other.area.size), True)
        if iou < 0:
            return meet
        for k in range(2):
            meet &= self.low[k][:, None] < other.high[k]
            meet &= other.low[k] < self.high[k][:, None]
        pairs = np.flatnonzero(meet)
        rows, columns = np.divmod(pairs, max(other.area.size, 1))
        first, second = self[rows], other[columns]
        height, width = np.minimum(first.high, second.high) - np.maximum(first.low, second.low)
        shared = height * width
        ratio = shared / (first.area + second.area - shared)
        meet.reshape(-1)[pairs] = ratio > self.area.dtype.type(iou)
        return meet


def _ranked(scores: Array, threshold: float, count: int) -> Iterator[Array]:
    """The boxes above a threshold, best first, at least `count` at a time.

    So few of many boxes are sorted where the first ones are enough.
    """
    left = np.flatnonzero(scores > np.float64(threshold))  # not rounded to their datatype
    while left.size:
        values = scores[left]
        is_first = np.ones(left.size, bool)
        if count < left.size // 2:
            is_first = values >= np.partition(values, left.size - count)[left.size - count]
        order = np.argsort(-values[is_first], kind="stable")
        yield left[is_first][order]
        left, count = left[~is_first], 4 * count


def _select_boxes(corners: Array, scores: Array, count: int, iou: float, threshold: float) -> Array:
    """Non-maximum suppression: the boxes of one class, best first."""
    selected, at_once = np.zeros(0, np.int64), _AT_ONCE
    for ranked in _ranked(scores, threshold, count + _AT_ONCE) if count > 0 else ():
        begin = 0
        while begin < ranked.size:
            some = ranked[begin : begin + at_once]
            begin += at_once
            if selected.size:
                better = _CornerBoxes.of(corners[selected])
                some = some[~better.cover(_CornerBoxes.of(corners[some]), iou).any(0)]
            some = some[_without_covered(_CornerBoxes.of(corners[some]), iou)]
            selected = np.concatenate((selected, some))
            if selected.size >= count:
                return selected[:count]
            # Where few boxes overlap, larger batches need no more calls of NumPy.
            at_once = 4 * _AT_ONCE if 2 * some.size > at_once else _AT_ONCE
    return selected


def _without_covered(boxes: _CornerBoxes, iou: float) -> Array:
    """The mask of the boxes, which are best first, that no better kept box suppresses."""
    covers = np.tril(boxes.cover(boxes, iou), -1)
    is_kept: Array = np.asarray(~covers.any(1))
    # Boxes that overlap no better one are kept at once; the others depend on those before them.
    for k in np.flatnonzero(~is_kept):
        is_kept[k] = not (covers[k] & is_kept).any()
    return is_kept


def _number(value: Any, name: str) -> Any:
    """The number in a scalar or in a tensor of one element."""
    array = np.asarray(value)
    if array.size != 1:
        raise RuntimeCheckError(f"{name} is one number, found {array.size}", rule="DER-36")
    return array.item()


@np.errstate(all="ignore")  # the area of a box may be infinite
def _suppressed(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Any,
    iou_threshold: Any,
    score_threshold: Any,
    output_format: Format = "onnx",
    rows_per_class: int | None = None,
) -> Any:
    count = int(_number(max_output_boxes_per_class, "max_output_boxes_per_class"))
    iou = float(_number(iou_threshold, "iou_threshold"))
    lowest = float(_number(score_threshold, "score_threshold"))
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape != (*scores.shape[::2], 4):
        raise RuntimeCheckError(
            "boxes has shape (batch, boxes, 4) and scores (batch, classes, boxes), "
            f"found {boxes.shape} and {scores.shape}",
            rule="DER-36",
        )
    batches, classes, size = scores.shape
    if rows_per_class is not None:
        size = min(size, rows_per_class)
    count = min(count, size)
    by_batch: list[Array] = []
    for corners, rows in zip(boxes, scores, strict=True):
        found = [_select_boxes(corners, row, count, iou, lowest) for row in rows]
        kinds = np.repeat(np.arange(classes), list(map(len, found)))
        by_batch.append(
            np.stack((kinds, np.concatenate(found)), 1) if found else np.zeros((0, 2), np.int64)
        )
    totals = np.array(list(map(len, by_batch)), np.int64)
    if output_format == "onnx":
        indices = np.full((batches * classes * size, 3), -1, np.int64)
        total = totals.sum(keepdims=True)
        indices[: total[0], 0] = np.repeat(np.arange(batches), totals.astype(np.intp))
        if by_batch:
            indices[: total[0], 1:] = np.concatenate(by_batch)
        return indices, total
    indices = np.full((batches, classes * size, 2), -1, np.int64)
    values = np.zeros((batches, classes * size), np.float32)
    for batch, selected in enumerate(by_batch):
        kinds, places = selected.T
        indices[batch, : totals[batch]] = selected
        values[batch, : totals[batch]] = scores[batch, kinds, places]
    return indices, values, totals


@register(
    "relax.vision.all_class_non_max_suppression",
    pure=True,
    runtime=_suppressed,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:suppressed"),
    gradient=gradients.no_gradient,
)
def all_class_non_max_suppression(
    boxes: rx.TensorStructInfo,
    scores: rx.TensorStructInfo,
    max_output_boxes_per_class: Scalar,
    iou_threshold: Scalar,
    score_threshold: Scalar,
    output_format: Format = "onnx",
    rows_per_class: int | None = None,
) -> rx.TupleStructInfo:
    """Non-maximum suppression: the boxes of each class, best first, without overlapping ones.

    Only scores above `score_threshold` count. Boxes overlap too much if the ratio of the areas of
    their intersection and their union exceeds `iou_threshold`. Of each class,
    `max_output_boxes_per_class` are kept at most, and no more than `rows_per_class`, for which the
    result has rows: a result of few rows takes less time.

    Shapes:
        boxes   (batch, n, 4), floats: two opposite corners [y1, x1, y2, x2] of each
        scores  (batch, classes, n), floats
        result  "onnx": (batch * classes * m, 3) of [batch, class, box] and (1,), their number;
                "tensorflow": (batch, classes * m, 2) of [class, box], (batch, classes * m), their
                scores in float32, and (batch,), their numbers; after these, indices are -1 and
                scores 0; m is n, or the minimum of n and `rows_per_class`; integers are int64
    Errors:
        StructInfoError: boxes or scores have another rank than 3 or hold no floats, two known sizes
            of them differ, a box has not 4 coordinates, the number of boxes is not an integer, a
            limit is a tensor of several elements, or `rows_per_class` is negative.
    Rule:
        ONNX, NonMaxSuppression.
    """
    for name, sinfo in (("boxes", boxes), ("scores", scores)):
        rules.require_float(sinfo, name)
        if sinfo.ndim not in (-1, 3):
            raise rules.refuse(f"{name} has rank 3, found {sinfo}", sinfo)
    count = max_output_boxes_per_class
    rules.require_integer(count.dtype, "max_output_boxes_per_class", count)
    _require_number(count, "max_output_boxes_per_class")
    _require_number(iou_threshold, "iou_threshold")
    _require_number(score_threshold, "score_threshold")
    if rows_per_class is not None and rows_per_class < 0:
        raise rules.refuse(f"rows_per_class is 0 or more, found {rows_per_class}", rows_per_class)
    sizes, box_sizes = literal_shape(scores), literal_shape(boxes)
    if box_sizes is not None:
        _require_size(boxes, "boxes", 2, ops.const(4, INT64), "4 coordinates of a box")
    if sizes is not None and box_sizes is not None:
        reason = f"as scores {shape_text(sizes)} has"
        _require_size(boxes, "boxes", 0, sizes[0], reason)
        _require_size(boxes, "boxes", 1, sizes[2], reason)
    vdevice = rules.joint_vdevice((boxes, scores), strict=False)
    total = rules.tensor((ops.const(1, INT64),), INT64, vdevice)
    if sizes is not None and rows_per_class is not None:
        sizes = *sizes[:2], ops.minimum(sizes[2], ops.const(rows_per_class, INT64))
    if output_format == "onnx":
        if sizes is None:
            return rx.TupleStructInfo((rules.tensor(None, INT64, vdevice, 2), total))
        rows = product(sizes), ops.const(3, INT64)
        return rx.TupleStructInfo((rules.tensor(rows, INT64, vdevice), total))
    if sizes is None:
        batch = None if box_sizes is None else box_sizes[:1]
        return rx.TupleStructInfo(
            (
                rules.tensor(None, INT64, vdevice, 3),
                rules.tensor(None, FLOAT32, vdevice, 2),
                rules.tensor(batch, INT64, vdevice, 1),
            )
        )
    per_image = sizes[0], product(sizes[1:])
    return rx.TupleStructInfo(
        (
            rules.tensor((*per_image, ops.const(2, INT64)), INT64, vdevice),
            rules.tensor(per_image, FLOAT32, vdevice),
            rules.tensor(sizes[:1], INT64, vdevice),
        )
    )


def _require_number(sinfo: Scalar, name: str) -> None:
    shape = literal_shape(sinfo)
    if shape is not None and rules.differ(product(shape), ops.const(1, INT64)):
        raise rules.refuse(f"{name} is one number, found {sinfo}", sinfo)


def _require_size(
    sinfo: rx.TensorStructInfo, name: str, axis: int, expected: Any, reason: str
) -> None:
    shape = literal_shape(sinfo)
    assert shape is not None
    if rules.differ(shape[axis], expected):
        raise rules.refuse(
            f"dimension {axis} of {name} {shape_text(shape)} is {rules.shown(expected)}, "
            f"{reason}; found "
            f"{rules.shown(shape[axis])}",
            sinfo,
        )


def valid_counts(data: Any, threshold: Any, id_index: int, score_index: int) -> rx.Expr:
    """The results of `get_valid_counts` from operators, for a threshold in the datatype of data."""
    shape = rx.ShapeExpr(gradients.require_shape(data, "get_valid_counts"))
    dtype = data.struct_info.dtype

    def field(index: int) -> Any:
        return R.squeeze(R.strided_slice(data, [2], [index], [index + 1]), [2])

    is_valid = R.greater(field(score_index), threshold)
    if id_index >= 0:
        is_valid = R.logical_and(is_valid, R.greater_equal(field(id_index), rx.const(0, dtype)))
    flags = R.astype(is_valid, "int32")
    totals = R.sum(flags, [1])
    valid_before = R.cumsum(flags, 1, exclusive=True)
    others_before = R.cumsum(rx.const(1, "int32") - flags, 1, exclusive=True)
    places = R.where(is_valid, valid_before, R.expand_dims(totals, 1) + others_before)
    index = valid_before + others_before
    indices = R.where(is_valid, index, rx.const(-1, "int32"))
    rows = R.where(R.expand_dims(is_valid, 2), data, rx.const(-1, dtype))
    row_places = R.broadcast_to(R.expand_dims(places, 2), shape)
    moved = R.scatter_elements(data, row_places, rows, axis=1)
    return rx.Tuple((totals, moved, R.scatter_elements(indices, places, indices, axis=1)))


def _legalize_valid_counts(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    [data] = call.args
    attrs: Any = call.attrs
    sinfo = tensor_of(builder.struct_info_of(data))
    threshold = rx.const(attrs["score_threshold"], sinfo.dtype)
    return valid_counts(data, threshold, attrs["id_index"], attrs["score_index"])


def _gradient_valid_counts(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """The rows of the gradient in the places from which the rows of the result were moved."""
    [data] = call.args
    _, moved, _ = gradients.tuple_fields(gradient, 3)
    indices = rx.TupleGetItem(var, 2)
    is_kept = R.greater_equal(indices, rx.const(0, "int32"))
    places = R.maximum(indices, rx.const(0, "int32"))
    return [
        R.scatter_elements(
            R.zeros_like(data),
            R.broadcast_to(R.expand_dims(places, 2), gradients.shape_like(data)),
            gradients.masked(moved, R.expand_dims(is_kept, 2)),
            axis=1,
            reduction="add",  # places of rows that were not moved occur several times, and add 0
        )
    ]


@register(
    "relax.vision.get_valid_counts",
    pure=True,
    legalize=_legalize_valid_counts,
    gradient=_gradient_valid_counts,
)
def get_valid_counts(
    data: rx.TensorStructInfo, score_threshold: float = 0, id_index: int = 0, score_index: int = 1
) -> rx.TupleStructInfo:
    """The number of valid boxes of each image, the boxes with these first, and their positions.

    A box is valid if its score exceeds the threshold and its class, unless `id_index` is -1, is 0
    or above. The valid boxes keep their order; rows after them are -1.

    Shapes:
        data    (batch, n, fields), floats: a score and a class of each box among its fields
        result  (batch,), the numbers, in int32; as data, the boxes; (batch, n), the positions of
                the boxes in data, in int32
    Errors:
        StructInfoError: data has another rank or holds no floats, or an index is not that of
            a field.
    """
    rules.require_float(data, "data")
    if data.ndim not in (-1, 3):
        raise rules.refuse(f"data has rank 3, found {data}", data)
    shape = literal_shape(data)
    fields = None if shape is None else integer_literal(shape[2])
    for name, index, least in (("score_index", score_index, 0), ("id_index", id_index, -1)):
        if index < least or (fields is not None and index >= fields):
            raise rules.refuse(
                f"{name} is at least {least} and below the number of fields, found {index} for "
                f"{data}",
                data,
            )
    vdevice = data.vdevice
    if shape is None:
        boxes = rules.tensor(None, data.dtype, vdevice, 3)
        return rx.TupleStructInfo(
            (rules.tensor(None, INT32, vdevice, 1), boxes, rules.tensor(None, INT32, vdevice, 2))
        )
    return rx.TupleStructInfo(
        (rules.tensor(shape[:1], INT32, vdevice), data, rules.tensor(shape[:2], INT32, vdevice))
    )
