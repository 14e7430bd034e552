"""Pools: the greatest element or the mean of windows, and their gradients, in every layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce as folded
from typing import Any, Literal, TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype, computed, identity
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.te.topi.reduction import least
from relaxpy.ir.te.topi.shapes import ravel, unravel
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
    window_count,
)
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.layout import Layout

__all__ = [
    "pool1d",
    "pool2d",
    "pool3d",
    "pool_grad",
    "pool_selected",
]

PoolType: TypeAlias = Literal["max", "avg"]
#: Along an axis, windows of so many elements are written out.
MOST_TERMS = 16


@dataclass(frozen=True, slots=True)
class Along:
    """How windows lie along axis `axis` of a tensor, of `size` elements without padding."""

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
        """How many windows there are."""
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
        """How much padding follows the axis so that all windows lie inside."""
        return self.after + (self.stride - 1 if self.ceil else 0)

    @property
    def is_whole(self) -> bool:
        """Whether each window is one element, in order."""
        return self.kernel == self.stride == 1 and not self.before and not self.after

    def place(self, window: PrimExpr, inside: PrimExpr) -> PrimExpr:
        """The position along the padded axis of an element of a window."""
        return ops.add(ops.mul(window, number(self.stride)), ops.mul(inside, number(self.dilation)))

    def members(self, window: PrimExpr, *, padded: bool) -> PrimExpr:
        """How many elements of a window lie in the axis, its padding included if `padded`."""
        if (padded or not (self.before or self.after)) and not self.ceil:
            return number(self.kernel)
        first = ops.sub(ops.mul(window, number(self.stride)), number(self.before))
        low = number(-self.before if padded else 0)
        high = ops.add(self.size, number(self.after if padded else 0))
        # The first element at `low` or after it, and the first at `high` or after it.
        begin = _clamped(ops.ceildiv(ops.sub(low, first), number(self.dilation)), self.kernel)
        stop = _clamped(ops.ceildiv(ops.sub(high, first), number(self.dilation)), self.kernel)
        return ops.sub(stop, begin)


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
    """How windows lie along each spatial axis, outer axes first."""
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
    found = []
    for letter, k, step, holes, low, high in lists:
        axis = order.index(letter)
        found.append(Along(axis, data.shape[axis], k, step, holes, low, high, ceil))
    return sorted(found, key=lambda along: along.axis)


def opened(data: Tensor, layout: str) -> tuple[Tensor, str]:
    """The data with whole spatial axes, and the letters of its axes."""
    parsed = Layout.of(layout)
    if not any(axis in parsed.factors for axis in "dhw"):
        return data, "".join(parsed.names)
    return whole_axes(data, parsed)


def closed(found: Tensor, data: Tensor, order: str, layout: str) -> Tensor:
    """The result in the layout of the data; it is another tensor also where nothing changes."""
    parsed = Layout.of(layout)
    result = found if order == "".join(parsed.names) else in_layout(found, order, parsed)
    return identity(result) if result is data else result


def _padded(data: Tensor, windows: Sequence[Along], fill: PrimExpr) -> Tensor:
    before, after = [0] * data.ndim, [0] * data.ndim
    for along in windows:
        before[along.axis], after[along.axis] = along.before, along.end
    if not any(before) and not any(after):
        return data
    return pad(data, before, after, fill, name="pad_temp")


def folded_along(
    x: Tensor, along: Along, combine: Callable[[PrimExpr, PrimExpr], PrimExpr], kind: str
) -> Tensor:
    """Each window of x along one axis, combined to one element."""
    shape = list(x.shape)
    shape[along.axis] = along.count
    at = along.axis

    def read(index: Sequence[PrimExpr], inside: PrimExpr) -> PrimExpr:
        return x(*index[:at], along.place(index[at], inside), *index[at + 1 :])

    if along.kernel <= MOST_TERMS:

        def element(*index: PrimExpr) -> Any:
            return folded(combine, (read(index, number(k)) for k in range(along.kernel)))

    else:
        inner = te.reduce_axis((number(0), number(along.kernel)), "k")
        reducer = reduce.sum if kind == "sum" else reduce.max

        def element(*index: PrimExpr) -> Any:
            return reducer(read(index, inner.var), axis=inner)

    made: Tensor = te.compute(shape, element, name=f"pool_{kind}")
    return made


def sum_dtype(dtype: DataType) -> DataType:
    """The datatype in which the elements of windows are summed."""
    return INT64 if dtype.is_int and dtype.bits < INT64.bits else accumulator(dtype)


def divided(total: Tensor, counts: Mapping[int, Tensor | int], dtype: DataType) -> Tensor:
    """The elements over the product of counts along axes; integers are rounded toward zero."""

    def element(*index: PrimExpr) -> PrimExpr:
        members: PrimExpr = ops.const(1, total.dtype)
        for axis, count in counts.items():
            value = count(index[axis]) if isinstance(count, Tensor) else count
            members = ops.mul(members, ops.cast_to(value, total.dtype))
        return ops.cast_to(tir.Div(total(*index), members), dtype)

    return computed(total.shape, element, "pool_avg")


def count_members(size: PrimExpr, members: Callable[[PrimExpr], PrimExpr]) -> Tensor | int:
    """How many elements each window along an axis is the mean of; 1 for a window without any."""
    found = computed((size,), lambda i: ops.maximum(members(i), number(1)), "pool_count")
    [body] = found.op.body if isinstance(found.op, te.ComputeOp) else []
    return body.value if isinstance(body, tir.IntImm) else found


def _members(windows: Sequence[Along], *, padded: bool) -> dict[int, Tensor | int]:
    return {
        along.axis: count_members(along.count, partial(along.members, padded=padded))
        for along in windows
    }


def _pool(
    data: Tensor,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    padding: Numbers,
    pool_type: PoolType,
    ceil_mode: bool,
    layout: str,
    count_include_pad: bool,
) -> Tensor:
    check_kind(pool_type)
    x, order = opened(data, layout)
    windows = _windows(x, order, kernel, stride, dilation, padding, ceil=ceil_mode)
    if pool_type == "max":
        found = _greatest(x, windows)
    else:
        wide = as_dtype(x, sum_dtype(x.dtype))
        total = _padded(wide, windows, ops.const(0, wide.dtype))
        for along in windows:
            if not along.is_whole:
                total = folded_along(total, along, ops.add, "sum")
        found = divided(total, _members(windows, padded=count_include_pad), x.dtype)
    return closed(found, data, order, layout)


def _greatest(x: Tensor, windows: Sequence[Along]) -> Tensor:
    if x.dtype.is_bool:
        return as_dtype(_greatest(as_dtype(x, DataType("uint8")), windows), x.dtype)
    found = _padded(x, windows, least(x.dtype))
    for along in windows:
        if not along.is_whole:
            found = folded_along(found, along, ops.maximum, "max")
    return found


def check_kind(pool_type: str) -> None:
    """Errors: MisuseError if it is neither a maximum nor a mean."""
    if pool_type not in ("max", "avg"):
        raise MisuseError(f"a pool is 'max' or 'avg', found {pool_type!r}", about=pool_type)


def pool1d(
    data: Tensor,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    padding: Numbers,
    pool_type: PoolType,
    ceil_mode: bool = False,
    layout: str = "NCW",
    count_include_pad: bool = True,
) -> Tensor:
    """The greatest element or the mean of windows along one axis.

    Without `count_include_pad` a mean is over the elements that are not padding; what a window has
    beyond the padding under `ceil_mode` never counts.
    """
    return _pool(
        data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad
    )


def pool2d(
    data: Tensor,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    padding: Numbers,
    pool_type: PoolType,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """The greatest element or the mean of windows along two axes, as of `pool1d`."""
    return _pool(
        data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad
    )


def pool3d(
    data: Tensor,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    padding: Numbers,
    pool_type: PoolType,
    ceil_mode: bool = False,
    layout: str = "NCDHW",
    count_include_pad: bool = True,
) -> Tensor:
    """The greatest element or the mean of windows along three axes, as of `pool1d`."""
    return _pool(
        data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad
    )


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
    """The gradient of the data of a pool, for that of its result.

    Of several greatest elements the first one of the window gets it; a NaN is the greatest.
    """
    check_kind(pool_type)
    (x, order), (g, _) = opened(data, layout), opened(grads, layout)
    windows = _windows(x, order, kernel, stride, dilation, padding, ceil=ceil_mode)
    g = as_dtype(g, sum_dtype(g.dtype))
    if pool_type == "max":
        found = _spread_to_greatest(g, x, windows)
    else:
        found = divided(g, _members(windows, padded=count_include_pad), g.dtype)
        for along in windows[::-1]:
            if not along.is_whole:
                found = _spread(found, [], [along], lambda ins, _, at: BufferLoad(ins[0], at))
    found = as_dtype(_cropped(found, x, windows), x.dtype)
    return closed(found, grads, order, layout)


Term: TypeAlias = Callable[[Sequence[Buffer], Index, Index], PrimExpr]


def _spread(g: Tensor, more: Sequence[Tensor], windows: Sequence[Along], term: Term) -> Tensor:
    """Each element of g, or what `term` makes of it, added to all elements of its window."""
    shape = list(g.shape)
    for along in windows:
        shape[along.axis] = ops.add(along.size, number(along.before + along.end))

    def place(inside: Index, index: Index) -> tuple[PrimExpr, ...]:
        found = list(index)
        for along, k in zip(windows, inside, strict=True):
            found[along.axis] = along.place(index[along.axis], k)
        return tuple(found)

    kernel = [number(along.kernel) for along in windows]
    return overlap_add(
        shape,
        g.dtype,
        [g, *more],
        kernel,
        g.shape,
        [],
        place,
        lambda ins, inside, index, _: term(ins, inside, index),
        "pool_grad",
    )


def _spread_to_greatest(g: Tensor, x: Tensor, windows: Sequence[Along]) -> Tensor:
    kernel = [number(along.kernel) for along in windows]

    def term(ins: Sequence[Buffer], inside: Index, index: Index) -> PrimExpr:
        place = BufferLoad(ins[1], index)
        chosen = ops.compare(tir.EQ, place, ops.cast_to(ravel(inside, kernel), place.dtype))
        return tir.Select(chosen, BufferLoad(ins[0], index), ops.const(0, g.dtype))

    return _spread(g, [_first_greatest(x, windows)], windows, term)


def pool_selected(
    values: Tensor,
    data: Tensor,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    padding: Numbers,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """The values where the first greatest element of each window of the data is, 0 in padding."""
    (x, order), (v, _) = opened(data, layout), opened(values, layout)
    windows = _windows(x, order, kernel, stride, dilation, padding, ceil=ceil_mode)
    sizes = [number(along.kernel) for along in windows]
    places, source = _first_greatest(x, windows), _padded(v, windows, ops.const(0, v.dtype))

    def element(*index: PrimExpr) -> Any:
        where = list(index)
        for along, k in zip(
            windows, unravel(ops.cast_to(places(*index), INT64), sizes), strict=True
        ):
            where[along.axis] = along.place(index[along.axis], k)
        return source(*where)

    found: Tensor = te.compute(places.shape, element, name="pool_selected")
    return closed(found, values, order, layout)


def _first_greatest(x: Tensor, windows: Sequence[Along]) -> Tensor:
    """The number of the first greatest element in each window, in row-major order; a NaN is one."""
    padded, best = _padded(x, windows, least(x.dtype)), _greatest(x, windows)
    kernel = [number(along.kernel) for along in windows]
    total = math.prod(along.kernel for along in windows)

    def is_greatest(index: Sequence[PrimExpr], inside: Sequence[PrimExpr]) -> PrimExpr:
        place = list(index)
        for along, k in zip(windows, inside, strict=True):
            place[along.axis] = along.place(index[along.axis], k)
        value = padded(*place)
        found = ops.compare(tir.EQ, value, best(*index))
        return ops.any_of(found, intrin.isnan(value)) if x.dtype.is_float else found

    if total <= WRITTEN_OUT:

        def element(*index: PrimExpr) -> Any:
            last = ops.const(total - 1, "int8")
            hits = (is_greatest(index, unravel(number(k), kernel)) for k in range(total - 1))
            found = (tir.Select(hit, ops.const(k, "int8"), last) for k, hit in enumerate(hits))
            return folded(ops.minimum, found, last)

    else:
        inner = [te.reduce_axis((number(0), size), "k") for size in kernel]

        def element(*index: PrimExpr) -> Any:
            inside = [axis.var for axis in inner]
            place = tir.Select(is_greatest(index, inside), ravel(inside, kernel), number(total))
            return reduce.min(place, axis=inner)

    made: Tensor = te.compute(best.shape, element, name="pool_argmax")
    return made


def _cropped(padded: Tensor, x: Tensor, windows: Sequence[Along]) -> Tensor:
    """What is not padding."""
    if not any(along.before or along.end for along in windows):
        return padded

    def element(*index: PrimExpr) -> Any:
        place = list(index)
        for along in windows:
            place[along.axis] = ops.add(index[along.axis], number(along.before))
        return padded(*place)

    made: Tensor = te.compute(x.shape, element, name="T_crop")
    return made
