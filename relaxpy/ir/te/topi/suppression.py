"""Non-maximum suppression of boxes that were detected in images."""

from __future__ import annotations

from typing import Any

from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.loops import Loops, Number, written
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.sorting import argsort
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import exp


def suppressed(
    data: Tensor,
    count: Tensor,
    indices: Tensor,
    *,
    max_output_size: int,
    iou_threshold: float,
    force_suppress: bool,
    top_k: int,
    coord_start: int,
    score_index: int,
    id_index: int,
    return_indices: bool,
    invalid_to_bottom: bool,
    soft_nms_sigma: float,
    score_threshold: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The boxes, best first, the entries of `indices` for the selected ones, and their number.

    All are -1 where no box remains. Boxes follow each other if scores decay, or with
    `invalid_to_bottom`, and indices with `return_indices`.
    """
    dtype, (batch, size, fields) = str(data.dtype), data.shape
    lowest = ops.const(-float("inf"), dtype)

    def score(b: Number, j: Number) -> Number:
        return Select(j < count[b], data(b, j, score_index), lowest)

    ranked = te.compute((batch, size), score, name="ranked")
    order = argsort(ranked, axis=1, is_ascend=False, dtype="int32")
    zero, none = ops.const(0.0, dtype), ops.const(-1, "int32")
    decays = soft_nms_sigma > 0
    least = ops.const(score_threshold if decays else 0.0, dtype)

    def write(k: Loops, *buffers: Any) -> None:
        data, order, count, indices, out, places, kept = buffers

        def clear(b: Number, j: Number) -> None:
            with k.loop(fields) as f:
                k.store(out, (b, j, f), -1.0)
            k.store(places, (b, j), none)

        def overlap(b: Number, i: Number, j: Number) -> Number:
            """The intersection of two boxes over their union."""
            spans, areas = [], [ops.const(1.0, dtype)] * 2
            for axis in (coord_start, coord_start + 1):
                ends = [(out[b, n, axis], out[b, n, axis + 2]) for n in (i, j)]
                low, high = ([f(*pair) for pair in ends] for f in (ops.minimum, ops.maximum))
                spans.append(ops.maximum(zero, ops.minimum(*high) - ops.maximum(*low)))
                areas = [a * (y - x) for a, x, y in zip(areas, low, high, strict=True)]
            shared = k.local(spans[0] * spans[1])[0]
            union = k.local(areas[0] + areas[1] - shared)[0]
            positive = union > zero
            return k.local(Select(positive, shared / Select(positive, union, union + 1.0), zero))[0]

        def against(b: Number, i: Number, j: Number) -> None:
            """Suppress box j, or lower its score, because of box i."""
            same = out[b, i, id_index] == out[b, j, id_index]
            anyone = force_suppress or id_index < 0
            with k.when(ops.const(1, "bool") if anyone else same):
                ratio = overlap(b, i, j)
                with k.when(ratio >= ops.const(iou_threshold, dtype)):
                    k.store(places, (b, j), none)
                    if not decays:
                        k.store(out, (b, j, score_index), -1.0)
                if decays:
                    with k.otherwise():
                        factor = exp(ratio * ratio * ops.const(-0.5 / soft_nms_sigma, dtype))
                        k.store(out, (b, j, score_index), out[b, j, score_index] * factor)
                        with k.when(out[b, j, score_index] <= least):
                            k.store(places, (b, j), none)

        def best(b: Number, first: Number, end: Number) -> Number:
            """The best of the boxes from `first` on that are not suppressed, or -1."""
            found, score = k.local(ops.const(-1, "int64")), k.local(least)
            with k.loop(end - first, start=first) as j:
                is_better = (places[b, j] >= 0) & (out[b, j, score_index] > score[0])
                with k.when(is_better):
                    k.store(found, 0, j)
                    k.store(score, 0, out[b, j, score_index])
            return found[0]

        def swap(b: Number, i: Number, j: Number) -> None:
            for buffer, at in ((places, ()), (out, (fields,))):
                with k.every(at) as rest:
                    held = k.local(buffer[(b, i, *rest)])
                    k.store(buffer, (b, i, *rest), buffer[(b, j, *rest)])
                    k.store(buffer, (b, j, *rest), held[0])

        def to_front(b: Number) -> None:
            """Compact the selected rows at the front."""
            total = k.local(ops.const(0, "int64"))
            with k.loop(size) as j, k.when(places[b, j] >= 0):
                if return_indices:
                    k.store(places, (b, total[0]), indices[b, places[b, j]])
                else:
                    with k.loop(fields) as f:
                        k.store(out, (b, total[0], f), out[b, j, f])
                k.store(total, 0, total[0] + 1)
            with k.loop(size - total[0], start=total[0]) as j:
                if return_indices:
                    k.store(places, (b, j), none)
                else:
                    clear(b, j)

        with k.loop(batch) as b:
            given = ops.cast_to(count[b], "int64")
            limit = size if top_k <= 0 else ops.minimum(size, ops.const(top_k, "int64"))
            end = k.local(ops.maximum(ops.minimum(given, limit), ops.const(0, "int64")))[0]
            with k.loop(size) as j:
                with k.when(j < end):
                    k.store(places, (b, j), order[b, j])
                    with k.loop(fields) as f:
                        k.store(out, (b, j, f), data[b, order[b, j], f])
                with k.otherwise():
                    clear(b, j)
            total = k.local(ops.const(0, "int64"))
            room = total[0] < max_output_size if max_output_size > 0 else ops.const(1, "bool")
            with k.loop(end) as i:
                chosen = best(b, total[0], end) if decays else i
                place = total[0] if decays else i
                accepted = chosen >= 0 if decays else out[b, i, score_index] > least
                with k.when(accepted & room):
                    if decays:
                        swap(b, place, chosen)
                    with k.loop(end - place - 1, start=place + 1) as j:
                        candidate = (places[b, j] >= 0) & (out[b, j, score_index] > least)
                        with k.when(candidate):
                            against(b, place, j)
                    k.store(total, 0, total[0] + 1)
                if not decays:
                    with k.otherwise():
                        clear(b, i)
            if decays:
                with k.loop(size - total[0], start=total[0]) as j:
                    clear(b, j)
            if return_indices or (invalid_to_bottom and not decays):
                to_front(b)
            k.store(kept, (b, 0), total[0])

    outputs = [(data.shape, dtype), ((batch, size), "int32"), ((batch, 1), "int32")]
    inputs = [data, order, count, indices]
    found, places, kept = written("non_max_suppression", outputs, inputs, write)
    return found, places, kept
