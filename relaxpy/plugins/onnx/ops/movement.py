"""Shapes and movement: reshaping, joining, slicing, gathering, scattering, tiling, padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, ShapeExpr, TupleGetItem, const
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import padded, simple
from relaxpy.plugins.onnx.context import Context, Value, converter
from relaxpy.plugins.onnx.ops.branches import branches

_MAX_INT = (1 << 31) - 1
_MOST_BYTES = 1 << 48
"""The size in bytes that addresses can reach: no array is larger."""


@converter("Shape", strings=True)
def shape(cx: Context, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    sizes = (
        list(x.array.shape) if isinstance(x, tensors.Contents) else tensors.shape_of(cx.tensor(x))
    )
    part = sizes[start : len(sizes) if end is None else end]
    if all(isinstance(size, int) for size in part):
        return tensors.literal(np.array(part, np.int64))
    return cx.contents(part, [len(part)], "int64")


@converter("Size", strings=True)
def size(cx: Context, x: Expr) -> Value:
    total = tensors.product(tensors.shape_of(x))
    if isinstance(total, int):
        return tensors.literal(np.array(total, np.int64))
    return cx.contents([total], [], "int64")


def target_shape(
    cx: Context, x: Expr, wanted: Sequence[tensors.Size], allowzero: int
) -> list[tensors.Size]:
    """The sizes that a Reshape to `wanted` gives: 0 copies a size, and -1 is inferred."""
    old = tensors.shape_of(x)
    beyond = [k for k, size in enumerate(wanted) if tensors.is_size(size, 0) and k >= len(old)]
    if beyond and not allowzero:
        raise UnsupportedError(f"size {beyond[0]} is to be copied of {len(old)} sizes")
    new: list[Any] = [
        old[k] if isinstance(size, int) and size == 0 and not allowzero else size
        for k, size in enumerate(wanted)
    ]
    if -1 in [size for size in new if isinstance(size, int)]:
        at = next(k for k, size in enumerate(new) if isinstance(size, int) and size == -1)
        rest = [size for k, size in enumerate(new) if k != at]
        left = list(old)
        for size in [*rest]:
            for k, other in enumerate(left):
                if size is other or (isinstance(size, int) and size == other):
                    del left[k]
                    rest.remove(size)
                    break
        if any(tensors.is_size(size, 0) for size in rest):
            # As in ONNX Runtime, this is the quotient of the other sizes.
            left = [ops.maximum(tensors.as_size(size), 1) for size in left]
            rest = [size for size in rest if not tensors.is_size(size, 0)]
        above, below = tensors.product(left), tensors.product(rest)
        if isinstance(above, int) and isinstance(below, int):
            new[at] = above // below
        else:
            new[at] = (
                tensors.number(above // below)
                if not (isinstance(below, int) and below == 1)
                else above
            )
    return new


@converter("Reshape", since=5, strings=True)
def reshape(cx: Context, x: Value, shape: Value, *, allowzero: int = 0) -> Expr:
    data = cx.tensor(x)
    wanted = cx.integers(shape)
    if wanted is not None:
        return tensors.reshaped(data, tuple(target_shape(cx, data, wanted, allowzero)))
    return R.reshape(data, _run_time_shape(cx, data, cx.tensor(shape), allowzero))


def _run_time_shape(
    cx: Context, data: Expr, vector: Expr, allowzero: int
) -> Expr | tuple[PrimExpr, ...]:
    """A shape that is computed, after 0 and -1 in it have their meaning."""
    old, given = tensors.shape_of(data), vector
    sizes = cx.tensor(cx.contents(old, [len(old)], "int64"))
    [count] = tensors.shape_of(vector, 1)
    vector = tensors.as_dtype(vector, "int64")
    if not allowzero:
        if isinstance(count, int):
            padded = [*old[:count], *[0] * (tensors.length_known(vector) - len(old))]
            copied = cx.tensor(cx.contents(padded, [count], "int64"))
        else:
            padded = R.concat([sizes, R.zeros((count,), "int64")])
            copied = R.strided_slice(padded, [0], [0], [count])
        vector = R.where(R.equal(vector, const(0, "int64")), copied, vector)
    zero, one = const(0, "int64"), const(1, "int64")
    known = R.where(R.equal(vector, const(-1, "int64")), one, vector)
    # As in ONNX Runtime, -1 beside a 0 is the quotient of the other sizes.
    has_zero = R.astype(R.equal(R.prod(known), zero), "int64")
    total = R.prod(R.maximum(sizes, has_zero))
    rest = total // R.prod(R.maximum(known, one))
    vector = R.where(R.equal(vector, const(-1, "int64")), rest, vector)
    if not isinstance(count, int):
        return cx.shape_at_run_time(vector)
    return tuple(map(tensors.as_size, cx.sizes_at_run_time(vector, count, "size", given)))


@converter("Reshape", strings=True)
def reshape_1(cx: Context, x: Expr, *, shape: Sequence[int]) -> Expr:
    return tensors.reshaped(x, tuple(target_shape(cx, x, shape, 0)))


@converter("Flatten", strings=True)
def flatten(cx: Context, x: Expr, *, axis: int = 1) -> Expr:
    sizes = tensors.shape_of(x)
    at = len(sizes) if axis == len(sizes) else tensors.normal_axis(axis, len(sizes))
    return tensors.reshaped(x, (tensors.product(sizes[:at]), tensors.product(sizes[at:])))


@converter("Squeeze", strings=True)
def squeeze_1(cx: Context, x: Expr, *, axes: Sequence[int] | None = None) -> Expr:
    return _without_ones(cx, x) if axes is None else _squeezed(cx, x, axes)


def _without_ones(cx: Context, x: Expr) -> Expr:
    """`x` without the axes of size 1.

    Whether sizes that are not known are 1 follows from the declared rank of the result, or else the
    program tests the only such size. The declared rank also decides where some of them are 1.
    """
    sizes = tensors.shape_of(x)
    ones = [axis for axis, size in enumerate(sizes) if tensors.is_size(size, 1)]
    unknown = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    left = len(sizes) - len(ones)
    declared = cx.importer.ranks.get(cx.node.outputs[0])
    if unknown and declared == left - len(unknown):
        return _squeezed(cx, x, [*ones, *unknown])
    if declared is not None and left - len(unknown) < declared < left:
        lengths = cx.tensor(cx.contents(sizes, [len(sizes)], "int64"))
        kept = R.nonzero(R.not_equal(lengths, tensors.literal(np.array(1, np.int64))))
        axes = R.reshape(cx.match(kept, [1, declared], "int64"), (declared,))
        return tensors.reshaped(
            x, tuple(cx.sizes_at_run_time(R.take(lengths, axes, 0), declared, "size"))
        )
    if len(unknown) != 1 or declared == left:
        return R.squeeze(x, ones)
    cx.require_branches()
    length = cx.tensor(cx.contents([sizes[unknown[0]]], (), "int64"))
    ways = [
        lambda: [cx.as_strings(_squeezed(cx, x, [*ones, *unknown]), x)],
        lambda: [cx.as_strings(R.squeeze(x, ones), x)],
    ]
    test = cx.emit(R.equal(length, const(1, "int64")))
    [result] = branches(cx, test, ways, rest_differs=cx.importer.may_split)
    return cx.tensor(result)


def _squeezed(cx: Context, x: Expr, axes: Sequence[int]) -> Expr:
    """`x` without axes, whose sizes are 1, which the program checks if they are not known."""
    sizes = list(tensors.shape_of(x))
    normal = {tensors.normal_axis(axis, len(sizes)) for axis in axes}
    if any(isinstance(sizes[axis], tir.PrimExpr) for axis in normal):
        known = [1 if axis in normal else size for axis, size in enumerate(sizes)]
        x = cx.match(x, known, tensors.dtype_of(x))
    return R.squeeze(x, list(axes))


@converter("Squeeze", since=13, strings=True)
def squeeze(cx: Context, x: Expr, axes: Value = None) -> Expr:
    if axes is None:
        return _without_ones(cx, x)
    if cx.array(axes) is not None:
        return _squeezed(cx, x, cx.numbers(axes, "axes"))
    among = axes_mask(cx, cx.tensor(axes), tensors.rank_of(x))
    return tensors.reshaped(
        x, tuple(kept_sizes(cx, x, among, tensors.length_known(cx.tensor(axes))))
    )


def axes_mask(cx: Context, axes: Expr, rank: int) -> Expr:
    """For each of `rank` axes, whether it is in a vector that is known only at run time."""
    whole = R.reshape(R.astype(cx.within(axes, "axes", -rank, rank - 1), "int64"), (-1, 1))
    equal = R.equal(wrapped(whole, rank), tensors.literal(np.arange(rank, dtype=np.int64)))
    return cx.emit(R.astype(R.sum(R.astype(equal, "int32"), 0), "bool"), "among")


def kept_sizes(cx: Context, x: Expr, among: Expr, count: int) -> list[tensors.Size]:
    """The sizes of `x` without the `count` axes that are among the chosen ones."""
    rank = tensors.rank_of(x)
    order = R.argsort(R.astype(among, "int32"), 0, False, "int64")
    kept = R.strided_slice(order, [0], [0], [rank - count])
    sizes = R.take(cx.tensor(cx.contents(tensors.shape_of(x), [rank], "int64")), kept, 0)
    return cx.sizes_at_run_time(sizes, rank - count, "size")


@converter("Unsqueeze", strings=True)
def unsqueeze_1(cx: Context, x: Expr, *, axes: Sequence[int]) -> Expr:
    return R.expand_dims(x, list(axes))


@converter("Unsqueeze", since=13, strings=True)
def unsqueeze(cx: Context, x: Expr, axes: Value) -> Expr:
    if cx.array(axes) is not None:
        return R.expand_dims(x, cx.numbers(axes, "axes"))
    rank = tensors.rank_of(x) + tensors.length_known(R.reshape(cx.tensor(axes), (-1,)))
    among = axes_mask(cx, cx.tensor(axes), rank)
    place = R.cumsum(R.where(among, integer(0), integer(1)), 0) - integer(1)
    sizes = cx.tensor(cx.contents([*tensors.shape_of(x), 1], [tensors.rank_of(x) + 1], "int64"))
    old = R.take(sizes, R.maximum(place, integer(0)), 0)
    return tensors.reshaped(
        x, tuple(cx.sizes_at_run_time(R.where(among, integer(1), old), rank, "size"))
    )


def integer(value: int) -> Expr:
    """A constant of rank 0 in int64."""
    return const(value, "int64")


@converter("Transpose", strings=True)
def transpose(cx: Context, x: Expr, *, perm: Sequence[int] | None = None) -> Expr:
    return R.permute_dims(x, None if perm is None else list(perm))


@converter("Expand", strings=True)
def expand(cx: Context, x: Value, shape: Value) -> Expr:
    data = cx.tensor(x)
    wanted = cx.sizes_or_shape(shape)
    if isinstance(wanted, Expr):
        return _times_ones(data, wanted)
    old = tensors.shape_of(data)
    rank = max(len(old), len(wanted))
    before = [1] * (rank - len(old)) + old
    after = [1] * (rank - len(wanted)) + list(wanted)
    joint = [a if tensors.is_size(b, 1) else b for a, b in zip(before, after, strict=True)]
    if all(
        (isinstance(size, int) and size > 1) or tensors.is_size(old_size, 1) or size is old_size
        for size, old_size in zip(joint, before, strict=True)
    ):
        return R.broadcast_to(data, tuple(joint))
    return _times_ones(data, after)


def _times_ones(data: Expr, shape: Sequence[tensors.Size] | Expr) -> Expr:
    """`data` times ones of a shape, with which it broadcasts."""
    ones = R.ones(shape, tensors.dtype_of(data))
    return R.logical_and(data, ones) if tensors.dtype_of(data) == "bool" else data * ones


@converter("Concat", strings=True)
def concat_1(cx: Context, *inputs: Expr, axis: int = 1) -> Expr:
    return concat(cx, *inputs, axis=axis)


@converter("Concat", since=4, strings=True)
def concat(cx: Context, *inputs: Expr, axis: int) -> Expr:
    along = tensors.normal_axis(axis, tensors.rank_of(inputs[0]))
    return R.concat(cx.unified(inputs, along), along)


def with_parts(cx: Context, x: Expr, axis: int, parts: Sequence[tensors.Size]) -> Expr:
    """`x`, whose size along an axis is the sum of its parts, checked at run time if not known.

    Errors:
        UnsupportedError: it is another, or a part is negative.
    """
    sizes, total = tensors.shape_of(x), simple(sum(parts))
    is_sum = prove_equal(tensors.as_size(sizes[axis]), tensors.as_size(total))
    if is_sum is False or any(isinstance(part, int) and part < 0 for part in parts):
        shown = ", ".join(map(str, parts))
        raise UnsupportedError(f"parts of ({shown}) elements, expected {sizes[axis]} in all")
    if is_sum:
        return x
    return cx.match(x, [*sizes[:axis], total, *sizes[axis + 1 :]], tensors.dtype_of(x))


def _split(cx: Context, x: Expr, sizes: Sequence[int] | None, axis: int, count: int) -> list[Expr]:
    at = tensors.normal_axis(axis, tensors.rank_of(x))
    if sizes is None:
        total = tensors.shape_of(x)[at]
        if isinstance(total, PrimExpr):
            part = tensors.number((total + (count - 1)) // count)
            bounds = [tensors.number(part * k) for k in range(count + 1)]
            return [
                R.strided_slice(x, [at], [bounds[k]], [total if k == count - 1 else bounds[k + 1]])
                for k in range(count)
            ]
        part = -(-total // count)
        if cx.opset < 18 and total % count:
            raise UnsupportedError(f"{total} elements are not {count} equal parts")
        sizes = [min(part, max(total - k * part, 0)) for k in range(count)]
    tensors.require_count("split", sizes, count)
    x = with_parts(cx, x, at, sizes)
    if len(sizes) == 1:
        return [x]
    parts = cx.emit(R.split(x, [int(k) for k in np.cumsum(sizes)[:-1]], at), "parts")
    return [TupleGetItem(parts, k) for k in range(len(sizes))]


@converter("Split", strings=True)
def split_1(
    cx: Context, x: Expr, sizes: Value = None, *, axis: int = 0, split: Sequence[int] | None = None
) -> list[Expr]:
    given = split if sizes is None else cx.numbers(sizes, "split")
    return _split(cx, x, given, axis, len(cx.node.outputs))


@converter("Split", since=13, strings=True)
def split_13(
    cx: Context, x: Expr, split: Value = None, *, axis: int = 0, num_outputs: int | None = None
) -> list[Expr]:
    sizes = None if split is None else cx.integers(split)
    numbers = [size for size in sizes or [] if isinstance(size, int)]
    count = len(cx.node.outputs)
    if split is not None and num_outputs is not None:
        raise UnsupportedError("there are both split and num_outputs")
    if num_outputs not in (None, count):
        raise UnsupportedError(f"num_outputs is {num_outputs}, but the node has {count}")
    if split is None or (sizes is not None and len(numbers) == len(sizes)):
        return _split(cx, x, None if sizes is None else numbers, axis, count)
    at = tensors.normal_axis(axis, tensors.rank_of(x))
    if sizes is None:
        sizes = cx.sizes_at_run_time(cx.within(cx.tensor(split), "split"), count, "part")
    tensors.require_count("split", sizes, count)
    x = with_parts(cx, x, at, sizes)
    ends = [simple(sum(sizes[: k + 1])) for k in range(count)]
    return [
        R.strided_slice(x, [at], [begin], [end])
        for begin, end in zip([0, *ends], ends, strict=False)
    ]


@converter("Slice", strings=True)
def slice_1(
    cx: Context,
    x: Expr,
    *,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
) -> Expr:
    return _sliced(x, starts, ends, axes, None)


def _sliced(
    x: Expr,
    starts: Sequence[tensors.Size],
    ends: Sequence[tensors.Size],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Expr:
    chosen = tensors.normal_axes(range(len(starts)) if axes is None else axes, tensors.rank_of(x))
    strides = [1] * len(starts) if steps is None else list(steps)
    sizes = tensors.shape_of(x)
    for name, values in (("ends", ends), ("axes", chosen), ("steps", strides)):
        tensors.require_count(name, values, len(starts))
    begin, end = [], []
    for axis, start, stop, step in zip(chosen, starts, ends, strides, strict=True):
        size = sizes[axis]
        begin.append(_index(_clamped(start, size, step), size, step, last=False))
        end.append(size if _is_beyond(stop, x) else _index(stop, size, step, last=True))
    return R.strided_slice(x, chosen, begin, end, strides)


def _is_beyond(stop: tensors.Size, x: Expr) -> bool:
    """True if no array of this shape has that many rows. Exporters write 10**9 for the last one."""
    row = math.prod(max(1, n) for n in tensors.shape_of(x) if isinstance(n, int))
    dtype = tensors.tensor_info(x).dtype
    row *= 1 if dtype is None else dtype.itemsize
    return isinstance(stop, int) and stop * row > _MOST_BYTES


def _clamped(start: tensors.Size, size: tensors.Size, step: int) -> tensors.Size:
    """A start below the first element is that element, also where a slice goes backwards."""
    if step > 0 or not isinstance(start, int) or start >= 0:
        return start
    if isinstance(size, int):
        return max(start, -size)
    return tir.Max(size + start, tir.IntImm("int64", 0))


def _index(index: tensors.Size, size: tensors.Size, step: int, *, last: bool) -> tensors.Size:
    """An index of Slice as one of strided_slice, whose numbers have their meaning in NumPy."""
    if not isinstance(index, int):
        return index
    if index >= _MAX_INT:
        return size
    if index <= -_MAX_INT:
        if isinstance(size, int):
            return -size - 1
        return tensors.number(-1 * size - 1) if last and step < 0 else 0  # type: ignore[return-value]
    return index


@converter("Slice", since=10, strings=True)
def slice_10(
    cx: Context, x: Expr, starts: Value, ends: Value, axes: Value = None, steps: Value = None
) -> Expr:
    chosen = None if axes is None else cx.array(axes)
    begin, end = cx.integers(starts), cx.integers(ends)
    strides = None if steps is None else cx.integers(steps)
    numbers = [step for step in strides or [] if isinstance(step, int)]
    known = axes is None or chosen is not None
    known = known and (steps is None or len(numbers) == len(begin or ()))
    if known and begin is not None and end is not None:
        at = None if chosen is None else [int(axis) for axis in chosen.reshape(-1)]
        return _sliced(x, begin, end, at, numbers or None)
    return _dynamic_slice(cx, x, cx.tensor(starts), cx.tensor(ends), axes, steps)


def _dynamic_slice(
    cx: Context, x: Expr, starts: Expr, ends: Expr, axes: Value, steps: Value
) -> Expr:
    rank = tensors.rank_of(x)
    count = tensors.length_known(starts)
    chosen: Sequence[int] = range(count)
    index: Expr = tensors.literal(np.arange(count, dtype=np.int64))
    if axes is not None:
        array = cx.array(axes)
        if array is None:
            chosen = range(rank)
            index = R.astype(cx.tensor(axes), "int64")
        else:
            chosen = tensors.normal_axes(array.reshape(-1).tolist(), rank)
            index = tensors.literal(np.array(chosen, np.int64))
    sizes = cx.tensor(cx.contents(tensors.shape_of(x), [rank], "int64"))
    first: Expr = tensors.literal(np.zeros(rank, np.int64))
    strides: Expr = tensors.literal(np.ones(rank, np.int64))
    begin = R.scatter_elements(first, index, R.astype(starts, "int64"))
    end = R.scatter_elements(sizes, index, R.astype(ends, "int64"))
    if steps is not None:
        strides = R.scatter_elements(strides, index, R.astype(cx.tensor(steps), "int64"))
    backwards = strides < integer(0)
    below = begin < -sizes
    begin = R.where(R.logical_and(backwards, below), integer(0), begin)
    sliced = cx.builder.emit(R.dynamic_strided_slice(x, begin, end, strides))
    out = [
        cx.new_size("length") if axis in chosen else size
        for axis, size in enumerate(tensors.shape_of(x))
    ]
    return cx.match(sliced, out, tensors.dtype_of(x))


def wrapped(indices: Expr, size: tensors.Size) -> Expr:
    """The indices, those below zero counted from the end.

    Those out of bounds are unchanged, so that errors name the index that was stated.
    """
    if isinstance(size, int):
        length: Expr = tensors.scalar(size, indices)
    else:
        length = R.astype(
            R.reshape(R.shape_to_tensor(ShapeExpr((size,))), ()), tensors.dtype_of(indices)
        )
    return _counted(indices, length)


def _counted(indices: Expr, length: Expr) -> Expr:
    is_inside = indices >= -length
    is_negative = indices < 0
    from_start = indices + length
    return R.where(R.logical_and(is_negative, is_inside), from_start, indices)


def _positive(cx: Context, indices: Expr, size: tensors.Size) -> Expr:
    """The indices as int64 without negative ones, folded if they are constant."""
    array = cx.array(indices)
    if array is not None and isinstance(size, int):
        return tensors.literal(np.where(array < 0, array + size, array).astype(np.int64))
    if array is not None and (array >= 0).all():
        return const(array.astype(np.int64))
    whole = tensors.as_dtype(indices, "int64")
    return wrapped(whole, size)


@converter("Gather", strings=True)
def gather(cx: Context, x: Expr, indices: Value, *, axis: int = 0) -> Expr:
    at = tensors.normal_axis(axis, tensors.rank_of(x))
    return R.take(x, _positive(cx, cx.tensor(indices), tensors.shape_of(x)[at]), at)


@converter("GatherElements", strings=True)
def gather_elements(cx: Context, x: Expr, indices: Expr, *, axis: int = 0) -> Expr:
    at = tensors.normal_axis(axis, tensors.rank_of(x))
    return R.gather_elements(x, _positive(cx, indices, tensors.shape_of(x)[at]), at)


@converter("GatherND", domain="com.microsoft")
@converter("GatherND", strings=True)
def gather_nd(cx: Context, x: Expr, indices: Expr, *, batch_dims: int = 0) -> Expr:
    stated = cx.importer.ranks.get(cx.node.outputs[0])
    indices, count = _of_known_tuples(cx, x, indices, stated, batch_dims)
    sizes = tensors.shape_of(x)[batch_dims : batch_dims + count]
    return R.gather_nd(x, _tuples(cx, indices, sizes), batch_dims)


def _of_known_tuples(
    cx: Context, x: Expr, indices: Expr, rank: int | None, batch_dims: int = 0
) -> tuple[Expr, int]:
    """Tuples of indices of `x`, and how many are in a tuple, by the rank of what they select."""
    *outer, last = tensors.shape_of(indices)
    if isinstance(last, int):
        return indices, last
    if rank is None:
        raise UnsupportedError(
            "the number of indices in a tuple is symbolic, and decides the rank of the result; "
            "state a shape of the result in the model"
        )
    count = len(outer) + tensors.rank_of(x) - batch_dims - rank
    if not 0 <= count <= tensors.rank_of(x) - batch_dims:
        raise UnsupportedError(f"the indices select no part of rank {rank}")
    return cx.match(indices, [*outer, count], tensors.dtype_of(indices)), count


def _tuples(cx: Context, indices: Expr, sizes: Sequence[tensors.Size]) -> Expr:
    """Tuples of indices, those below zero counted from the end."""
    whole = tensors.as_dtype(indices, "int64")
    array = cx.array(indices)
    if array is not None and (array >= 0).all():
        return whole
    return _counted(whole, cx.tensor(cx.contents(list(sizes), [len(sizes)], "int64")))


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


_REDUCTION = {"reduction": _REDUCTIONS}


def _require_plain(cx: Context, x: Expr, reduction: str) -> None:
    """Check that strings are not reduced."""
    if reduction != "none" and cx.has_strings(x):
        raise UnsupportedError(f"reduction is {reduction!r}, expected 'none' for strings")


@converter("ScatterElements", "Scatter", admitted=_REDUCTION, strings=True)
def scatter_elements(
    cx: Context, x: Expr, indices: Expr, updates: Expr, *, axis: int = 0, reduction: str = "none"
) -> Expr:
    _require_plain(cx, x, reduction)
    at = tensors.normal_axis(axis, tensors.rank_of(x))
    return R.scatter_elements(x, indices, updates, at, _REDUCTIONS[reduction])


@converter("ScatterND", admitted=_REDUCTION, strings=True)
def scatter_nd(
    cx: Context, x: Expr, indices: Expr, updates: Expr, *, reduction: str = "none"
) -> Expr:
    _require_plain(cx, x, reduction)
    indices, _ = _of_known_tuples(cx, x, indices, tensors.rank_of(updates))
    return R.scatter_nd(x, indices, updates, _REDUCTIONS[reduction])


@converter("Tile", since=6, strings=True)
def tile(cx: Context, x: Expr, repeats: Value) -> Expr:
    counts = cx.sizes(repeats, "repeat", tensors.rank_of(x))
    tensors.require_count("repeats", counts, tensors.rank_of(x))
    if all(isinstance(count, int) for count in counts):
        return R.tile(x, counts)
    for axis, count in enumerate(counts):
        if not tensors.is_size(count, 1):
            sizes = tensors.shape_of(x)
            wide = [*sizes[:axis], count, *sizes[axis:]]
            flat = [*sizes[:axis], tensors.product([count, sizes[axis]]), *sizes[axis + 1 :]]
            x = tensors.reshaped(R.broadcast_to(R.expand_dims(x, [axis]), tuple(wide)), tuple(flat))
    return x


@converter("Tile", strings=True)
def tile_1(cx: Context, x: Expr, tiles: Value, axis: Value) -> Expr:
    repeats = [1] * tensors.rank_of(x)
    repeats[cx.numbers(axis, "axis")[0]] = cx.numbers(tiles, "tiles")[0]
    return R.tile(x, repeats)


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@converter("Pad", admitted={"mode": _MODES}, strings=True)
def pad_1(
    cx: Context,
    x: Expr,
    *,
    pads: Sequence[int] | None = None,
    paddings: Sequence[int] | None = None,
    mode: str = "constant",
    value: float = 0.0,
) -> Expr:
    amounts = pads or paddings or ()
    tensors.require_count("pads", amounts, 2 * tensors.rank_of(x))
    return padded(cx, x, amounts, _MODES[mode], value)


@converter("Pad", domain="com.microsoft", admitted={"mode": _MODES})
@converter("Pad", since=11, admitted={"mode": _MODES}, strings=True)
def pad(
    cx: Context,
    x: Expr,
    pads: Value,
    constant_value: Value = None,
    axes: Value = None,
    *,
    mode: str = "constant",
) -> Expr:
    rank = tensors.rank_of(x)
    chosen = list(range(rank))
    if axes is not None and cx.array(axes) is None:
        among = wrapped(R.astype(cx.tensor(axes), "int64"), rank)
        every = tensors.literal(np.zeros(2 * rank, np.int64))
        places = R.concat([among, among + integer(rank)])
        both = R.scatter_elements(every, places, cx.tensor(pads))
        amounts = cx.sizes_at_run_time(both, 2 * rank, "pad")
    else:
        if axes is not None:
            chosen = tensors.normal_axes(cx.numbers(axes, "axes"), rank)
        amounts = cx.sizes(pads, "pad", 2 * len(chosen))
    tensors.require_count("pads", amounts, 2 * len(chosen))
    full: list[tensors.Size] = [0] * (2 * rank)
    for k, axis in enumerate(chosen):
        full[axis], full[rank + axis] = amounts[k], amounts[k + len(chosen)]
    value: Expr | float | None = None
    if constant_value is not None:
        array = cx.array(constant_value)
        value = cx.tensor(constant_value) if array is None else array.item()
    return padded(cx, x, full, _MODES[mode], value)
