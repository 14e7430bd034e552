"""Pooling, adaptive or by windows, and its gradients, in every layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce as folded
from typing import Any, Literal, TypeAlias

from relaxpy.errors import MisuseError, counted, unexpected
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import reduction
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype, computed, identity
from relaxpy.ir.te.topi.indexing import load, loops, stored
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.te.topi.reduction import least, max_reducer
from relaxpy.ir.te.topi.shapes import as_sizes, ravel, unravel
from relaxpy.ir.te.topi.windows import (
    WRITTEN_OUT,
    Index,
    Numbers,
    both_sides,
    in_layout,
    number,
    overlap_add,
    per_axis,
    whole_axes,
    whole_shape,
    window_count,
    window_position,
)
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.layout import Layout
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind, Stmt, stmt_seq
from relaxpy.support.dataclass import dataclass

__all__ = [
    "adaptive_pool",
    "adaptive_pool1d",
    "adaptive_pool3d",
    "adaptive_pool_grad",
    "global_pool",
    "pool1d",
    "pool2d",
    "pool3d",
    "pool_grad",
    "pool_selected",
]

PoolType: TypeAlias = Literal["max", "avg"]
_Combine: TypeAlias = Callable[[PrimExpr, PrimExpr], PrimExpr]
#: The maximum number of elements of an unrolled window along an axis.
MOST_TERMS = 16


@dataclass(frozen=True, slots=True)
class Along:
    """The windows along one axis of a tensor, which has `size` elements without padding."""

    axis: int
    size: PrimExpr
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    ceil: bool

    @property
    def count(self) -> PrimExpr:
        """The number of windows."""
        return window_count(
            self.size,
            self.before + self.after,
            number(self.kernel),
            self.stride,
            self.dilation,
            ceil_mode=self.ceil,
        )

    @property
    def end(self) -> int:
        """The padding after the axis so that it contains all windows."""
        return self.after + (self.stride - 1 if self.ceil else 0)

    @property
    def is_whole(self) -> bool:
        """True if pooling is the identity: each window is one element, in order."""
        return self.kernel == self.stride == 1 and not self.before and not self.after

    @property
    def has_narrow_padding(self) -> bool:
        """True if only the first and the last of short windows may contain padding.

        These are loops of their own, which take longer to compile where the size is not known.
        """
        is_narrow = max(self.before, self.end) <= self.stride
        return is_narrow and self.kernel <= MOST_TERMS and isinstance(self.size, tir.IntImm)

    def position(self, window: PrimExpr, element: PrimExpr) -> PrimExpr:
        """The position along the padded axis of an element of a window."""
        return window_position(window, element, self.stride, self.dilation)

    def members(self, window: PrimExpr, *, include_padding: bool) -> PrimExpr:
        """The number of elements of a window inside the axis, or inside the padded axis."""
        if (include_padding or not (self.before or self.after)) and not self.ceil:
            return number(self.kernel)
        first = window * number(self.stride) - number(self.before)
        low = number(-self.before if include_padding else 0)
        high = self.size + number(self.after if include_padding else 0)
        # The first element of the window from `low` on, and the first from `high` on.
        begin = _clamped(ops.ceildiv(low - first, number(self.dilation)), self.kernel)
        stop = _clamped(ops.ceildiv(high - first, number(self.dilation)), self.kernel)
        return stop - begin


def _clamped(value: PrimExpr, most: int) -> PrimExpr:
    return ops.maximum(ops.minimum(value, number(most)), number(0))


def _windows(
    data: Tensor,
    order: str,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    padding: Numbers,
    *,
    ceil: bool,
) -> list[Along]:
    """The windows along each spatial axis, outer axes first."""
    axes = sorted(a for a in order if a in "DHW")
    count = len(axes)
    before, after = both_sides(padding, count)
    lists = zip(
        axes,
        per_axis(kernel, count),
        per_axis(stride, count),
        per_axis(dilation, count),
        before,
        after,
        strict=True,
    )
    windows = []
    for letter, k, step, hole, low, high in lists:
        axis = order.index(letter)
        windows.append(Along(axis, data.shape[axis], k, step, hole, low, high, ceil))
    return sorted(windows, key=lambda along: along.axis)


def unblocked(data: Tensor, layout: str) -> tuple[Tensor, str]:
    """Convert the data to whole spatial axes; return it with the letters of its axes."""
    parsed = Layout.of(layout)
    if not any(axis in parsed.factors for axis in "dhw"):
        return data, "".join(parsed.names)
    return whole_axes(data, parsed)


def reblocked(result: Tensor, data: Tensor, order: str, layout: str) -> Tensor:
    """Convert the result to the layout of the data; the result is always a new tensor."""
    parsed = Layout.of(layout)
    if order != "".join(parsed.names):
        result = in_layout(result, order, parsed)
    return identity(result) if result is data else result


def _padded(data: Tensor, windows: Sequence[Along], fill: PrimExpr) -> Tensor:
    before, after = [0] * data.ndim, [0] * data.ndim
    for along in windows:
        before[along.axis], after[along.axis] = along.before, along.end
    if not any(before) and not any(after):
        return data
    return pad(data, before, after, fill, name="pad_temp")


def _reduced(
    x: Tensor, windows: Sequence[Along], combine: _Combine, kind: str, fill: PrimExpr
) -> Tensor:
    """Reduce each window of x, whose padding consists of `fill`, to one element."""
    axes = [along for along in windows if not along.is_whole]
    if axes and axes[0].has_narrow_padding:
        first, *axes = axes
        x = reduce_windows(x, first, combine, kind, fill, padded=axes)
    else:
        x = _padded(x, windows, fill)
    for along in axes:
        x = reduce_windows(x, along, combine, kind)
    return x


def reduce_windows(
    x: Tensor,
    along: Along,
    combine: _Combine,
    kind: str,
    fill: PrimExpr | None = None,
    padded: Sequence[Along] = (),
) -> Tensor:
    """Reduce each window of x along one axis to one element.

    Unless `fill` is None, x has no padding yet: that is `fill` along the axis, and the result has
    it along the axes `padded`. Their padding is written with the result, without a copy of x.
    """
    shape, axis = list(x.shape), along.axis
    shape[axis] = along.count
    for other in padded:
        shape[other.axis] = shape[other.axis] + number(other.before + other.end)

    reduction = te.reduce_axis((number(0), number(along.kernel)), "k")

    def inside(index: Sequence[PrimExpr], axes: Sequence[Along], value: Callable[..., Any]) -> Any:
        """The value at an index without padding, or `fill` where that is in the padding."""
        if fill is None:
            return value(*index)
        at, tests = list(index), list[PrimExpr]()
        for other in axes:
            if other.before or other.end:
                tests += _is_inside(at[other.axis], other, other.size)
                at[other.axis] = at[other.axis] - number(other.before)
        return intrin.if_then_else(ops.all_of(*tests), value(*at), fill) if tests else value(*at)

    def window(*index: PrimExpr) -> Any:
        def read(k: PrimExpr) -> Any:
            at = along.position(index[axis], k)
            return inside((*index[:axis], at, *index[axis + 1 :]), [along], x)

        if along.kernel <= MOST_TERMS:
            return folded(combine, (read(number(k)) for k in range(along.kernel)))
        reducer = reduce.sum if kind == "sum" else max_reducer
        return reducer(read(reduction.var), axis=reduction)

    return computed(shape, lambda *index: inside(index, padded, window), f"pool_{kind}")


def sum_dtype(dtype: DataType) -> DataType:
    """The datatype in which the elements of windows are summed."""
    return INT64 if dtype.is_int and dtype.bits < INT64.bits else accumulator(dtype)


def divided(total: Tensor, counts: Mapping[int, Tensor | int], dtype: DataType) -> Tensor:
    """Divide the elements by the product of counts along axes; integers round toward zero."""

    def element(*index: PrimExpr) -> PrimExpr:
        members: PrimExpr = ops.const(1, total.dtype)
        for axis, count in counts.items():
            value = count(index[axis]) if isinstance(count, Tensor) else count
            members = members * ops.cast_to(value, total.dtype)
        return ops.cast_to(tir.Div(total(*index), members), dtype)

    return computed(total.shape, element, "pool_avg")


def count_members(size: PrimExpr, members: Callable[[PrimExpr], PrimExpr]) -> Tensor | int:
    """The number of elements that each window along an axis averages, at least 1."""
    counts = computed((size,), lambda i: ops.maximum(members(i), number(1)), "pool_count")
    [body] = counts.op.body if isinstance(counts.op, te.ComputeOp) else []
    return body.value if isinstance(body, tir.IntImm) else counts


def _members(windows: Sequence[Along], *, include_padding: bool) -> dict[int, Tensor | int]:
    return {
        along.axis: count_members(
            along.count, partial(along.members, include_padding=include_padding)
        )
        for along in windows
    }


def _mean(x: Tensor, windows: Sequence[Along], *, include_padding: bool) -> Tensor:
    wide = as_dtype(x, sum_dtype(x.dtype))
    total = _reduced(wide, windows, ops.add, "sum", ops.const(0, wide.dtype))
    return divided(total, _members(windows, include_padding=include_padding), x.dtype)


def _greatest(x: Tensor, windows: Sequence[Along]) -> Tensor:
    if x.dtype.is_bool:
        return as_dtype(_greatest(as_dtype(x, DataType("uint8")), windows), x.dtype)
    return _reduced(x, windows, ops.maximum, "max", least(x.dtype))


def check_kind(pool_type: str) -> None:
    """Errors: MisuseError if it is neither a maximum nor a mean."""
    if pool_type not in ("max", "avg"):
        raise unexpected(pool_type, "a pool is 'max' or 'avg'")


def _pool_along(layout_of_axes: str) -> Callable[..., Tensor]:
    count = len(layout_of_axes) - 2

    def pool(
        data: Tensor,
        kernel: Numbers,
        stride: Numbers,
        dilation: Numbers,
        padding: Numbers,
        pool_type: PoolType,
        ceil_mode: bool = False,
        layout: str = layout_of_axes,
        count_include_pad: bool = True,
    ) -> Tensor:
        check_kind(pool_type)
        x, order = unblocked(data, layout)
        windows = _windows(x, order, kernel, stride, dilation, padding, ceil=ceil_mode)
        if pool_type == "max":
            result = _greatest(x, windows)
        else:
            result = _mean(x, windows, include_padding=count_include_pad)
        return reblocked(result, data, order, layout)

    pool.__name__ = pool.__qualname__ = f"pool{count}d"
    pool.__doc__ = f"""The maximum or the mean of windows along {counted(count, "axis", "axes")}.

    Without `count_include_pad`, a mean is over the elements that are not padding. Elements beyond
    the padding, which windows have under `ceil_mode`, never count.

    Errors:
        MisuseError: there is no such kind or layout, or there are too many or too few numbers.
    """
    return pool


pool1d, pool2d, pool3d = map(_pool_along, ("NCW", "NCHW", "NCDHW"))


def pool_grad(
    grads: Tensor,
    data: Tensor,
    kernel: Numbers,
    stride: Numbers,
    padding: Numbers,
    pool_type: PoolType,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
    dilation: Numbers = 1,
) -> Tensor:
    """The gradient of the data of a pool, from that of its result.

    The gradient of a maximum goes to the first maximal element of the window, or the first NaN.
    """
    check_kind(pool_type)
    (x, order), (g, _) = unblocked(data, layout), unblocked(grads, layout)
    windows = _windows(x, order, kernel, stride, dilation, padding, ceil=ceil_mode)
    g = as_dtype(g, sum_dtype(g.dtype))
    if pool_type == "max":
        gradient = _spread_to_greatest(g, x, windows)
    else:
        gradient = divided(g, _members(windows, include_padding=count_include_pad), g.dtype)
        for along in windows[::-1]:
            if not along.is_whole:
                gradient = _spread(gradient, [], [along], lambda ins, _, at: BufferLoad(ins[0], at))
    gradient = as_dtype(_cropped(gradient, x, windows), x.dtype)
    return reblocked(gradient, grads, order, layout)


Term: TypeAlias = Callable[[Sequence[Buffer], Index, Index], PrimExpr]


def _spread(g: Tensor, others: Sequence[Tensor], windows: Sequence[Along], term: Term) -> Tensor:
    """Add `term` of each element of g to all elements of its window."""
    shape = list(g.shape)
    for along in windows:
        shape[along.axis] = along.size + number(along.before + along.end)

    def position_of(element: Index, index: Index) -> tuple[PrimExpr, ...]:
        position = list(index)
        for along, k in zip(windows, element, strict=True):
            position[along.axis] = along.position(index[along.axis], k)
        return tuple(position)

    kernel = [number(along.kernel) for along in windows]
    return overlap_add(
        shape,
        g.dtype,
        [g, *others],
        kernel,
        g.shape,
        [],
        position_of,
        lambda ins, element, index, _: term(ins, element, index),
        "pool_grad",
    )


def _spread_to_greatest(g: Tensor, x: Tensor, windows: Sequence[Along]) -> Tensor:
    kernel = [number(along.kernel) for along in windows]

    def term(ins: Sequence[Buffer], element: Index, index: Index) -> PrimExpr:
        selected = BufferLoad(ins[1], index)
        chosen = ops.compare(tir.EQ, selected, ops.cast_to(ravel(element, kernel), selected.dtype))
        return tir.Select(chosen, BufferLoad(ins[0], index), ops.const(0, g.dtype))

    return _spread(g, [_first_greatest(x, windows)], windows, term)


def pool_selected(
    values: Tensor | Callable[..., PrimExpr],
    data: Tensor,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    padding: Numbers,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    last_nan: bool = False,
) -> Tensor:
    """The values at the first maximal element of each window of the data; 0 in padding.

    In windows with NaN this is the first NaN, or the last one. The values may be a function of the
    indices, if the layout is not blocked.
    """
    x, order = unblocked(data, layout)
    windows = _windows(x, order, kernel, stride, dilation, padding, ceil=ceil_mode)
    sizes = [number(along.kernel) for along in windows]
    selected = _first_greatest(x, windows, last_nan=last_nan)

    def inside(*position: PrimExpr) -> PrimExpr:
        at = list(position)
        tests: list[PrimExpr] = []
        for along in windows:
            if along.before or along.end:
                tests += _is_inside(at[along.axis], along, x.shape[along.axis])
                at[along.axis] = at[along.axis] - number(along.before)
        value = values(*at)
        return tir.Select(ops.all_of(*tests), value, ops.const(0, value.dtype)) if tests else value

    source: Callable[..., Any] = inside
    if isinstance(values, Tensor):
        v, _ = unblocked(values, layout)
        source = _padded(v, windows, ops.const(0, v.dtype))

    def element(*index: PrimExpr) -> Any:
        position = list(index)
        for along, k in zip(
            windows, unravel(ops.cast_to(selected(*index), INT64), sizes), strict=True
        ):
            position[along.axis] = along.position(index[along.axis], k)
        return source(*position)

    result = computed(selected.shape, element, "pool_selected")
    return reblocked(result, data, order, layout)


def _first_greatest(x: Tensor, windows: Sequence[Along], *, last_nan: bool = False) -> Tensor:
    """The row-major index of the first maximal element, or first or last NaN, in each window."""
    last_nan = last_nan and x.dtype.is_float
    padded, greatest = _padded(x, windows, least(x.dtype)), _greatest(x, windows)
    kernel = [number(along.kernel) for along in windows]
    total = math.prod(along.kernel for along in windows)

    def numbered(
        index: Sequence[PrimExpr], offsets: Sequence[PrimExpr], k: PrimExpr, other: PrimExpr
    ) -> PrimExpr:
        """The position `k` of a maximal element, its inverse for a NaN, or `other`."""
        position = list(index)
        for along, offset in zip(windows, offsets, strict=True):
            position[along.axis] = along.position(index[along.axis], offset)
        value = padded(*position)
        is_best = ops.compare(tir.EQ, value, greatest(*index))
        if not x.dtype.is_float:
            return tir.Select(is_best, k, other)
        # Where the maximum is -inf, so is the padding.
        inside = [
            test
            for along in windows
            if along.before or along.end
            for test in _is_inside(position[along.axis], along, x.shape[along.axis])
        ]
        is_best, is_nan = ops.all_of(is_best, *inside), intrin.isnan(value)
        if last_nan:
            return tir.Select(is_nan, intrin.bitwise_not(k), tir.Select(is_best, k, other))
        return tir.Select(ops.any_of(is_best, is_nan), k, other)

    def position_of(found: Any) -> Any:
        return tir.Select(found < 0, intrin.bitwise_not(found), found) if last_nan else found

    if total <= WRITTEN_OUT:

        def element(*index: PrimExpr) -> Any:
            last = ops.const(total - 1, "int8")
            numbers = (
                numbered(index, unravel(number(k), kernel), ops.const(k, "int8"), last)
                for k in range(total if last_nan else total - 1)
            )
            return position_of(folded(ops.minimum, numbers, last))

    else:
        reductions = [te.reduce_axis((number(0), size), "k") for size in kernel]

        def element(*index: PrimExpr) -> Any:
            offsets = [axis.var for axis in reductions]
            found = numbered(index, offsets, ravel(offsets, kernel), number(total))
            return reduce.min(found, axis=reductions)

    found = computed(greatest.shape, element, "pool_argmax")
    if total <= WRITTEN_OUT or not last_nan:
        return found
    return computed(greatest.shape, lambda *index: position_of(found(*index)), "pool_argmax_at")


def _is_inside(place: PrimExpr, along: Along, size: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """True if a position along a padded axis is outside the padding."""
    before = number(along.before)
    return before <= place, place < before + size


def _cropped(padded: Tensor, x: Tensor, windows: Sequence[Along]) -> Tensor:
    """Remove the padding."""
    if not any(along.before or along.end for along in windows):
        return padded

    def element(*index: PrimExpr) -> Any:
        position = list(index)
        for along in windows:
            position[along.axis] = index[along.axis] + number(along.before)
        return padded(*position)

    return computed(x.shape, element, "T_crop")


Sizes: TypeAlias = int | PrimExpr | Sequence[int | PrimExpr | None]


def _adaptive_bounds(
    window: PrimExpr, size: PrimExpr, count: PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    """The begin and end of window number `window` of `count` along an axis of `size` elements."""
    begin = window * size // count
    return begin, ops.ceildiv((window + number(1)) * size, count)


def _adaptive(x: Tensor, axis: int, count: PrimExpr, kind: Literal["sum", "max"]) -> Tensor:
    """Reduce each of `count` windows of x along one axis to one element."""
    size = x.shape[axis]
    if prove_equal(size, count) is True:
        return x
    if ops.is_const(count, 1):
        return (reduction.sum if kind == "sum" else reduction.max)(x, axis, keepdims=True)
    combine = ops.add if kind == "sum" else ops.maximum
    shortest, longest = _lengths(size, count)
    if shortest == longest > 0 and isinstance(size, tir.IntImm):
        k = longest
        if ops.is_const(size, k * count.value if isinstance(count, tir.IntImm) else -1):
            along = Along(axis, size, k, k, 1, 0, 0, ceil=False)
            return reduce_windows(x, along, combine, kind)
    identity = ops.const(0, x.dtype) if kind == "sum" else least(x.dtype)
    shape = list(x.shape)
    shape[axis] = count
    name = f"adaptive_pool_{kind}"
    if not 0 < longest <= MOST_TERMS:
        return _one_by_one(x, axis, shape, combine, identity, name)

    def element(*index: PrimExpr) -> Any:
        begin, end = _adaptive_bounds(index[axis], size, count)

        def term(k: int) -> PrimExpr:
            position = number(0) if ops.is_const(size, 1) else begin + number(k)
            value = x(*index[:axis], position, *index[axis + 1 :])
            if k < shortest:
                return value
            return intrin.if_then_else(position < end, value, identity)

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
            source = (*index[:axis], begin + k, *index[axis:])
            return BufferStore(out, combine(load(out, target), load(ins[0], source)), target)

        def clear(index: list[PrimExpr]) -> Stmt:
            return BufferStore(out, identity, tuple(index))

        members = For(k, number(0), end - begin, ForKind.SERIAL, loops(others, body))
        windows = For(window, number(0), shape[axis], ForKind.SERIAL, members)
        return stmt_seq(loops(shape, clear), windows)

    return stored(shape, str(x.dtype), [x], name, store)


def _lengths(size: PrimExpr, count: PrimExpr) -> tuple[int, int]:
    """The lengths of the shortest and of the longest window; (0, 0) if they are not known."""
    if ops.is_const(size, 1):
        return 1, 1
    if not isinstance(size, tir.IntImm) or not isinstance(count, tir.IntImm):
        return 0, 0
    n, m = size.value, count.value
    lengths = [-(-(k + 1) * n // m) - k * n // m for k in range(m)]
    return min(lengths, default=0), max(lengths, default=0)


def _adaptive_pool(data: Tensor, output_size: Sizes, pool_type: PoolType, layout: str) -> Tensor:
    check_kind(pool_type)
    x, order = unblocked(data, layout)
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
    source = x if kind == "max" and not x.dtype.is_bool else as_dtype(x, sum_dtype(x.dtype))
    global_axes = [axis for axis, count in by_axis.items() if ops.is_const(count, 1)]
    reducer = reduction.sum if kind == "sum" else reduction.max
    result = reducer(source, global_axes, keepdims=True) if global_axes else source
    for axis, count in sorted(by_axis.items()):
        result = result if axis in global_axes else _adaptive(result, axis, count, kind)
    if kind == "sum":
        sizes = {axis: x.shape[axis] for axis in by_axis}
        result = divided(result, _adaptive_members(sizes, by_axis), x.dtype)
    return reblocked(as_dtype(result, x.dtype), data, order, layout)


def _adaptive_members(
    sizes: Mapping[int, PrimExpr], counts: Mapping[int, PrimExpr]
) -> dict[int, Tensor | int]:
    """The number of elements of each window along each axis."""

    def members(axis: int, window: PrimExpr) -> PrimExpr:
        begin, end = _adaptive_bounds(window, sizes[axis], counts[axis])
        return end - begin

    members_by_axis: dict[int, Tensor | int] = {}
    for axis, count in counts.items():
        shortest, longest = _lengths(sizes[axis], count)
        if shortest == longest > 0:
            members_by_axis[axis] = longest
        elif prove_equal(sizes[axis], count) is not True:
            members_by_axis[axis] = count_members(count, partial(members, axis))
    return members_by_axis


def adaptive_pool1d(
    data: Tensor, output_size: Sizes, pool_type: PoolType, layout: str = "NCW"
) -> Tensor:
    """The maximum or the mean of each of `output_size` windows, which may overlap by one.

    Window k of m in an axis of n elements runs from floor(k * n / m) to ceil((k + 1) * n / m).
    """
    return _adaptive_pool(data, output_size, pool_type, layout)


def adaptive_pool(
    data: Tensor, output_size: Sizes, pool_type: PoolType, layout: str = "NCHW"
) -> Tensor:
    """As `adaptive_pool1d`, along two axes."""
    return _adaptive_pool(data, output_size, pool_type, layout)


def adaptive_pool3d(
    data: Tensor, output_size: Sizes, pool_type: PoolType, layout: str = "NCDHW"
) -> Tensor:
    """As `adaptive_pool1d`, along three axes."""
    return _adaptive_pool(data, output_size, pool_type, layout)


def adaptive_pool_grad(grads: Tensor, sizes: Sequence[PrimExpr], layout: str = "NCHW") -> Tensor:
    """The gradient of the data, of shape `sizes`, of an adaptive mean, from that of its result.

    The windows that contain an element are those that an adaptive pool of the result to the shape
    of the data would read.
    """
    g, order = unblocked(grads, layout)
    full_sizes = sizes if len(sizes) == len(order) else whole_shape(sizes, Layout.of(layout))
    if len(full_sizes) != len(order):
        raise unexpected(sizes, f"adaptive_pool_grad: sizes is one of each axis of {order}")
    axes = [order.index(axis) for axis in order if axis in "DHW"]
    wide = as_dtype(g, sum_dtype(g.dtype))

    extents, counts = ({axis: shape[axis] for axis in axes} for shape in (full_sizes, g.shape))
    result = divided(wide, _adaptive_members(extents, counts), wide.dtype)
    for axis in axes:
        result = _adaptive(result, axis, full_sizes[axis], "sum")
    return reblocked(as_dtype(result, g.dtype), grads, order, layout)


def global_pool(data: Tensor, pool_type: PoolType, layout: str = "NCHW") -> Tensor:
    """The maximum or the mean along all spatial axes, which have size 1 in the result."""
    return _adaptive_pool(data, (1,), pool_type, layout)
