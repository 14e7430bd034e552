"""Operators on boxes that a detector predicts as moves of anchors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import require_shape, tuple_fields
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.relax.op.definition.widening import gradient_in_float32
from relaxpy.ir.te.topi.shapes import shape_text
from relaxpy.ir.tir import ops

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


class _Boxes:
    """The expressions of a call: columns (batch, n, 1) of moves, columns (1, n, 1) of anchors."""

    def __init__(self, builder: BlockBuilder, call: rx.Call) -> None:
        self.builder = builder
        self.attrs: Any = call.attrs
        scores: Any
        scores, moves, anchors = call.args
        batch, _, count = require_shape(scores, "multibox_transform_loc")
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
    to_boxes, to_scores = tuple_fields(gradient, 2)
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
    flat = rx.ShapeExpr(require_shape(call.args[1], "multibox_transform_loc"))
    return [
        to_scores,
        R.reshape(new.bound(to_moves), flat),
        R.sum(new.bound(to_anchors), [0], keepdims=True),
    ]


@register(
    "relax.vision.multibox_transform_loc",
    pure=True,
    legalize=_legalize,
    gradient=gradient_in_float32(_gradient),
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
    sizes = rules.literal_shape(cls_pred)
    if sizes is None:
        open_shape = rules.tensor(None, cls_pred.dtype, vdevice, 3)
        return rx.TupleStructInfo((open_shape, open_shape))
    batch, _, count = sizes
    four = ops.const(4, INT64)
    for name, sinfo, expected in (
        ("loc_pred", loc_pred, (batch, ops.mul(four, count))),
        ("anchor", anchor, (ops.const(1, INT64), count, four)),
    ):
        shape = rules.literal_shape(sinfo)
        if shape is not None and any(map(rules.differ, shape, expected)):
            wanted = ", ".join(map(rules.shown, expected))
            raise rules.refuse(
                f"{name} has the shape ({wanted}) for cls_pred {shape_text(sizes)}, found "
                f"{shape_text(shape)}",
                sinfo,
            )
    boxes = rules.tensor((batch, count, four), cls_pred.dtype, vdevice)
    return rx.TupleStructInfo((boxes, rules.tensor(sizes, cls_pred.dtype, vdevice)))
