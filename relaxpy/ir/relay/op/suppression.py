"""Non-maximum suppression: boxes without those that overlap a better one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relay.op.define import Args, define_emit
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.selection import (
    Element,
    areas,
    as_vector,
    at,
    below,
    best_first,
    computed,
    constant_of,
    corners,
    emit_tensors,
    flag,
    is_set,
    number_tensor,
    ordered,
    ratio,
    require_rank,
    require_size,
    survivors,
)
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import PrimExpr


def _non_max_suppression(builder: BlockBuilder, args: Args, attrs: Any) -> rx.Expr:
    """Boxes in the order of their scores, without those that overlap a better one of their class.

    Boxes whose score is not positive neither count nor remove others. A threshold that is not
    positive keeps all boxes in their order.
    """
    suppression = _Suppression(attrs)
    keys = emit_tensors(builder, "keys", suppression.keys, *args)
    order = best_first(builder, keys)
    names = "present", "boxes", "order"
    chosen = emit_tensors(builder, "suppressed", suppression.present, *args, order)
    present, boxes, order = (
        builder.emit(rx.TupleGetItem(chosen, k), name) for k, name in enumerate(names)
    )
    if attrs["return_indices"]:
        front = best_first(builder, present)
        return builder.call_te(suppression.indices, present, front, order, args[2])
    if not attrs["invalid_to_bottom"]:
        return builder.call_te(suppression.boxes, present, boxes)
    kept = emit_tensors(builder, "kept", suppression.valid_boxes, present, boxes)
    valid, boxes = (builder.emit(rx.TupleGetItem(kept, k)) for k in (0, 1))
    return builder.call_te(suppression.moved, valid, boxes, best_first(builder, valid))


class _Suppression:
    """The tensor expressions of a non-maximum suppression."""

    def __init__(self, attrs: Any) -> None:
        names = "score_index", "id_index", "coord_start", "top_k"
        self.score, self.kind, self.first, self.top = (int(attrs[name]) for name in names)
        self.force_suppress = bool(attrs["force_suppress"])

    def keys(
        self, data: Tensor, valid: Tensor, indices: Tensor, limit: Tensor, iou: Tensor
    ) -> Tensor:
        """Check the operands, and return the scores (batch, count), the lowest if not valid."""
        ranks = ("data", data, 3), ("valid_count", valid, 1), ("indices", indices, 2)
        for name, tensor, rank in ranks:
            require_rank(tensor, name, rank)
        require_size(valid, "valid_count", 0, data.shape[0])
        for axis in (0, 1):
            require_size(indices, "indices", axis, data.shape[axis])
        width = data.shape[2]
        last = max(self.score, self.kind, self.first + 3)
        if isinstance(width, tir.IntImm) and last >= width.value:
            raise RelationError(
                f"a box has a score, a class and 4 coordinates in {width.value} fields"
            )
        lowest = intrin.min_value(str(data.dtype))

        def key(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            return intrin.if_then_else(below(j, valid(i)), at(data, i, j, self.score), lowest)

        return computed(data.shape[:2], key, "keys")

    def present(
        self,
        data: Tensor,
        valid: Tensor,
        indices: Tensor,
        limit: Tensor,
        iou: Tensor,
        ranked: Tensor,
    ) -> list[Tensor]:
        """Return which boxes are kept (1, otherwise 0), the boxes in order, and their positions."""
        shape, zero = data.shape[:2], constant_of(0, data)
        limit, iou = as_vector(limit, "max_output_size"), as_vector(iou, "iou_threshold")

        def is_off() -> PrimExpr:
            return ops.compare(tir.LE, at(iou, 0), ops.const(0, str(iou.dtype)))

        def position(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            return intrin.if_then_else(is_off(), ops.cast_to(j, "int32"), ranked(i, j))

        def is_kept(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            """Whether a box is valid and one of the first `top_k`."""
            is_top = ops.any_of(is_off(), below(j, ops.const(self.top, "int32")))
            return ops.all_of(below(j, valid(i)), is_top) if self.top > 0 else below(j, valid(i))

        def is_positive(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            return ops.compare(tir.GT, at(boxes, i, j, self.score), zero)

        def is_candidate(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            return flag(ops.all_of(ops.logical_not(is_off()), is_kept(i, j), is_positive(i, j)))

        def is_present(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            is_room = ops.compare(tir.NE, total(i), ops.cast_to(at(limit, 0), "int32"))
            is_other = ops.all_of(ops.logical_not(is_positive(i, j)), is_room)
            is_rest = ops.all_of(is_kept(i, j), ops.any_of(is_off(), is_other))
            return flag(ops.any_of(is_set(chosen(i, j)), is_rest))

        order = computed(shape, position, "order")
        boxes = computed(data.shape, lambda i, j, k: data(i, order(i, j), k), "boxes_in_order")
        candidates = computed(shape, is_candidate, "candidates")
        chosen, total = survivors(candidates, boxes, limit, iou, self._overlap)
        return [computed(shape, is_present, "present"), boxes, order]

    def _overlap(self, field: Element, j: PrimExpr, k: PrimExpr, least: PrimExpr) -> PrimExpr:
        one, other = (ordered(corners(field, position, self.first)) for position in (j, k))
        shared, a, b = areas(one, other)
        zero = ops.const(0, str(a.dtype))
        is_empty = ops.compare(tir.LE, ops.sub(ops.add(a, b), shared), zero)
        overlap = ratio(shared, a, b, is_empty)
        conditions = [ops.compare(tir.GE, overlap, ops.cast_to(least, str(a.dtype)))]
        if self.kind >= 0:
            conditions.append(ops.compare(tir.GE, field(j, self.kind), zero))
            if not self.force_suppress:
                same = ops.compare(tir.EQ, field(j, self.kind), field(k, self.kind))
                conditions.append(same)
        return ops.all_of(*conditions)

    def indices(
        self, present: Tensor, front: Tensor, order: Tensor, indices: Tensor
    ) -> list[Tensor]:
        """Return the indices of the boxes that are kept, then -1, and their number."""
        count = topi.sum(present, axis=1, keepdims=True)

        def index(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            found = ops.cast_to(indices(i, order(i, front(i, j))), "int32")
            return intrin.if_then_else(below(j, at(count, i, 0)), found, ops.const(-1, "int32"))

        return [computed(present.shape, index, "box_indices"), count]

    def boxes(self, present: Tensor, boxes: Tensor) -> Tensor:
        """Return the boxes that are kept, in their places, and -1 in those of the others."""

        def box(i: PrimExpr, j: PrimExpr, k: PrimExpr) -> PrimExpr:
            return intrin.if_then_else(
                is_set(present(i, j)), boxes(i, j, k), constant_of(-1, boxes)
            )

        return computed(boxes.shape, box, "kept_boxes")

    def valid_boxes(self, present: Tensor, boxes: Tensor) -> list[Tensor]:
        """Return which boxes are kept and have a first field that is not negative; the boxes."""
        kept, zero = self.boxes(present, boxes), constant_of(0, boxes)

        def is_valid(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            return flag(ops.compare(tir.GE, at(kept, i, j, 0), zero))

        return [computed(present.shape, is_valid, "is_valid"), kept]

    def moved(self, valid: Tensor, boxes: Tensor, front: Tensor) -> Tensor:
        """Return the valid boxes, then -1."""
        count = topi.sum(valid, axis=1)

        def box(i: PrimExpr, j: PrimExpr, k: PrimExpr) -> PrimExpr:
            return intrin.if_then_else(
                below(j, count(i)), boxes(i, front(i, j), k), constant_of(-1, boxes)
            )

        return computed(boxes.shape, box, "moved_boxes")


define_emit(
    "vision.non_max_suppression",
    "data valid_count indices max_output_size iou_threshold",
    _non_max_suppression,
    {
        "force_suppress": False,
        "top_k": -1,
        "coord_start": 2,
        "score_index": 1,
        "id_index": 0,
        "return_indices": True,
        "invalid_to_bottom": False,
    },
    results=lambda _, attrs: 2 if attrs["return_indices"] else 1,
)


def _regular_non_max_suppression(builder: BlockBuilder, args: Args, attrs: Any) -> rx.Expr:
    """The best boxes of all classes, each without those that overlap a better one of its class."""
    of_classes = _OfClasses(attrs)
    keys = emit_tensors(builder, "class_scores", of_classes.keys, *args)
    chosen = emit_tensors(
        builder, "chosen", of_classes.chosen, args[0], keys, best_first(builder, keys)
    )
    fields, scores, totals = (builder.emit(rx.TupleGetItem(chosen, k)) for k in range(3))
    best = best_first(builder, scores)
    return builder.call_te(of_classes.detections, args[0], fields, scores, totals, best)


class _OfClasses:
    """The tensor expressions of a suppression for each class: a row for each class of an image."""

    def __init__(self, attrs: Any) -> None:
        self.attrs = attrs
        self.most, self.classes = int(attrs["max_detections"]), int(attrs["num_classes"])
        self.number = ops.const(self.classes, "int64")

    def keys(self, boxes: Tensor, scores: Tensor) -> Tensor:
        """Check the operands, and return the scores of each row; the lowest if one is too low."""
        require_rank(boxes, "boxes", 3)
        require_rank(scores, "scores", 3)
        require_size(boxes, "boxes", 2, 4)
        for axis in (0, 1):
            require_size(scores, "scores", axis, boxes.shape[axis])
        batch, count, labels = scores.shape
        if not isinstance(labels, tir.IntImm) or not 0 < self.classes <= labels.value:
            found = labels.value if isinstance(labels, tir.IntImm) else "which is not known"
            raise RelationError(
                f"num_classes is at most the number of classes, {found}, found {self.classes}"
            )
        if self.most <= 0:
            raise RelationError(f"max_detections is positive, found {self.most}")
        offset = ops.const(labels.value - self.classes, "int64")
        least = constant_of(self.attrs["score_threshold"], scores)

        def key(row: PrimExpr, j: PrimExpr) -> PrimExpr:
            kind = ops.add(ops.floormod(row, self.number), offset)
            value = scores(ops.floordiv(row, self.number), j, kind)
            is_enough = ops.compare(tir.GE, value, least)
            return intrin.if_then_else(is_enough, value, intrin.min_value(str(scores.dtype)))

        return computed((ops.mul(batch, self.number), count), key, "keys")

    def chosen(self, boxes: Tensor, keys: Tensor, order: Tensor) -> list[Tensor]:
        """Return the boxes of each row in order, the scores of those kept, and their number."""
        lowest = intrin.min_value(str(keys.dtype))
        rows, count = keys.shape
        ranked = computed(keys.shape, lambda i, j: keys(i, order(i, j)), "ranked")
        candidates = computed(
            keys.shape, lambda i, j: flag(ops.compare(tir.GT, ranked(i, j), lowest)), "candidates"
        )
        fields = computed(
            (rows, count, ops.const(4, "int64")),
            lambda i, j, k: boxes(ops.floordiv(i, self.number), order(i, j), k),
            "boxes_in_order",
        )
        limit = number_tensor(self.attrs["max_detections_per_class"], "int32")
        threshold = number_tensor(self.attrs["iou_threshold"], str(boxes.dtype))
        taken, totals = survivors(candidates, fields, limit, threshold, self._overlap)
        width = ops.mul(self.number, count)

        def score(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            row, place = self._row(i, j, count)
            return intrin.if_then_else(is_set(taken(row, place)), ranked(row, place), lowest)

        return [fields, computed((boxes.shape[0], width), score, "kept_scores"), totals]

    def _row(self, i: PrimExpr, j: PrimExpr, count: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """Return the row, and the position in it, of position j among all boxes of image i."""
        row = ops.add(ops.mul(i, self.number), ops.floordiv(j, count))
        return row, ops.floormod(j, count)

    def _overlap(self, field: Element, j: PrimExpr, k: PrimExpr, least: PrimExpr) -> PrimExpr:
        shared, a, b = areas(corners(field, j), corners(field, k))
        zero = ops.const(0, str(a.dtype))
        is_empty = ops.any_of(ops.compare(tir.LE, a, zero), ops.compare(tir.LE, b, zero))
        return ops.compare(tir.GT, ratio(shared, a, b, is_empty), least)

    def detections(
        self, boxes: Tensor, fields: Tensor, scores: Tensor, totals: Tensor, best: Tensor
    ) -> list[Tensor]:
        """Return the boxes, classes and scores of the best, then zeros, and their number."""
        batch, count = boxes.shape[:2]
        per_image = topi.sum(topi.reshape(totals, (batch, self.number)), axis=1)
        most = ops.const(self.most, "int32")
        number = computed((batch,), lambda i: ops.minimum(per_image(i), most), "num_detections")

        def result(rest: Sequence[int], dtype: str, value: Callable[..., PrimExpr]) -> Tensor:
            def element(i: PrimExpr, j: PrimExpr, *k: PrimExpr) -> PrimExpr:
                found = value(i, ops.cast_to(best(i, j), "int64"), *k)
                return intrin.if_then_else(below(j, number(i)), found, ops.const(0, dtype))

            sizes = (batch, *(ops.const(size, "int64") for size in (self.most, *rest)))
            return computed(sizes, element, "detections")

        def coordinate(i: PrimExpr, place: PrimExpr, k: PrimExpr) -> PrimExpr:
            return fields(*self._row(i, place, count), k)

        def kind(i: PrimExpr, place: PrimExpr) -> PrimExpr:
            return ops.cast_to(ops.floordiv(place, count), "float32")

        return [
            result([4], str(boxes.dtype), coordinate),
            result([], "float32", kind),
            result([], str(scores.dtype), scores),
            number,
        ]


define_emit(
    "vision.regular_non_max_suppression",
    "boxes scores",
    _regular_non_max_suppression,
    {
        "max_detections_per_class": REQUIRED,
        "max_detections": REQUIRED,
        "num_classes": REQUIRED,
        "iou_threshold": REQUIRED,
        "score_threshold": REQUIRED,
    },
    results=4,
)
