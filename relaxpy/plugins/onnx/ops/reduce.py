"""Reductions, search and sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, TupleGetItem, const
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context, Value, converter
from relaxpy.plugins.onnx.ops.movement import axes_mask, kept_sizes, wrapped

Reduce = Callable[[Expr, Any, bool], Expr]


def _log_sum_exp(x: Expr, axes: Any, keep: bool) -> Expr:
    if not tensors.is_float(x):
        return R.astype(_log_sum_exp(R.astype(x, "float64"), axes, keep), tensors.dtype_of(x))
    peak = R.max(x, axes, True)
    finite = R.where(R.isfinite(peak), peak, R.zeros_like(peak))
    total = R.log(R.sum(R.exp(x - finite), axes, keep))
    return total + (finite if keep else R.squeeze(finite, axes))


def _widely(compute: Reduce) -> Reduce:
    """A reduction of several steps, whose inner values are float32 at least."""

    def of(x: Expr, axes: Any, keep: bool) -> Expr:
        if not tensors.is_float(x):
            return compute(x, axes, keep)
        return tensors.as_dtype(
            compute(tensors.as_dtype(x, tensors.wide_dtype(x)), axes, keep), tensors.dtype_of(x)
        )

    return of


def _mean(x: Expr, axes: Any, keep: bool) -> Expr:
    if tensors.is_float(x):
        return R.mean(x, axes, keep)
    return R.astype(R.mean(R.astype(x, "float64"), axes, keep), tensors.dtype_of(x))


def _extremum(op: Any) -> Reduce:
    def of(x: Expr, axes: Any, keep: bool) -> Expr:
        if tensors.dtype_of(x) == "bool":
            return R.astype(op(R.astype(x, "uint8"), axes, keep), "bool")
        result: Expr = op(x, axes, keep)
        return result

    return of


def _on_integers(op: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """An operator of floats, on integers computed in float64 and rounded down."""

    def of(x: Expr) -> Expr:
        return (
            op(x)
            if tensors.is_float(x)
            else R.astype(op(R.astype(x, "float64")), tensors.dtype_of(x))
        )

    return of


_log, _sqrt = _on_integers(R.log), _on_integers(R.sqrt)
#: The reduction, and what it is of a single element.
_REDUCTIONS: dict[str, tuple[Reduce, Callable[[Expr], Expr]]] = {
    "ReduceSum": (R.sum, lambda x: x),
    "ReduceMean": (_mean, lambda x: x),
    "ReduceMax": (_extremum(R.max), lambda x: x),
    "ReduceMin": (_extremum(R.min), lambda x: x),
    "ReduceProd": (R.prod, lambda x: x),
    "ReduceL1": (lambda x, axes, keep: R.sum(R.abs(x), axes, keep), R.abs),
    "ReduceL2": (
        _widely(lambda x, axes, keep: _sqrt(R.sum(R.multiply(x, x), axes, keep))),
        lambda x: R.abs(x),
    ),
    "ReduceLogSum": (_widely(lambda x, axes, keep: _log(R.sum(x, axes, keep))), _log),
    "ReduceLogSumExp": (_widely(_log_sum_exp), lambda x: x),
    "ReduceSumSquare": (
        _widely(lambda x, axes, keep: R.sum(R.multiply(x, x), axes, keep)),
        lambda x: R.multiply(x, x),
    ),
}


def _reduction(name: str) -> tuple[Callable[..., Expr], Callable[..., Expr]]:
    compute, single = _REDUCTIONS[name]

    def old(cx: Context, x: Expr, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Expr:
        chosen = list(range(tensors.rank_of(x))) if axes is None else list(axes)
        return compute(x, chosen, bool(keepdims)) if chosen else single(x)

    def new(
        cx: Context,
        x: Expr,
        axes: Value = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Expr:
        chosen = [] if axes is None else _axes(cx, x, axes)
        if chosen is None:
            way = bool(keepdims), not noop_with_empty_axes
            return _at_run_time(cx, compute, x, cx.tensor(axes), *way)
        if not chosen and noop_with_empty_axes:
            return single(x)
        return old(cx, x, axes=chosen or None, keepdims=keepdims)

    return old, new


def _at_run_time(
    cx: Context, compute: Reduce, x: Expr, axes: Expr, keep: bool, all_by_default: bool
) -> Expr:
    """The reduction along axes that are known when the program runs.

    `x` gets twice as many axes: the size of each is once kept and once reduced, the other being 1.
    """
    if tensors.rank_of(axes) != 1:
        raise UnsupportedError(f"expected a vector, found a tensor of rank {tensors.rank_of(axes)}")
    rank = tensors.rank_of(x)
    count = 0 if keep else rank - _rank_of_result(cx, rank, axes)
    among = axes_mask(cx, axes, rank)
    if all_by_default:
        is_empty = R.equal(R.sum(R.astype(among, "int32")), const(0, "int32"))
        among = cx.emit(R.logical_or(among, is_empty))
    sizes = cx.tensor(cx.contents(tensors.shape_of(x), [rank], "int64"))
    one = const(1, "int64")
    kept = cx.sizes_at_run_time(R.where(among, one, sizes), rank, "kept")
    reduced = cx.sizes_at_run_time(R.where(among, sizes, one), rank, "reduced")
    pairs = [size for pair in zip(kept, reduced, strict=True) for size in pair]
    result = compute(tensors.reshaped(x, tuple(pairs)), list(range(1, 2 * rank, 2)), False)
    if keep:
        return result
    return tensors.reshaped(result, tuple(kept_sizes(cx, x, among, count)))


def _rank_of_result(cx: Context, rank: int, axes: Expr) -> int:
    """The rank of a reduction with keepdims=0, from the number of axes or from its declaration."""
    (count,) = tensors.shape_of(axes)
    declared = cx.importer.ranks.get(cx.node.outputs[0])
    if isinstance(count, int):
        return rank - tensors.length_known(axes)
    if declared is None:
        raise UnsupportedError(
            f"the number of axes is {count}, and so the rank of the result is not known; expected "
            "keepdims=1, or the rank of the result among the model's values"
        )
    return declared


def _axes(cx: Context, x: Expr, axes: Value) -> list[int] | None:
    tensor = cx.tensor(axes)
    if tensors.rank_of(tensor) == 1 and tensors.shape_of(tensor) == [0]:
        return []
    found = cx.array(axes)
    return None if found is None else [int(axis) for axis in found.reshape(-1)]


for _name in _REDUCTIONS:
    _old, _new = _reduction(_name)
    converter(_name)(_old)
    converter(_name, since=13 if _name == "ReduceSum" else 18)(_new)


def _search(op: Any) -> Callable[..., Expr]:
    def convert(
        cx: Context, x: Expr, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Expr:
        at = tensors.normal_axis(axis, tensors.rank_of(x))
        if not select_last_index:
            return R.astype(op(x, at, bool(keepdims)), "int64")
        last = cx.tensor(cx.contents([tensors.shape_of(x)[at] - 1], (), "int64"))
        found = R.astype(op(R.flip(x, at), at, bool(keepdims)), "int64")
        return last - cx.emit(found)

    return convert


converter("ArgMax")(_search(R.argmax))
converter("ArgMin")(_search(R.argmin))


def _top(cx: Context, x: Expr, k: int, axis: int, largest: int) -> list[Expr]:
    size = tensors.shape_of(x)[tensors.normal_axis(axis, tensors.rank_of(x))]
    if k < 0 or (isinstance(size, int) and k > size):
        raise UnsupportedError(f"k is {k}, expected 0 to {size}")
    if k == 0:
        nothing = R.strided_slice(x, [axis], [0], [0])
        return [nothing, R.astype(nothing, "int64")]
    both = cx.emit(R.topk(x, k, axis, "both", bool(largest), "int64"))
    return [TupleGetItem(both, 0), TupleGetItem(both, 1)]


@converter("TopK")
def top_k_1(cx: Context, x: Expr, *, k: int, axis: int = -1) -> list[Expr]:
    return _top(cx, x, k, axis, 1)


@converter("TopK", since=10)
def top_k(
    cx: Context, x: Expr, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> list[Expr]:
    at = tensors.normal_axis(axis, tensors.rank_of(x))
    size = cx.size_in(k, "k")
    if isinstance(size, int):
        return _top(cx, x, size, at, largest)
    order = R.argsort(x, at, bool(largest), "int64")
    sizes = [size if axis == at else other for axis, other in enumerate(tensors.shape_of(x))]
    indices = cx.match(R.strided_slice(order, [at], [0], [size]), sizes, "int64")
    return [R.gather_elements(x, indices, at), indices]


def _scan(op: Any) -> Callable[..., Expr]:
    def convert(cx: Context, x: Expr, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Expr:
        if cx.array(axis) is None:
            return _scan_at_run_time(cx, op, x, cx.tensor(axis), exclusive, reverse)
        at = tensors.normal_axis(cx.numbers(axis, "axis")[0], tensors.rank_of(x))
        data = R.flip(x, at) if reverse else x
        result = op(data, at, tensors.dtype_of(x), bool(exclusive))
        return R.flip(result, at) if reverse else result

    return convert


def _scan_at_run_time(
    cx: Context, op: Any, x: Expr, axis: Expr, exclusive: int, reverse: int
) -> Expr:
    """The scan along an axis that is known when the program runs: the middle one of three."""
    rank = tensors.rank_of(x)
    three = sizes_around(cx, tensors.shape_of(x), *axes_around(cx, axis, rank, rank))
    data = tensors.reshaped(x, tuple(three))
    data = R.flip(data, 1) if reverse else data
    result = op(data, 1, tensors.dtype_of(x), bool(exclusive))
    return tensors.reshaped(R.flip(result, 1) if reverse else result, tuple(tensors.shape_of(x)))


def axes_around(cx: Context, axis: Expr, count: int, rank: int) -> tuple[Expr, Expr]:
    """The numbers of the first `count` axes, and that of one that is known when it runs."""
    place = cx.within(R.astype(axis, "int64"), "axis", -rank, count - 1)
    return tensors.literal(np.arange(count, dtype=np.int64)), wrapped(R.reshape(place, ()), rank)


def sizes_around(
    cx: Context, sizes: Sequence[tensors.Size], place: Expr, at: Expr
) -> Sequence[tensors.Size]:
    """The number of elements before an axis, its size, and the number of elements after it."""
    lengths = cx.tensor(cx.contents(list(sizes), [len(sizes)], "int64"))
    tests, one = (R.less, R.equal, R.greater), const(1, "int64")
    parts = [R.prod(R.where(test(place, at), lengths, one)) for test in tests]
    return cx.sizes_at_run_time(R.stack(parts), 3, "part")


converter("CumSum")(_scan(R.cumsum))
converter("CumProd")(_scan(R.cumprod))


@converter("Einsum")
def einsum(cx: Context, *inputs: Expr, equation: str) -> Expr:
    return R.einsum(list(inputs), equation.replace(" ", ""))


@converter("NonMaxSuppression")
def non_max_suppression(
    cx: Context,
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: Value = None,
    iou_threshold: Value = None,
    score_threshold: Value = None,
    *,
    center_point_box: int = 0,
) -> Expr:
    if center_point_box:
        places = [R.strided_slice(boxes, [2], [k], [k + 1]) for k in range(4)]
        half = tensors.scalar(0.5, boxes)
        x, y, w, h = places
        boxes = R.concat([y - h * half, x - w * half, y + h * half, x + w * half], 2)
    most = (
        cx.tensor(max_output_boxes_per_class)
        if max_output_boxes_per_class is not None
        else (const(0, "int64"))
    )
    overlap = cx.tensor(iou_threshold) if iou_threshold is not None else const(0.0, "float32")
    overlap = cx.within(overlap, "iou_threshold", 0, 1)
    least = cx.tensor(score_threshold) if score_threshold is not None else const(-np.inf, "float32")
    known = cx.array(max_output_boxes_per_class)
    limits = (R.reshape(item, ()) for item in (most, overlap, least))
    rows_per_class = None if known is None else max(int(known.item()), 0)
    found = cx.builder.emit(
        R.vision.all_class_non_max_suppression(
            boxes, scores, *limits, rows_per_class=rows_per_class
        )
    )
    rows = TupleGetItem(found, 0)
    (count,) = cx.sizes_at_run_time(TupleGetItem(found, 1), 1, "count")
    return R.strided_slice(rows, [0], [0], [count])
