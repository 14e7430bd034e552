"""Pooling of regions of interest, whose number of elements depends on the data.

The kernels are loops over the bins of the regions; all channels of an image are one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relay.op.define import Args, define_emit, dims, listed
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.selection import computed
from relaxpy.ir.relay.op.vision import sampled_regions
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.indexing import load, loops
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind, Stmt, stmt_seq


def _index(value: int) -> PrimExpr:
    return ops.const(value, "int64")


def _field(rois: Tensor, region: PrimExpr, number: int) -> PrimExpr:
    return rois(region, _index(number))


def _clipped(value: PrimExpr, low: int, high: PrimExpr) -> PrimExpr:
    return ops.minimum(ops.maximum(value, _index(low)), high)


def _range(begin: PrimExpr, end: PrimExpr, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """A loop over numbers that depend on the data."""
    var = tir.Var("k", "int64")
    return For(var, begin, ops.maximum(ops.sub(end, begin), _index(0)), ForKind.SERIAL, body(var))


def _elements(
    rows: tuple[PrimExpr, PrimExpr],
    columns: tuple[PrimExpr, PrimExpr],
    channels: PrimExpr,
    body: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
) -> Stmt:
    """A loop over the row, the column and the channel of elements of an image."""
    return _range(
        *rows, lambda i: _range(*columns, lambda j: loops([channels], lambda c: body(i, j, *c)))
    )


def _whole(value: PrimExpr) -> PrimExpr:
    return ops.cast_to(value, "int64")


def _corners(rois: Tensor, region: PrimExpr, axis: int, scale: PrimExpr) -> list[PrimExpr]:
    """The first and the last coordinate of a region on an axis of the image."""
    return [ops.mul(_field(rois, region, column), scale) for column in (2 - axis, 4 - axis)]


def _ends(rois: Tensor, axis: int, bins: int, scale: PrimExpr, size: PrimExpr) -> Tensor:
    """The first element of each bin of regions on an axis, and the one after its last element.

    Shapes:
        result  (regions, bins, 2)
    """

    def element(region: PrimExpr, number: PrimExpr, side: PrimExpr) -> PrimExpr:
        first, last = (_whole(intrin.round(c)) for c in _corners(rois, region, axis, scale))
        extent = ops.maximum(ops.add(ops.sub(last, first), _index(1)), _index(1))
        begin = ops.floordiv(ops.mul(number, extent), _index(bins))
        end = ops.ceildiv(ops.mul(ops.add(number, _index(1)), extent), _index(bins))
        is_begin = ops.compare(tir.EQ, side, _index(0))
        position = intrin.if_then_else(is_begin, begin, end)
        return _clipped(ops.add(position, first), 0, size)

    return computed((rois.shape[0], _index(bins), _index(2)), element, f"ends{axis}")


def _pooled(attrs: Any, data: Tensor, rois: Tensor) -> Tensor:
    """The greatest elements of the bins of regions; 0 of those that contain none."""
    bins = [int(size) for size in listed(attrs["pooled_size"])]
    scale, kind = ops.const(float(attrs["spatial_scale"]), str(rois.dtype)), str(data.dtype)

    def store(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        image, regions, rows, columns = ins
        out = outs[0]

        def of_bin(index: list[PrimExpr]) -> Stmt:
            region, y, x = index
            top, bottom = (load(rows, (region, y, _index(k))) for k in (0, 1))
            left, right = (load(columns, (region, x, _index(k))) for k in (0, 1))
            batch = _whole(load(regions, (region, _index(0))))
            is_empty = ops.any_of(
                ops.compare(tir.GE, top, bottom), ops.compare(tir.GE, left, right)
            )
            start = intrin.if_then_else(is_empty, ops.const(0, kind), intrin.min_value(kind))

            def first(c: PrimExpr) -> Stmt:
                return BufferStore(out, start, (region, c, y, x))

            def greater(i: PrimExpr, j: PrimExpr, c: PrimExpr) -> Stmt:
                best = ops.maximum(load(out, (region, c, y, x)), load(image, (batch, c, i, j)))
                return BufferStore(out, best, (region, c, y, x))

            channels = data.shape[1]
            scanned = _elements((top, bottom), (left, right), channels, greater)
            return stmt_seq(loops([channels], lambda c: first(*c)), scanned)

        return loops([rois.shape[0], *map(_index, bins)], of_bin)

    shape = rois.shape[0], data.shape[1], *map(_index, bins)
    ends = [_ends(rois, axis, bins[axis], scale, data.shape[2 + axis]) for axis in (0, 1)]
    inputs = [data, rois, *ends]
    return te.extern([shape], inputs, store, "roi_pool", [kind])  # type: ignore[no-any-return]


def _check(args: Args, attrs: Any, layouts: tuple[str, ...]) -> None:
    data, rois = (dims(arg) for arg in args)
    if len(data) != 4 or len(rois) != 2:
        raise RelationError(f"data has 4 dimensions and rois 2, found {len(data)} and {len(rois)}")
    width = rois[1]
    if isinstance(width, tir.IntImm) and width.value != 5:
        raise RelationError(f"a region has an image and 4 coordinates, found {width.value} fields")
    if attrs["layout"] not in layouts:
        raise RelationError(f"the layout is {' or '.join(layouts)}, found {attrs['layout']!r}")
    size = listed(attrs["pooled_size"])
    if len(size) != 2 or not all(type(n) is int and n > 0 for n in size):
        raise RelationError(f"pooled_size is two positive numbers, found {attrs['pooled_size']}")


def _roi_pool(builder: BlockBuilder, args: Args, attrs: Any) -> rx.Expr:
    _check(args, attrs, ("NCHW",))
    return builder.call_te(
        lambda *tensors: _pooled(attrs, *tensors), *args, primfunc_name_hint="roi_pool"
    )


define_emit(
    "vision.roi_pool",
    "data rois",
    _roi_pool,
    {"pooled_size": REQUIRED, "spatial_scale": REQUIRED, "layout": "NCHW"},
)


# Bilinear samples, as many as a bin has elements


def _extents(rois: Tensor, axis: int, bins: int, scale: PrimExpr) -> Tensor:
    """The begin of each region on an axis, the extent of its bins, and their number of samples.

    Shapes:
        result  (regions, 3)
    """

    def element(region: PrimExpr, part: PrimExpr) -> PrimExpr:
        first, last = _corners(rois, region, axis, scale)
        size = ops.maximum(ops.sub(last, first), ops.const(1, scale.dtype))
        each = ops.div(size, ops.const(bins, scale.dtype))
        others = intrin.if_then_else(ops.compare(tir.EQ, part, _index(1)), each, intrin.ceil(each))
        return intrin.if_then_else(ops.compare(tir.EQ, part, _index(0)), first, others)

    return computed((rois.shape[0], _index(3)), element, f"extents{axis}")


def _aligned(attrs: Any, data: Tensor, rois: Tensor) -> Tensor:
    """The mean, or the greatest, of samples within the bins of regions, one for each element."""
    channels, *sizes = data.shape[1:]
    bins = [int(size) for size in listed(attrs["pooled_size"])]
    kind, is_mean = str(data.dtype), attrs["mode"] == "avg"
    scale, zero = (ops.const(value, kind) for value in (float(attrs["spatial_scale"]), 0))

    def store(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        image, regions = ins[:2]
        out = outs[0]

        def of_bin(index: list[PrimExpr]) -> Stmt:
            region = index[0]
            batch = _whole(load(regions, (region, _index(0))))
            parts = [[load(buffer, (region, _index(k))) for k in range(3)] for buffer in ins[2:]]
            counts = [_whole(part[2]) for part in parts]

            def place(c: PrimExpr) -> tuple[PrimExpr, ...]:
                return region, c, index[1], index[2]

            def position(axis: int, sample: PrimExpr) -> PrimExpr:
                begin, each, count = parts[axis]
                middle = ops.add(ops.cast_to(sample, kind), ops.const(0.5, kind))
                inside = ops.add(ops.cast_to(index[1 + axis], kind), ops.div(middle, count))
                return ops.add(begin, ops.mul(inside, each))

            def added(i: PrimExpr, j: PrimExpr, c: PrimExpr) -> Stmt:
                points = [position(axis, sample) for axis, sample in enumerate((i, j))]
                value = _bilinear(image, batch, c, points, sizes, kind)
                before = load(out, place(c))
                total = ops.add(before, value) if is_mean else ops.maximum(before, value)
                return BufferStore(out, total, place(c))

            def divided(c: PrimExpr) -> Stmt:
                number = ops.cast_to(ops.mul(*counts), kind)
                return BufferStore(out, ops.div(load(out, place(c)), number), place(c))

            start = zero if is_mean else intrin.min_value(kind)
            first = loops([channels], lambda c: BufferStore(out, start, place(*c)))
            rows, columns = ((_index(0), count) for count in counts)
            steps = [first, _elements(rows, columns, channels, added)]
            if is_mean:
                steps.append(loops([channels], lambda c: divided(*c)))
            return stmt_seq(*steps)

        return loops([rois.shape[0], *map(_index, bins)], of_bin)

    shape = rois.shape[0], channels, *map(_index, bins)
    inputs = [data, rois, *(_extents(rois, axis, bins[axis], scale) for axis in (0, 1))]
    return te.extern([shape], inputs, store, "roi_align", [kind])  # type: ignore[no-any-return]


def _bilinear(
    image: Buffer,
    batch: PrimExpr,
    channel: PrimExpr,
    points: Sequence[PrimExpr],
    sizes: Sequence[PrimExpr],
    kind: str,
) -> PrimExpr:
    """Return an image at a point; 0 more than one element beyond its border."""
    zero, one = ops.const(0, kind), ops.const(1, kind)
    outside, nearest = [], []
    for point, size in zip(points, sizes, strict=True):
        end = ops.cast_to(size, kind)
        outside += [
            ops.compare(tir.LT, point, ops.const(-1, kind)),
            ops.compare(tir.GT, point, end),
        ]
        within = ops.minimum(ops.maximum(point, zero), ops.sub(end, one))
        low = _whole(intrin.floor(within))
        high = ops.minimum(ops.add(low, _index(1)), ops.sub(size, _index(1)))
        part = ops.sub(within, intrin.floor(within))
        nearest.append(((low, ops.sub(one, part)), (high, part)))
    value = zero
    for y, weight_y in nearest[0]:
        for x, weight_x in nearest[1]:
            sample = load(image, (batch, channel, y, x))
            value = ops.add(value, ops.mul(ops.mul(weight_y, weight_x), sample))
    return intrin.if_then_else(ops.any_of(*outside), zero, value)


def _roi_align(builder: BlockBuilder, args: Args, attrs: Any) -> rx.Expr:
    _check(args, attrs, ("NCHW", "NHWC"))
    if attrs["mode"] not in ("avg", "max"):
        raise RelationError(f"the mode is avg or max, found {attrs['mode']!r}")
    data, rois = args
    is_last = attrs["layout"] == "NHWC"
    if is_last:
        data = builder.emit(R.permute_dims(data, [0, 3, 1, 2]))
    if int(attrs["sample_ratio"]) > 0:
        result = sampled_regions(data, rois, attrs)
    else:
        result = builder.call_te(
            lambda *tensors: _aligned(attrs, *tensors), data, rois, primfunc_name_hint="roi_align"
        )
    return R.permute_dims(builder.emit(result), [0, 2, 3, 1]) if is_last else result


define_emit(
    "vision.roi_align",
    "data rois",
    _roi_align,
    {
        "pooled_size": REQUIRED,
        "spatial_scale": REQUIRED,
        "sample_ratio": -1,
        "layout": "NCHW",
        "mode": "avg",
    },
)
