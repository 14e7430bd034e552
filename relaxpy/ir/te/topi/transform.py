"""Functions that create tensors or rearrange elements, matmul, and sums over labelled axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_letters
from typing import Any, Literal, SupportsIndex

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import shapes
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype, computed, injective
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.te.topi.shapes import (
    Refuse,
    as_sizes,
    label_sizes,
    normal_axis,
    parse_subscripts,
    product,
    shape_text,
    tidy,
)
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.layout import BijectiveLayout

__all__: list[str] = [
    "arange",
    "concatenate",
    "einsum",
    "expand_dims",
    "eye",
    "flip",
    "hamming_window",
    "layout_transform",
    "matmul",
    "meshgrid",
    "one_hot",
    "repeat",
    "reshape",
    "roll",
    "split",
    "squeeze",
    "stack",
    "strided_slice",
    "take",
    "tensordot",
    "tile",
    "transpose",
    "trilu",
]


def eye(n: ExprLike, m: ExprLike | None = None, k: ExprLike = 0, dtype: str = "float32") -> Tensor:
    """1 on diagonal k of a matrix of n rows and m columns, by default n, and 0 elsewhere."""
    offset = ops.cast_to(ops.convert(k), "int64")

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        row, column = ops.cast_to(i, "int64"), ops.cast_to(j, "int64")
        is_diagonal = ops.compare(tir.EQ, row, column - offset)
        return intrin.if_then_else(is_diagonal, ops.const(1, dtype), ops.const(0, dtype))

    return computed(as_sizes((n, n if m is None else m)), element, "eye")


def hamming_window(
    window_size: ExprLike, periodic: ExprLike, alpha: ExprLike, beta: ExprLike, dtype: str
) -> Tensor:
    """The window alpha - beta * cos(2 * pi * i / n); n is its size, one less unless `periodic`.

    A window of size 1 is 1. Values of half precision are computed in single precision.
    """
    wide = accumulator(DataType(dtype))
    size = ops.cast_to(ops.convert(window_size), "int64")
    is_periodic = ops.cast_to(ops.convert(periodic), "bool")
    period = tir.Select(is_periodic, size, size - ops.const(1, "int64"))
    low, swing = (ops.cast_to(ops.convert(v), wide) for v in (alpha, beta))
    single = ops.compare(tir.EQ, size, ops.const(1, "int64"))

    def element(i: PrimExpr) -> PrimExpr:
        share = ops.div(ops.cast_to(i, wide), ops.cast_to(period, wide))
        wave = intrin.cos(ops.const(2 * math.pi, wide) * share)
        value = low - swing * wave
        return ops.cast_to(tir.Select(single, ops.const(1, wide), value), dtype)

    return computed((size,), element, "hamming_window")


def range_length(
    start: PrimExpr, end: PrimExpr, step: PrimExpr, refuse: Refuse = MisuseError
) -> PrimExpr:
    """The number of elements start, start + step, … before `end`.

    Errors:
        MisuseError, or the error of `refuse`: the step is 0, or one of the three is not finite.
    """
    if isinstance(step, (tir.IntImm, tir.FloatImm)) and step.value == 0:
        raise refuse("step is other than 0", about=step)
    zero = ops.const(0, INT64)
    if all(v.dtype.is_int for v in (start, end, step)):
        first, last, by = (ops.cast_to(v, INT64) for v in (start, end, step))
        if isinstance(by, tir.IntImm) and by.value < 0:
            first, last, by = last, first, ops.const(-by.value, INT64)
        if not isinstance(by, tir.IntImm):  # which may be negative
            return simplify(zero - (first - last) // by)
        rounded = last + ops.const(by.value - 1, INT64) - first
        length = tidy(rounded // by)
        return ops.maximum(length, zero) if isinstance(length, tir.IntImm) else length
    first, last, by = (ops.cast_to(v, "float64") for v in (start, end, step))
    for value in (first, last, by):
        if isinstance(value, tir.FloatImm) and not math.isfinite(value.value):
            raise refuse(f"start, end and step are finite, found {value.value}", about=value)
    if all(isinstance(v, tir.FloatImm) for v in (first, last, by)):
        if by.value == 0:  # type: ignore[attr-defined]
            raise refuse("step is other than 0 in its datatype", about=step)
        exact = (last.value - first.value) / by.value  # type: ignore[attr-defined]
        if math.isinf(exact):
            raise refuse("start, end and step give too many elements", about=step)
        return ops.const(max(0, math.ceil(exact)), INT64)
    return ops.cast_to(intrin.ceil(ops.div(last - first, by)), INT64)


def arange(
    start: ExprLike,
    stop: ExprLike | None = None,
    step: ExprLike = 1,
    dtype: str = "float32",
    length: PrimExpr | None = None,
) -> Tensor:
    """The sequence start, start + step, … before `stop`, or its first `length` elements.

    Without `stop`, it begins at 0 and ends before `start`.

    Errors:
        MisuseError: the step is 0, or a bound is not finite.
    """
    first, last = (0, start) if stop is None else (start, stop)
    begin, end, by = map(ops.convert, (first, last, step))
    size = range_length(begin, end, by) if length is None else length
    return computed((size,), lambda i: ops.cast_to(begin + ops.mul(by, i), dtype), "T_arange")


_MAX_CHAIN = 16
"""The number of tensors up to which `stack` selects one by a chain of comparisons."""
TakeMode = Literal["fast", "clip", "wrap", "nan"]


def reshape(a: Tensor, newshape: Sequence[ExprLike]) -> Tensor:
    """Reshape `a` in row-major order.

    Errors:
        MisuseError: the new shape has another number of elements.
    """
    shape = shapes.as_sizes(newshape)
    if prove_equal(shapes.product(shape), shapes.product(a.shape)) is False:
        raise MisuseError(
            f"a tensor of shape {shapes.shape_text(a.shape)} cannot have shape "
            f"{shapes.shape_text(shape)}"
        )

    def element(*index: PrimExpr) -> PrimExpr:
        if any(ops.is_const(s, 0) for s in (*shape, *a.shape)):
            return ops.const(0, a.dtype)
        return a(*shapes.unravel(shapes.ravel(index, shape), a.shape))

    return injective(shape, element, "T_reshape")


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Permute the axes of `a`: axis i of the result is axis `axes[i]`; reversed by default.

    Errors:
        MisuseError: `axes` does not name each axis once.
    """
    order = [shapes.normal_axis(k, a.ndim) for k in (range(a.ndim)[::-1] if axes is None else axes)]
    if sorted(order) != list(range(a.ndim)):
        raise MisuseError(f"axes name each of {a.ndim} axes once, found {axes}")

    def element(*index: PrimExpr) -> PrimExpr:
        return a(*(index[order.index(k)] for k in range(a.ndim)))

    return injective([a.shape[k] for k in order], element, "T_transpose")


