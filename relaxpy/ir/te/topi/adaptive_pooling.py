"""Adaptive pooling and its gradients, in every layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce as folded
from typing import Any, Literal, TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import pooling, reduction
from relaxpy.ir.te.topi.elementwise import as_dtype, computed
from relaxpy.ir.te.topi.indexing import load, loops, stored
from relaxpy.ir.te.topi.reduction import least
from relaxpy.ir.te.topi.shapes import as_sizes
from relaxpy.ir.te.topi.windows import number, whole_shape
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.layout import Layout
from relaxpy.ir.tir.ops import is_const
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind, Stmt, stmt_seq

__all__ = [
    "adaptive_pool",
    "adaptive_pool1d",
    "adaptive_pool3d",
    "adaptive_pool_grad",
    "global_pool",
]

Sizes: TypeAlias = int | PrimExpr | Sequence[int | PrimExpr | None]


def _adaptive_bounds(
    window: PrimExpr, size: PrimExpr, count: PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    """The begin and end of window number `window` of `count` along an axis of `size` elements."""
    begin = ops.floordiv(ops.mul(window, size), count)
    return begin, ops.ceildiv(ops.mul(ops.add(window, number(1)), size), count)


def _adaptive(x: Tensor, axis: int, count: PrimExpr, kind: Literal["sum", "max"]) -> Tensor:
    """Reduce each of `count` windows of x along one axis to one element."""
    size = x.shape[axis]
    if prove_equal(size, count) is True:
        return x
    if is_const(count, 1):
        return (reduction.sum if kind == "sum" else reduction.max)(x, axis, keepdims=True)
    combine = ops.add if kind == "sum" else ops.maximum
    shortest, longest = _lengths(size, count)
    if shortest == longest > 0 and isinstance(size, tir.IntImm):
        k = longest
        if is_const(size, k * count.value if isinstance(count, tir.IntImm) else -1):
            along = pooling.Along(axis, size, k, k, 1, 0, 0, ceil=False)
            return pooling.reduce_windows(x, along, combine, kind)
    identity = ops.const(0, x.dtype) if kind == "sum" else least(x.dtype)
    shape = list(x.shape)
    shape[axis] = count
    name = f"adaptive_pool_{kind}"
    if not 0 < longest <= pooling.MOST_TERMS:
        return _one_by_one(x, axis, shape, combine, identity, name)

    def element(*index: PrimExpr) -> Any:
        begin, end = _adaptive_bounds(index[axis], size, count)

        def term(k: int) -> PrimExpr:
            position = number(0) if is_const(size, 1) else ops.add(begin, number(k))
            value = x(*index[:axis], position, *index[axis + 1 :])
            if k < shortest:
                return value
            return intrin.if_then_else(ops.compare(tir.LT, position, end), value, identity)

        return folded(combine, map(term, range(longest)))

    return computed(shape, element, name)


def _one_by_one(
    x: Tensor,
    axis: int,
    shape: Sequence[PrimExpr],
    combine: Callable[[PrimExpr, PrimExpr], PrimExpr],
    identity: PrimExpr,
    name: str,
) -> Tensor:
    """Each window along an axis reduced by a loop of its own length."""
    others = [*shape[:axis], *shape[axis + 1 :]]
    window, k = tir.Var("window", INT64), tir.Var("k", INT64)
    begin, end = _adaptive_bounds(window, x.shape[axis], shape[axis])

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def body(index: list[PrimExpr]) -> Stmt:
            target = (*index[:axis], window, *index[axis:])
            source = (*index[:axis], ops.add(begin, k), *index[axis:])
            return BufferStore(out, combine(load(out, target), load(ins[0], source)), target)

        def clear(index: list[PrimExpr]) -> Stmt:
            return BufferStore(out, identity, tuple(index))

        members = For(k, number(0), ops.sub(end, begin), ForKind.SERIAL, loops(others, body))
        windows = For(window, number(0), shape[axis], ForKind.SERIAL, members)
        return stmt_seq(loops(shape, clear), windows)

    return stored(shape, str(x.dtype), [x], name, store)


def _lengths(size: PrimExpr, count: PrimExpr) -> tuple[int, int]:
    """The lengths of the shortest and of the longest window; (0, 0) if they are not known."""
    if is_const(size, 1):
        return 1, 1
    if not isinstance(size, tir.IntImm) or not isinstance(count, tir.IntImm):
        return 0, 0
    n, m = size.value, count.value
    lengths = [-(-(k + 1) * n // m) - k * n // m for k in range(m)]
    return min(lengths, default=0), max(lengths, default=0)


def _adaptive_pool(
    data: Tensor, output_size: Sizes, pool_type: pooling.PoolType, layout: str
) -> Tensor:
    pooling.check_kind(pool_type)
    x, order = pooling.unblocked(data, layout)
    axes = sorted(a for a in order if a in "DHW")
    counts = output_size if isinstance(output_size, (list, tuple)) else [output_size]
    per_axis_counts = [*counts] * (len(axes) if len(counts) == 1 else 1)
    if len(per_axis_counts) != len(axes):
        raise MisuseError(f"{layout} has {len(axes)} spatial axes, found {list(counts)}")
    by_axis = {
        order.index(axis): x.shape[order.index(axis)] if count is None else as_sizes([count])[0]
        for axis, count in zip(axes, per_axis_counts, strict=True)
    }
    kind: Literal["sum", "max"] = "max" if pool_type == "max" else "sum"
    source = x if kind == "max" and not x.dtype.is_bool else as_dtype(x, pooling.sum_dtype(x.dtype))
    global_axes = [axis for axis, count in by_axis.items() if is_const(count, 1)]
    reducer = reduction.sum if kind == "sum" else reduction.max
    result = reducer(source, global_axes, keepdims=True) if global_axes else source
    for axis, count in sorted(by_axis.items()):
        result = result if axis in global_axes else _adaptive(result, axis, count, kind)
    if kind == "sum":
        sizes = {axis: x.shape[axis] for axis in by_axis}
        result = pooling.divided(result, _adaptive_members(sizes, by_axis), x.dtype)
    return pooling.reblocked(as_dtype(result, x.dtype), data, order, layout)


def _adaptive_members(
    sizes: Mapping[int, PrimExpr], counts: Mapping[int, PrimExpr]
) -> dict[int, Tensor | int]:
    """The number of elements of each window along each axis."""

    def members(axis: int, window: PrimExpr) -> PrimExpr:
        begin, end = _adaptive_bounds(window, sizes[axis], counts[axis])
        return ops.sub(end, begin)

    members_by_axis: dict[int, Tensor | int] = {}
    for axis, count in counts.items():
        shortest, longest = _lengths(sizes[axis], count)
        if shortest == longest > 0:
            members_by_axis[axis] = longest
        elif prove_equal(sizes[axis], count) is not True:
            members_by_axis[axis] = pooling.count_members(count, partial(members, axis))
    return members_by_axis


def adaptive_pool1d(
    data: Tensor, output_size: Sizes, pool_type: pooling.PoolType, layout: str = "NCW"
) -> Tensor:
    """The maximum or the mean of each of `output_size` windows, which may overlap by one.

    Window k of m in an axis of n elements runs from floor(k * n / m) to ceil((k + 1) * n / m).
    """
    return _adaptive_pool(data, output_size, pool_type, layout)


def adaptive_pool(
    data: Tensor, output_size: Sizes, pool_type: pooling.PoolType, layout: str = "NCHW"
) -> Tensor:
    """As `adaptive_pool1d`, along two axes."""
    return _adaptive_pool(data, output_size, pool_type, layout)


def adaptive_pool3d(
    data: Tensor, output_size: Sizes, pool_type: pooling.PoolType, layout: str = "NCDHW"
) -> Tensor:
    """As `adaptive_pool1d`, along three axes."""
    return _adaptive_pool(data, output_size, pool_type, layout)


def adaptive_pool_grad(grads: Tensor, sizes: Sequence[PrimExpr], layout: str = "NCHW") -> Tensor:
    """The gradient of the data, of shape `sizes`, of an adaptive mean, from that of its result.

    The windows that contain an element are those that an adaptive pool of the result to the shape
    of the data would read.
    """
    g, order = pooling.unblocked(grads, layout)
    full_sizes = sizes if len(sizes) == len(order) else whole_shape(sizes, Layout.of(layout))
    axes = [order.index(axis) for axis in order if axis in "DHW"]
    wide = as_dtype(g, pooling.sum_dtype(g.dtype))

    extents, counts = ({axis: shape[axis] for axis in axes} for shape in (full_sizes, g.shape))
    result = pooling.divided(wide, _adaptive_members(extents, counts), wide.dtype)
    for axis in axes:
        result = _adaptive(result, axis, full_sizes[axis], "sum")
    return pooling.reblocked(as_dtype(result, g.dtype), grads, order, layout)


def global_pool(data: Tensor, pool_type: pooling.PoolType, layout: str = "NCHW") -> Tensor:
    """The maximum or the mean along all spatial axes, which have size 1 in the result."""
    return _adaptive_pool(data, (1,), pool_type, layout)
