"""Fourier transforms as products with matrices, short-time ones, and mel scales."""

from __future__ import annotations

import math

import numpy as np

from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.registry import Value, converter
from relaxpy.frontend.onnx.view import dtype_of as dtype_of_code
from relaxpy.frontend.shared.tensors import (
    Array,
    Size,
    dtype_of,
    literal,
    normal_axis,
    rank_of,
    reshaped,
    shape_of,
)
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.frontend.shared.windows import simple, whole
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.interpolation import double
from relaxpy.ir.te.topi.shapes import as_sizes
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_expr import PrimExpr

#: The elements of the largest matrix of a transform that is a constant, and the most points of
#: one that is made in two steps; kernels compute larger ones.
_LARGEST = 1 << 22


def _matrix(
    cx: Context,
    length: Size,
    count: Size,
    outputs: Size,
    parts: tuple[int, int],
    dtype: str,
    *,
    inverse: bool,
    onesided: bool,
) -> Expr:
    """The transform of `count` points as a matrix.

    Its rows are `length` elements by their real and imaginary parts, its columns the `outputs`;
    `parts` says how many parts both have. Of an inverse that is onesided, the elements are the
    first half of a spectrum that is symmetric.
    """
    if (
        isinstance(length, int)
        and isinstance(count, int)
        and isinstance(outputs, int)
        and length * outputs <= _LARGEST
    ):
        n, k = np.arange(length).reshape(-1, 1, 1, 1), np.arange(outputs).reshape(1, 1, -1, 1)
        angle = 2 * np.pi * (n * k % max(count, 1)) / max(count, 1)
        weight: Array = (n < count).astype(np.float64)
        if inverse and onesided:
            doubled = (n > 0) & (2 * n < count)
            weight = np.where(doubled, 2.0, np.where(2 * n <= count, 1.0, 0.0))
        source, target = np.arange(parts[0]).reshape(1, -1, 1, 1), np.arange(parts[1])
        value = np.where(source == target, np.cos(angle), np.sin(angle))
        negative = (source > target) if inverse else (source < target)
        value = np.where(negative, -value, value) * weight / (count if inverse else 1)
        return literal(value.reshape(length * parts[0], outputs * parts[1]).astype(dtype))

    def table() -> Tensor:
        size, total, columns = as_sizes([length, count, outputs])

        def element(row: PrimExpr, column: PrimExpr) -> PrimExpr:
            n, source = ops.floordiv(row, _whole(parts[0])), ops.floormod(row, _whole(parts[0]))
            k, target = (
                ops.floordiv(column, _whole(parts[1])),
                ops.floormod(column, _whole(parts[1])),
            )
            value = _twiddle(n, k, total, source, target, inverse=inverse, onesided=onesided)
            return ops.cast_to(value, dtype)

        return computed([size * parts[0], columns * parts[1]], element, "transform")

    return cx.te(table, name="transform")


def _whole(value: int) -> PrimExpr:
    return ops.const(value, "int64")


def _twiddle(
    n: PrimExpr,
    k: PrimExpr,
    count: PrimExpr,
    source: PrimExpr,
    target: PrimExpr,
    *,
    inverse: bool,
    onesided: bool,
) -> PrimExpr:
    """The share of part `source` of element n in part `target` of element k of a transform."""
    one, zero = double(1.0), double(0.0)
    angle = double(ops.floormod(n * k, count)) * double(2 * math.pi) / double(count)
    sine = intrin.sin(angle)
    negative = source > target if inverse else source < target
    odd = tir.Select(negative, -sine, sine)
    value = tir.Select(ops.compare(tir.EQ, source, target), intrin.cos(angle), odd)
    if not (inverse and onesided):
        weight = tir.Select(n < count, one, zero)
    else:
        inner = ops.all_of(n > 0, n * 2 < count)
        edge = tir.Select(n * 2 <= count, one, zero)
        weight = tir.Select(inner, double(2.0), edge)
    return value * weight / double(count) if inverse else value * weight