def expand_dims(
    a: Tensor,
    axis: SupportsIndex | Sequence[SupportsIndex],
    num_newaxis: int = 1,
    *,
    name: str = "T_expand_dims",
) -> Tensor:
    """Insert axes of size 1 at these positions of the result, or `num_newaxis` from one on."""
    if isinstance(axis, Sequence):
        new = shapes.normal_axes(axis, a.ndim + len(axis))
    else:
        [first] = shapes.normal_axes(axis, a.ndim + 1)
        new = tuple(range(first, first + num_newaxis))

    def element(*index: PrimExpr) -> PrimExpr:
        return a(*(i for k, i in enumerate(index) if k not in new))

    return injective(shapes.expanded_sizes(a.shape, new), element, name)


def squeeze(a: Tensor, axis: shapes.Axes = None) -> Tensor:
    """Remove these axes of size 1; by default, all axes that are known to have size 1."""
    if axis is None:
        removed: tuple[int, ...] = tuple(k for k, s in enumerate(a.shape) if ops.is_const(s, 1))
    else:
        removed = shapes.normal_axes(axis, a.ndim)

    def element(*index: PrimExpr) -> PrimExpr:
        remaining = iter(index)
        return a(
            *(
                ops.const(0, s.dtype) if k in removed else next(remaining)
                for k, s in enumerate(a.shape)
            )
        )

    return injective(shapes.reduced_sizes(a.shape, removed), element, "T_squeeze")


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Concatenate tensors along an axis.

    Errors:
        MisuseError: there are no tensors, or two of them differ in rank or along another axis.
    """
    if not a_tuple:
        raise MisuseError("concatenate needs at least one tensor")
    axis = shapes.normal_axis(axis, a_tuple[0].ndim)
    for tensor in a_tuple[1:]:
        _check_joinable(a_tuple[0], tensor, axis)
    sizes = [tensor.shape[axis] for tensor in a_tuple]
    zero = ops.const(0, "int64")
    starts = [shapes.total(sizes[:k]) if k else zero for k in range(len(sizes))]
    shape = list(a_tuple[0].shape)
    shape[axis] = shapes.total(sizes)

    def element(*index: PrimExpr) -> PrimExpr:
        def read(k: int) -> PrimExpr:
            return a_tuple[k](*(i - starts[k] if a == axis else i for a, i in enumerate(index)))

        def select(first: int, stop: int) -> PrimExpr:
            """Select the element of one of these tensors by bisection."""
            if stop - first == 1:
                return read(first)
            middle = (first + stop + 1) // 2
            is_after = index[axis] - starts[middle] >= zero
            return intrin.if_then_else(is_after, select(middle, stop), select(first, middle))

        return select(0, len(a_tuple))

    return injective(shape, element, "T_concat")


def _check_joinable(first: Tensor, other: Tensor, axis: int) -> None:
    """Errors: MisuseError if the tensors differ in rank, or in a dimension other than `axis`."""
    pairs = enumerate(zip(first.shape, other.shape, strict=False))
    if first.ndim != other.ndim or any(
        a != axis and prove_equal(x, y) is False for a, (x, y) in pairs
    ):
        raise MisuseError(
            f"shapes {shapes.shape_text(first.shape)} and {shapes.shape_text(other.shape)} do not "
            f"join along axis {axis}"
        )


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along a new axis."""
    if not tensors:
        raise MisuseError("stack needs at least one tensor")
    axis = shapes.normal_axis(axis, tensors[0].ndim + 1)
    for tensor in tensors[1:]:
        _check_joinable(tensors[0], tensor, -1)
    shape = list(tensors[0].shape)
    shape.insert(axis, ops.const(len(tensors), "int64"))

    def element(*index: PrimExpr) -> PrimExpr:
        source = (*index[:axis], *index[axis + 1 :])

        def select(first: int, stop: int) -> PrimExpr:
            """Select the element of one of these tensors; bisection limits the nesting."""
            if stop - first > _MAX_CHAIN:
                middle = (first + stop) // 2
                is_after = index[axis] >= ops.const(middle, "int64")
                return intrin.if_then_else(is_after, select(middle, stop), select(first, middle))
            result: PrimExpr = tensors[first](*source)
            for k in range(first + 1, stop):
                is_tensor_k = ops.compare(tir.EQ, index[axis], ops.const(k, "int64"))
                result = intrin.if_then_else(is_tensor_k, tensors[k](*source), result)
            return result

        return select(0, len(tensors))

    return injective(shape, element, "T_stack")


def split(
    ary: Tensor, indices_or_sections: int | Sequence[ExprLike], axis: int = 0
) -> list[Tensor]:
    """Split `ary` along an axis at these indices, or into sections; only the last may be shorter.

    Indices outside the axis are clamped to its ends.
    """
    axis = shapes.normal_axis(axis, ary.ndim)
    bounds = shapes.split_bounds(ary.shape[axis], indices_or_sections)
    return [
        _slice_along(ary, axis, begin, size, f"T_split_{k}" if k else "T_split")
        for k, (begin, size) in enumerate(bounds)
    ]


def _slice_along(x: Tensor, axis: int, begin: PrimExpr, size: PrimExpr, name: str) -> Tensor:
    shape = [size if a == axis else s for a, s in enumerate(x.shape)]

    def element(*index: PrimExpr) -> PrimExpr:
        return x(*(i + begin if a == axis else i for a, i in enumerate(index)))

    return injective(shape, element, name)


def slice_bounds(
    size: PrimExpr, begin: PrimExpr, end: PrimExpr, stride: int, *, inbound: bool
) -> tuple[PrimExpr, PrimExpr]:
    """The first index and the number of elements of the slice `begin:end:stride`.

    Negative bounds count from the end, as in Python. With `inbound`, expressions are assumed to
    be in range and in this order.
    """
    backwards = stride < 0
    first = _slice_bound(begin, size, backwards=backwards, inbound=inbound)
    last = _slice_bound(end, size, backwards=backwards, inbound=inbound)
    low, high = (last, first) if backwards else (first, last)
    step = abs(stride)
    rounded = high + ops.const(step - 1, "int64") - low
    length = shapes.tidy(rounded // ops.const(step, "int64"))
    to_the_end = ops.is_const(last, -1) if backwards else ops.is_const(first, 0)
    ordered = to_the_end or inbound or (not backwards and shapes.are_ordered_literals(begin, end))
    if isinstance(length, tir.IntImm) or not ordered:
        length = shapes.tidy(ops.maximum(length, ops.const(0, "int64")))
    return shapes.tidy(first), length


def _slice_bound(index: PrimExpr, size: PrimExpr, *, backwards: bool, inbound: bool) -> PrimExpr:
    """Clamp `index` to [0, size], or to [-1, size - 1] if the stride is negative."""
    low = ops.const(-1 if backwards else 0, "int64")
    high = size - ops.const(1, "int64") if backwards else size
    if isinstance(index, tir.IntImm):
        if index.value < 0:
            return ops.maximum(index + size, low)
        inside = inbound and not isinstance(size, tir.IntImm)
        return index if inside or (index.value == 0 and not backwards) else ops.minimum(index, high)
    if inbound or index is high:
        return index
    is_from_end = simplify(index < ops.const(0, index.dtype))
    if not ops.is_const(is_from_end, 0):
        index = intrin.if_then_else(is_from_end, index + size, index)
    return ops.minimum(ops.maximum(index, low), high)


def _is_negative(size: PrimExpr) -> bool:
    return isinstance(size, tir.IntImm) and size.value < 0


def strided_slice(
    a: Tensor,
    begin: Sequence[ExprLike],
    end: Sequence[ExprLike],
    strides: Sequence[ExprLike] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
    assume_inbound: bool = False,
) -> Tensor:
    """`a[begin:end:stride]` along each of the axes; by default, the first ones.

    With `slice_mode` "size", `end` has the lengths of the slices, which then have stride 1; a
    negative length is up to the end of the axis.

    Errors:
        MisuseError: a stride is zero, or not a literal, or there is no such mode.
    """
    if slice_mode not in ("end", "size"):
        raise unexpected(slice_mode, "slice_mode is 'end' or 'size'")
    begins, ends = shapes.as_sizes(begin), shapes.as_sizes(end)
    named = (
        range(len(begins)) if axes is None else [shapes.normal_axis(int(k), a.ndim) for k in axes]
    )
    if slice_mode == "size":
        strides = None
        ends = tuple(
            a.shape[axis] if _is_negative(length) else first + length
            for axis, first, length in zip(named, begins, ends, strict=True)
        )
    steps = shapes.as_sizes([1] * len(begins) if strides is None else strides)
    shape = list(a.shape)
    starts: dict[int, tuple[PrimExpr, PrimExpr]] = {}
    for axis, first, last, step in zip(named, begins, ends, steps, strict=True):
        if not isinstance(step, tir.IntImm) or not step.value:
            raise MisuseError(f"a stride is a literal other than 0, found {step}")
        size = a.shape[axis]
        start, shape[axis] = slice_bounds(size, first, last, step.value, inbound=assume_inbound)
        starts[axis] = start, step

    def element(*index: PrimExpr) -> PrimExpr:
        source_index = [
            i * starts[k][1] + starts[k][0] if k in starts else i for k, i in enumerate(index)
        ]
        return a(*source_index)

    is_static = all(isinstance(value, tir.IntImm) for value in (*begins, *ends, *a.shape))
    suffix = "strided_slice" if axes is None else "strided_slice_with_axes"
    return injective(shape, element, f"T_{'' if is_static else 'dynamic_'}{suffix}")


def take(
    a: Tensor,
    indices: Tensor | ExprLike,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: TakeMode = "fast",
) -> Tensor:
    """Take elements of `a`, or slices along an axis, at `indices`, whose shape replaces the axis.

    The first `batch_dims` axes of `indices` are those of `a`: each slice along these has indices of
    its own.

    For indices out of range the result is undefined in mode "fast", and NaN in mode "nan". Mode
    "clip" uses the nearest valid index, and "wrap" the remainder.
    """
    first_axis = 0 if axis is None else shapes.normal_axis(axis, a.ndim)
    flat = a if axis is not None or a.ndim == 1 else reshape(a, [shapes.product(a.shape)])
    extent = flat.shape[first_axis]
    taken_shape = indices.shape if isinstance(indices, Tensor) else ()
    batch = 0 if axis is None else batch_dims + len(taken_shape) * (batch_dims < 0)
    if not 0 <= batch <= min(first_axis, len(taken_shape)):
        raise unexpected(batch_dims, f"batch_dims is at most the axis, {first_axis}")
    taken_shape = taken_shape[batch:]
    shape = (*flat.shape[:first_axis], *taken_shape, *flat.shape[first_axis + 1 :])

    def element(*index: PrimExpr) -> PrimExpr:
        middle = (*index[:batch], *index[first_axis : first_axis + len(taken_shape)])
        raw = indices(*middle) if isinstance(indices, Tensor) else ops.convert(indices)
        position = ops.cast_to(raw, "int64")
        before, after = index[:first_axis], index[first_axis + len(taken_shape) :]
        if mode == "nan":
            is_valid = ops.all_of(position >= ops.const(0, "int64"), position < extent)
            nan = tir.FloatImm(a.dtype, float("nan"))
            return intrin.if_then_else(is_valid, flat(*before, position, *after), nan)
        return flat(*before, _valid_index(position, extent, mode), *after)

    return injective(shape, element, "T_take")


def _valid_index(position: PrimExpr, extent: PrimExpr, mode: TakeMode) -> PrimExpr:
    if mode == "clip":
        last = extent - ops.const(1, "int64")
        return ops.minimum(ops.maximum(ops.const(0, "int64"), position), last)
    if mode == "wrap":  # the extent may be 0
        return tir.FloorMod(position, ops.maximum(extent, ops.const(1, "int64")))
    return position


def matmul(
    a: Tensor,
    b: Tensor,
    transp_a: bool = False,
    transp_b: bool = False,
    out_dtype: str | None = None,
    *,
    name: str = "matmul",
) -> Tensor:
    """Matmul as in NumPy: leading axes broadcast, a vector is a row or column.

    The last two axes of a matrix are exchanged where `transp_a` or `transp_b` is set. Terms
    are summed in `out_dtype`, or else in the datatype of the operands. Floats narrower than float32
    are summed in float32 and rounded once.

    Errors:
        MisuseError: an operand is a scalar, or the dimensions that are summed over differ.
    """
    if not a.ndim or not b.ndim:
        raise MisuseError("matmul takes vectors and matrices, found a tensor of rank 0")
    transp_a, transp_b = transp_a and a.ndim > 1, transp_b and b.ndim > 1
    rows, columns = _turned(a.shape, transp_a), _turned(b.shape, transp_b)
    if prove_equal(rows[-1], columns[max(-2, -b.ndim)]) is False:
        raise MisuseError(
            f"shapes {shapes.shape_text(rows)} and {shapes.shape_text(columns)} do not multiply"
        )
    is_row, is_column = a.ndim == 1, b.ndim == 1
    m = [] if is_row else [rows[-2]]
    n = [] if is_column else [columns[-1]]
    lead_a, lead_b = rows[:-2], columns[:-2]
    batch = shapes.broadcast_shapes(lead_a, lead_b)
    extent = rows[-1]
    k = te.reduce_axis((ops.const(0, extent.dtype), extent), "k")

    joint, _ = ops.match_dtypes(*(ops.const(0, x.dtype) for x in (a, b)))
    dtype = DataType(out_dtype or joint.dtype)
    wide = accumulator(dtype)

    def element(*index: PrimExpr) -> Any:
        lead = index[: len(batch)]
        remaining = list(index[len(batch) :])
        i = [] if is_row else [remaining.pop(0)]
        left = a(*shapes.broadcast_index(lead_a, lead, batch), *_turned((*i, k.var), transp_a))
        right = b(
            *shapes.broadcast_index(lead_b, lead, batch), *_turned((k.var, *remaining), transp_b)
        )
        term = ops.cast_to(left, wide) * ops.cast_to(right, wide)
        if ops.is_const(extent, 0):
            return ops.const(0, term.dtype)
        return (reduce.any if term.dtype.is_bool else reduce.sum)(term, axis=k)

    return as_dtype(te.compute([*batch, *m, *n], element, name=name), dtype)


def _turned(items: Sequence[PrimExpr], turn: bool) -> list[PrimExpr]:
    """The items, the last two exchanged if `turn`."""
    return [*items[:-2], items[-1], items[-2]] if turn else list(items)


def flip(a: Tensor, axis: int = 0) -> Tensor:
    """The elements of a in reverse order along an axis."""
    axis = normal_axis(axis, a.ndim)

    def element(*index: PrimExpr) -> PrimExpr:
        last = a.shape[axis] - ops.const(1, index[axis].dtype)
        return a(*index[:axis], last - index[axis], *index[axis + 1 :])

    return injective(a.shape, element, "T_reverse_sequence")


def roll(a: Tensor, shift: int, axis: int) -> Tensor:
    """Shift the elements of a by `shift` along an axis; those beyond its end wrap to its start."""
    axis = normal_axis(axis, a.ndim)
    size = a.shape[axis]

    def element(*index: PrimExpr) -> PrimExpr:
        position = index[axis]

        def element_at(source: PrimExpr) -> PrimExpr:
            return a(*index[:axis], source, *index[axis + 1 :])

        if not isinstance(size, tir.IntImm):
            return element_at((position - ops.const(shift, position.dtype)) % size)
        count = shift % size.value if size.value else 0
        if not count:
            return element_at(position)
        # Two slices, each of which is copied at once.
        entered = position + ops.const(size.value - count, position.dtype)
        start = ops.const(count, position.dtype)
        inside = start <= position
        return intrin.if_then_else(inside, element_at(position - start), element_at(entered))

    return injective(a.shape, element, "T_roll")


def repeat(a: Tensor, repeats: int, axis: int) -> Tensor:
    """Repeat each slice of a along an axis `repeats` times."""
    axis = normal_axis(axis, a.ndim)
    count = ops.const(repeats, "int64")
    shape = (*a.shape[:axis], tidy(a.shape[axis] * count), *a.shape[axis + 1 :])

    def element(*index: PrimExpr) -> PrimExpr:
        source = index[axis] // count if repeats else index[axis]
        return a(*index[:axis], source, *index[axis + 1 :])

    return injective(shape, element, "T_repeat")


def tile(a: Tensor, reps: Sequence[int]) -> Tensor:
    """Repeat a `reps[i]` times along axis i.

    The shorter of the shape and `reps` is padded with leading 1s.
    """
    rank = max(a.ndim, len(reps))
    times = [1] * (rank - len(reps)) + list(reps)
    leading = rank - a.ndim
    sizes = [ops.const(1, "int64")] * leading + list(a.shape)
    shape = [tidy(n * ops.const(count, n.dtype)) for n, count in zip(sizes, times, strict=True)]

    def element(*index: PrimExpr) -> PrimExpr:
        axes = zip(index[leading:], a.shape, strict=True)
        return a(*(i if ops.is_const(n, 0) else i % n for i, n in axes))

    return injective(shape, element, "T_tile")


def meshgrid(a_tuple: Sequence[Tensor], indexing: Literal["ij", "xy"] = "ij") -> list[Tensor]:
    """The coordinates of a grid: of each vector, a tensor with its elements along one axis.

    Vector k lies along axis k, but the first two are exchanged with indexing "xy".

    Errors:
        MisuseError: a tensor has another rank than 1.
    """
    if any(x.ndim != 1 for x in a_tuple):
        raise MisuseError("meshgrid takes vectors")
    axes = list(range(len(a_tuple)))
    if indexing == "xy" and len(axes) > 1:
        axes[:2] = [1, 0]
    shape = [a_tuple[axes.index(k)].shape[0] for k in range(len(axes))]

    def spread(x: Tensor, axis: int) -> Tensor:
        return injective(shape, lambda *i: x(i[axis]), "T_meshgrid")

    return [spread(x, axis) for x, axis in zip(a_tuple, axes, strict=True)]


def one_hot(
    indices: Tensor, on_value: PrimExpr, off_value: PrimExpr, depth: int, axis: int, dtype: str
) -> Tensor:
    """`on_value` where the position along a new axis is the index, else `off_value`."""
    axis = normal_axis(axis, indices.ndim + 1)
    size = ops.const(depth, "int64")
    on, off = ops.cast_to(on_value, dtype), ops.cast_to(off_value, dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        chosen = indices(*index[:axis], *index[axis + 1 :])
        position = ops.cast_to(index[axis], "int64")
        return tir.Select(ops.compare(tir.EQ, ops.cast_to(chosen, "int64"), position), on, off)

    shape = (*indices.shape[:axis], size, *indices.shape[axis:])
    return injective(shape, element, "T_one_hot")


def trilu(data: Tensor, k: ExprLike, upper: bool) -> Tensor:
    """The elements on and above (or below) diagonal k of the last two axes; 0 elsewhere.

    Errors:
        MisuseError: there are not two axes.
    """
    if data.ndim < 2:
        raise MisuseError(f"trilu: data has at least 2 axes, found {data.ndim}", about=data)
    offset = ops.cast_to(ops.convert(k), "int64")
    zero = ops.const(0, data.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        row, column = (ops.cast_to(i, "int64") for i in index[-2:])
        diagonal = column - offset
        is_kept = ops.compare(tir.LE if upper else tir.GE, row, diagonal)
        return tir.Select(is_kept, data(*index), zero)

    return injective(data.shape, element, "trilu")


def repeat_elements(a: Tensor, repeats: int, axis: int | None) -> Tensor:
    """As `repeat`; without an axis, of the elements in row-major order."""
    if axis is not None:
        return repeat(a, repeats, axis)
    flat = a if a.ndim == 1 else reshape(a, [product(a.shape)])
    return repeat(flat, repeats, 0)


def roll_elements(a: Tensor, shift: Sequence[int], axis: Sequence[int] | None) -> Tensor:
    """As `roll` along several axes; without an axis, of the elements in row-major order."""
    if axis is None:
        flat = a if a.ndim == 1 else reshape(a, [product(a.shape)])
        rolled = roll(flat, shift[0], 0)
        return rolled if a.ndim == 1 else reshape(rolled, a.shape)
    for count, one_axis in zip(shift, axis, strict=True):
        a = roll(a, count, one_axis)
    return a


def layout_transform(
    array: Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None"
) -> Tensor:
    """Convert a tensor to another layout, such as NCHW16c; incomplete blocks are padded with 0.

    `schedule_rule` has no effect.

    Errors:
        MisuseError: a layout does not exist, or the axes of the layouts and of `array` differ.
    """
    layouts = BijectiveLayout(src_layout, dst_layout)
    if len(layouts.src_layout) != array.ndim:
        raise MisuseError(
            f"layout_transform: {src_layout!r} has {len(layouts.src_layout)} axes, the tensor has "
            f"{array.ndim}",
            about=src_layout,
        )
    index = tuple(tir.Var(f"i{k}", "int64") for k in range(array.ndim))
    index_map = IndexMap(index, tuple(layouts.forward_index(index)))
    return transform_layout(array, index_map, name="T_layout_trans")


def inverse_index_map(index_map: IndexMap, shape: Sequence[PrimExpr]) -> IndexMap | None:
    """The inverse of a map on the indices of a shape; None if it is not known."""
    if index_map.inverse_index_map is not None:
        return index_map.inverse_index_map
    sizes = [tir.IntImm(n.dtype, 1) if ops.is_const(n, 0) else n for n in shape]
    try:
        return index_map.non_surjective_inverse(sizes)[0]
    except MisuseError:
        return None


def transform_layout(
    data: Tensor, index_map: IndexMap, pad_value: ExprLike = 0, name: str = "te_layout_transform"
) -> Tensor:
    """Move each element of data to the index that the map returns; `pad_value` elsewhere.

    Errors:
        MisuseError: the map is not known to be invertible.
    """
    inverse = inverse_index_map(index_map, data.shape)
    if inverse is None:
        raise MisuseError(f"the inverse of {index_map} is not known", about=index_map)
    shape = index_map.map_shape(data.shape)
    fill = ops.cast_to(pad_value, data.dtype)
    if any(ops.is_const(n, 0) for n in data.shape):
        return injective(shape, lambda *i: fill, name)
    data = _with_padding(data, index_map, inverse, shape, fill)

    def element(*index: PrimExpr) -> PrimExpr:
        analyzer = Analyzer()
        for i, size in zip(index, shape, strict=True):
            assert isinstance(i, tir.Var)
            analyzer.bind(i, Range(0, size))
        source = inverse.map_indices(index)
        conditions = []
        for position, size in zip(source, data.shape, strict=True):
            conditions.append(position >= ops.const(0, position.dtype))
            conditions.append(position < size)
        for i, mapped in zip(index, index_map.map_indices(source), strict=True):
            conditions.append(ops.compare(tir.EQ, mapped, i))
        undecided = [c for c in map(analyzer.simplify, conditions) if not _is_true(c)]
        value = data(*source)
        return intrin.if_then_else(ops.all_of(*undecided), value, fill) if undecided else value

    return injective(shape, element, name)


def _with_padding(
    data: Tensor, index_map: IndexMap, inverse: IndexMap, shape: Sequence[PrimExpr], fill: PrimExpr
) -> Tensor:
    """The data with padding up to whole blocks, which the map takes to the same shape.

    Then the elements of the result need no condition, and are those of a transposed view.
    """
    padded_shape = inverse.map_shape(shape)
    same_size = list(map(prove_equal, padded_shape, data.shape))
    if all(same_size) or not all(map(prove_equal, index_map.map_shape(padded_shape), shape)):
        return data
    zero = ops.const(0, "int64")
    widths = [
        zero if same else new - old
        for same, new, old in zip(same_size, padded_shape, data.shape, strict=True)
    ]
    return pad(data, [zero] * data.ndim, widths, fill)


def _is_true(condition: PrimExpr) -> bool:
    return isinstance(condition, tir.IntImm) and bool(condition.value)


def einsum(subscripts: str, *operand: Tensor) -> Tensor:
    """The sum of products of elements with equal labels, as NumPy's: "ij,jk->ik" is a product.

    Floats narrower than float32 are added in float32 and rounded once.

    Errors:
        MisuseError: the subscripts are malformed, or do not fit the ranks.
    """
    parsed = parse_subscripts(subscripts, [x.ndim for x in operand])
    sizes = label_sizes(parsed, [x.shape for x in operand], lambda label, a, b: a)
    dtype = DataType(operand[0].dtype)
    wide = accumulator(dtype)
    summed = {
        label: te.reduce_axis((ops.const(0, sizes[label].dtype), sizes[label]), label)
        for label in parsed.summed
    }
    empty = any(ops.is_const(sizes[label], 0) for label in summed)

    def element(*index: PrimExpr) -> Any:
        index_of_label: dict[str, PrimExpr] = dict(zip(parsed.result, index, strict=True))
        index_of_label |= {label: axis.var for label, axis in summed.items()}
        factors = [
            x(
                *(
                    ops.const(0, size.dtype) if ops.is_const(size, 1) else index_of_label[label]
                    for label, size in zip(labels, x.shape, strict=True)
                )
            )
            for labels, x in zip(parsed.operands, operand, strict=True)
        ]
        term = ops.cast_to(factors[0], wide)
        for factor in factors[1:]:
            term = term * ops.cast_to(factor, wide)
        if empty:
            return ops.const(0, term.dtype)
        if not summed:
            return term
        reducer = reduce.any if term.dtype.is_bool else reduce.sum
        return reducer(term, axis=list(summed.values()))

    shape = [sizes[label] for label in parsed.result]
    return as_dtype(te.compute(shape, element, name="T_einsum", tag="matmul"), dtype)


def tensordot(a: Tensor, b: Tensor, axes: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """The sum of products over pairs of axes, as NumPy's.

    `axes` is the axes of a and those of b in the same order, or the number of last axes of a and
    first axes of b.

    Errors:
        MisuseError: the numbers of axes differ, one is out of range, or sizes of a pair differ.
    """
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise MisuseError(
                f"tensordot: axes is between 0 and {min(a.ndim, b.ndim)}, found {axes}", about=axes
            )
        pairs = list(zip(range(a.ndim - axes, a.ndim), range(axes), strict=True))
    else:
        if len(axes) != 2 or len(axes[0]) != len(axes[1]):
            raise MisuseError(f"tensordot: axes are pairs, found {axes}", about=axes)
        pairs = [
            (normal_axis(i, a.ndim), normal_axis(j, b.ndim)) for i, j in zip(*axes, strict=True)
        ]
    left, right = list(ascii_letters[: a.ndim]), list(ascii_letters[a.ndim : a.ndim + b.ndim])
    for i, j in pairs:
        right[normal_axis(j, b.ndim)] = left[normal_axis(i, a.ndim)]
        if prove_equal(a.shape[i], b.shape[j]) is False:
            raise MisuseError(
                f"tensordot: axis {i} of {shape_text(a.shape)} and axis {j} of "
                f"{shape_text(b.shape)} differ"
            )
    result = [x for x in (*left, *right) if (x in left) != (x in right)]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join(result)}", a, b)