@converter("DFT")
def dft_17(
    cx: Context,
    x: Expr,
    dft_length: Value = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Expr:
    at = normal_axis(axis, rank_of(x))
    return _transformed(cx, x, dft_length, at, bool(inverse), bool(onesided))


@converter("DFT", since=20)
def dft(
    cx: Context,
    x: Expr,
    dft_length: Value = None,
    axis: Value = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Expr:
    if axis is not None and cx.array(axis) is None:
        place = cx.tensor(axis)
        return _transformed_anywhere(cx, x, dft_length, place, bool(inverse), bool(onesided))
    at = -2 if axis is None else cx.numbers(axis, "axis")[0]
    return _transformed(
        cx, x, dft_length, normal_axis(at, rank_of(x)), bool(inverse), bool(onesided)
    )


def _points(cx: Context, value: Value) -> Size:
    """The only element of a tensor of one size."""
    known = cx.integers(value)
    if known is not None:
        return known[0]
    return cx.sizes_at_run_time(R.reshape(cx.tensor(value), (1,)), 1, "length")[0]


def _transformed(
    cx: Context, x: Expr, dft_length: Value, axis: int, inverse: bool, onesided: bool
) -> Expr:
    """The transform along an axis that is known."""
    sizes, rank = shape_of(x), rank_of(x)
    parts = sizes[-1]
    if parts not in (1, 2) or axis == rank - 1:
        raise UnsupportedError("the last axis of an operand of DFT has 1 or 2 parts")
    length = sizes[axis]
    if dft_length is not None:
        count = _points(cx, dft_length)
    else:
        count = simple((length - 1) * 2) if inverse and onesided else length
    halved = onesided and not inverse
    outputs = simple(count // 2 + 1) if halved else count
    made = 1 if inverse and onesided else 2
    others = [k for k in range(rank - 1) if k != axis]
    order = [*others, axis, rank - 1]
    moved = x if order == list(range(rank)) else R.permute_dims(x, order)
    outer = [sizes[k] for k in others]
    factors = (
        _factors(length) if made == 2 and isinstance(length, int) and length == count else None
    )
    if factors is not None:
        y = _in_two_steps(cx, moved, outer, factors, whole(parts), inverse=inverse)
        if halved:
            y = R.strided_slice(y, [len(outer)], [0], [outputs])
    else:
        transform = _matrix(
            *(cx, length, count, outputs, (whole(parts), made), dtype_of(x)),
            inverse=inverse,
            onesided=onesided,
        )
        rows = reshaped(moved, (*outer, simple(length * parts)))
        y = reshaped(cx.emit(R.matmul(rows, transform)), (*outer, outputs, made))
    if order == list(range(rank)):
        return y
    return R.permute_dims(y, [order.index(k) for k in range(rank)])


def _factors(count: int) -> tuple[int, int] | None:
    """Two factors of a number of points whose transforms take less than one of all points."""
    if not 0 < count <= _LARGEST:
        return None
    first = next((n for n in range(math.isqrt(count), 0, -1) if count % n == 0), 1)
    return (first, count // first) if 4 * (first + count // first) <= count else None


def _in_two_steps(
    cx: Context,
    x: Expr,
    outer: list[Size],
    factors: tuple[int, int],
    parts: int,
    *,
    inverse: bool,
) -> Expr:
    """The transform along the axis before the last one, of N = a b points, by those of a and of b.

    With n = n1 b + n2, k = k1 + a k2 and w = exp(-2 pi i / N), X[k] is the sum over n2 of
    w^(a n2 k2) w^(n2 k1) Y[n2, k1], and Y[n2, k1] the sum over n1 of w^(b n1 k1) x[n]
    (Cooley and Tukey, Math. Comp. 19, 1965).
    """
    (a, b), dtype, at = factors, dtype_of(x), len(outer)

    def along(y: Expr, count: int, parts: int) -> Expr:
        """The transform of `count` points along axis `at`, which comes after the next one."""
        step = _matrix(cx, count, count, count, (parts, 2), dtype, inverse=inverse, onesided=False)
        swapped = R.permute_dims(y, [*range(at), at + 1, at, at + 2])
        rows = reshaped(swapped, (*outer, a * b // count, count * parts))
        return reshaped(cx.emit(R.matmul(rows, step)), (*outer, a * b // count, count, 2))

    y = along(reshaped(x, (*outer, a, b, parts)), a, parts)
    angle = 2 * np.pi / (a * b) * np.outer(np.arange(b), np.arange(a))
    sine = np.sin(angle) if inverse else -np.sin(angle)
    cosines, sines = np.stack([np.cos(angle)] * 2, -1), np.stack([-sine, sine], -1)
    turned = R.multiply(R.flip(y, at + 2), literal(sines.astype(dtype)))
    y = along(cx.emit(R.add(R.multiply(y, literal(cosines.astype(dtype))), turned)), b, 2)
    whole_axes = R.permute_dims(y, [*range(at), at + 1, at, at + 2])
    return reshaped(whole_axes, (*outer, a * b, 2))


def _transformed_anywhere(
    cx: Context, x: Expr, dft_length: Value, axis: Expr, inverse: bool, onesided: bool
) -> Expr:
    """The transform along an axis that is computed."""
    sizes, rank = shape_of(x), rank_of(x)
    points = None if dft_length is None else _points(cx, dft_length)
    shape: list[Size] = list(sizes[:-1])
    whole = R.reshape(R.astype(axis, "int64"), (1,))
    if onesided or points is not None:
        count = cx.tensor(cx.contents(shape, [rank - 1], "int64"))
        if points is not None:
            count = R.multiply(R.ones_like(count), cx.tensor(cx.contents([points], [1], "int64")))
        elif inverse:
            count = R.multiply(R.subtract(count, const(1, "int64")), const(2, "int64"))
        if onesided and not inverse:
            count = R.add(R.floor_divide(count, const(2, "int64")), const(1, "int64"))
        place = R.floor_mod(whole, const(rank, "int64"))
        here = R.equal(R.arange(0, rank - 1, 1, "int64"), place)
        old = cx.tensor(cx.contents(shape, [rank - 1], "int64"))
        shape = cx.sizes_at_run_time(cx.emit(R.where(here, count, old)), rank - 1, "size")
    made = 1 if inverse and onesided else 2

    def kernel(data: Tensor, places: Tensor) -> Tensor:
        at = ops.floormod(places(_whole(0)), _whole(rank))

        def chosen(values: list[PrimExpr]) -> PrimExpr:
            result = values[0]
            for k, value in enumerate(values[1:], 1):
                result = tir.Select(ops.compare(tir.EQ, at, _whole(k)), value, result)
            return result

        lengths = list(data.shape[:-1])
        length = chosen(lengths)
        if points is not None:
            [count] = as_sizes([points])
        else:
            count = (length - 1) * 2 if inverse and onesided else length
        most = lengths[0]
        for size in lengths[1:]:
            most = ops.maximum(most, size)

        def element(*index: PrimExpr) -> PrimExpr:
            n = te.reduce_axis((_whole(0), most), "n")
            k = chosen(list(index[:-1]))
            inside = n.var < length
            source = [
                tir.Select(
                    ops.compare(tir.EQ, at, _whole(d)), ops.minimum(n.var, size - 1), index[d]
                )
                for d, size in enumerate(lengths)
            ]
            total: PrimExpr = double(0.0)
            parts = data.shape[-1]
            assert isinstance(parts, tir.IntImm)
            for part in range(parts.value):
                share = _twiddle(
                    n.var,
                    k,
                    ops.maximum(count, _whole(1)),
                    _whole(part),
                    index[-1],
                    inverse=inverse,
                    onesided=onesided,
                )
                total = total + double(data(*source, _whole(part))) * share
            return reduce.sum(tir.Select(inside, total, double(0.0)), axis=n)

        result = computed([*as_sizes(shape), _whole(made)], element, "dft")
        return computed(
            result.shape, lambda *index: ops.cast_to(result(*index), data.dtype), "dft_cast"
        )

    return cx.te(kernel, x, cx.emit(whole), name="dft")


@converter("STFT")
def stft(
    cx: Context,
    signal: Expr,
    frame_step: Value,
    window: Expr | None = None,
    frame_length: Value = None,
    *,
    onesided: int = 1,
) -> Expr:
    if rank_of(signal) == 2:
        signal = cx.emit(R.expand_dims(signal, [2]))
    batch, size, parts = shape_of(signal)
    if parts not in (1, 2):
        raise UnsupportedError("the last axis of a signal has 1 or 2 parts")
    step = _points(cx, frame_step)
    if frame_length is not None:
        length = _points(cx, frame_length)
    else:
        length = shape_of(window)[0] if window is not None else size
    count = simple((size - length) // step + 1)
    outputs = simple(length // 2 + 1) if onesided else length
    matrix = _matrix(
        cx,
        length,
        length,
        outputs,
        (whole(parts), 2),
        dtype_of(signal),
        inverse=False,
        onesided=bool(onesided),
    )
    if window is not None:
        if shape_of(window)[0] is not length and str(shape_of(window)[0]) != str(length):
            window = cx.match(window, [length], dtype_of(window), "window")
        values = reshaped(window, (length, 1))
        wide = R.broadcast_to(values, (length, parts)) if parts == 2 else values
        matrix = R.multiply(matrix, reshaped(wide, (simple(length * parts), 1)))

    def framed(x: Tensor) -> Tensor:
        shape = as_sizes([batch, count, simple(length * parts)])
        [stride] = as_sizes([step])

        def element(b: PrimExpr, f: PrimExpr, row: PrimExpr) -> PrimExpr:
            width = _whole(whole(parts))
            n, part = ops.floordiv(row, width), ops.floormod(row, width)
            return x(b, f * stride + n, part)

        return computed(shape, element, "frames")

    frames = cx.te(framed, signal, name="frames")
    return reshaped(cx.emit(R.matmul(frames, matrix)), (batch, count, outputs, 2))


@converter("MelWeightMatrix")
def mel_weight_matrix(
    cx: Context,
    num_mel_bins: Value,
    dft_length: Value,
    sample_rate: Expr,
    lower_edge_hertz: Expr,
    upper_edge_hertz: Expr,
    *,
    output_datatype: int = 1,
) -> Expr:
    dtype = dtype_of_code(output_datatype)
    bins, points = _points(cx, num_mel_bins), _points(cx, dft_length)

    def kernel(rate: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        count, length = as_sizes([bins, points])

        def mel(hertz: PrimExpr) -> PrimExpr:
            ratio = double(1.0) + hertz / double(700.0)
            return double(2595.0) * intrin.log(ratio) / double(math.log(10))

        def edge(i: PrimExpr) -> PrimExpr:
            low, high = mel(double(lower())), mel(double(upper()))
            at = double(i) * ((high - low) / double(count + 2)) + low
            hertz = double(700.0) * (intrin.exp(at * double(math.log(10) / 2595)) - double(1.0))
            return ops.cast_to(intrin.floor(double(length + 1) * hertz / double(rate())), "int64")

        edges = computed([count + 2], edge, "edges")

        def element(j: PrimExpr, i: PrimExpr) -> PrimExpr:
            low, centre, high = (edges(i + k) for k in range(3))
            zero, one = double(0.0), double(1.0)
            rising = ops.all_of(j >= low, j <= centre, centre > low)
            falling = ops.all_of(j >= centre, j < high, high > centre)
            up = double(j - low) / double(ops.maximum(centre - low, _whole(1)))
            down = double(high - j) / double(ops.maximum(high - centre, _whole(1)))
            peak = tir.Select(ops.compare(tir.EQ, j, centre), one, zero)
            value = tir.Select(falling, down, tir.Select(rising, up, peak))
            return ops.cast_to(value, dtype)

        return computed([ops.floordiv(length, _whole(2)) + 1, count], element, "mel_weights")

    scalars = (R.reshape(part, ()) for part in (sample_rate, lower_edge_hertz, upper_edge_hertz))
    return cx.te(kernel, *(cx.emit(part) for part in scalars), name="mel_weights")
