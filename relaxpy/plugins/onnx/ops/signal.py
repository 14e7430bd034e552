"""Fourier transforms, short-time transforms as matmuls, and mel scales."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import as_sizes, double
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.fourier import transform_matrix, transformed
from relaxpy.plugins.importing.tensors import (
    Size,
    are_equal,
    as_size,
    dtype_of,
    normal_axis,
    rank_of,
    reshaped,
    shape_of,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import simple, whole
from relaxpy.plugins.onnx.context import Context, Value, converter
from relaxpy.plugins.onnx.ops.reduce import axes_around, sizes_around
from relaxpy.plugins.onnx.view import dtype_of as dtype_of_code


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


def _transformed(
    cx: Context, x: Expr, dft_length: Value, axis: int, inverse: bool, onesided: bool
) -> Expr:
    """The transform along an axis that is known."""
    sizes, rank = shape_of(x), rank_of(x)
    _require_parts(sizes, axis != rank - 1)
    if dft_length is not None:
        count = cx.size_in(dft_length)
    else:
        count = simple((sizes[axis] - 1) * 2) if inverse and onesided else sizes[axis]
    return transformed(cx, x, axis, count, inverse=inverse, onesided=onesided)


def _require_parts(sizes: Sequence[Size], has_axis: bool) -> None:
    if sizes[-1] not in (1, 2) or not has_axis:
        raise UnsupportedError("the last axis of an operand of DFT has 1 or 2 parts")


def _transformed_anywhere(
    cx: Context, x: Expr, dft_length: Value, axis: Expr, inverse: bool, onesided: bool
) -> Expr:
    """The transform along an axis that is computed, which is the middle one of three."""
    *sizes, parts = shape_of(x)
    _require_parts([*sizes, parts], bool(sizes))
    place, at = axes_around(cx, axis, len(sizes), rank_of(x))
    before, length, after = sizes_around(cx, sizes, place, at)
    if dft_length is not None:
        count = cx.size_in(dft_length)
    else:
        count = simple((length - 1) * 2) if inverse and onesided else length
    data = cx.emit(reshaped(x, (before, length, after, parts)))
    y = cx.emit(transformed(cx, data, 1, count, inverse=inverse, onesided=onesided))
    _, new, _, made = shape_of(y)
    if onesided or dft_length is not None:
        old, here = (
            cx.tensor(cx.contents(values, [len(sizes)], "int64"))
            for values in (sizes, [new] * len(sizes))
        )
        chosen = R.where(R.equal(place, at), here, old)
        sizes = list(cx.sizes_at_run_time(cx.emit(chosen), len(sizes), "size"))
    return reshaped(y, (*sizes, made))


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
    batch, size, parts = shape_of(signal, 3)
    if parts not in (1, 2):
        raise UnsupportedError("the last axis of a signal has 1 or 2 parts")
    step = cx.size_in(frame_step)
    if frame_length is not None:
        length = cx.size_in(frame_length)
    else:
        length = shape_of(window, 1)[0] if window is not None else size
    count = simple((size - length) // step + 1)
    outputs = simple(length // 2 + 1) if onesided else length
    matrix = transform_matrix(
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
        if not are_equal(shape_of(window, 1), [length]):
            window = cx.match(window, [length], dtype_of(window), "window")
        values = reshaped(window, (length, 1))
        wide = R.broadcast_to(values, (length, parts)) if parts == 2 else values
        matrix = matrix * reshaped(wide, (simple(length * parts), 1))

    def framed(x: Tensor) -> Tensor:
        shape = as_sizes([batch, count, simple(length * parts)])
        [stride] = as_sizes([step])

        def element(b: PrimExpr, f: PrimExpr, row: PrimExpr) -> PrimExpr:
            width = as_size(whole(parts))
            n, part = row // width, row % width
            return x(b, f * stride + n, part)

        return computed(shape, element, "frames")

    frames = cx.te(framed, signal, name="frames")
    return reshaped(cx.emit(R.matmul(frames, matrix)), (batch, count, outputs, 2))


@converter("MelWeightMatrix")
def mel_weighttransform_matrix(
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
    bins, points = cx.size_in(num_mel_bins), cx.size_in(dft_length)

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
            up = double(j - low) / double(ops.maximum(centre - low, as_size(1)))
            down = double(high - j) / double(ops.maximum(high - centre, as_size(1)))
            peak = tir.Select(ops.compare(tir.EQ, j, centre), one, zero)
            value = tir.Select(falling, down, tir.Select(rising, up, peak))
            return ops.cast_to(value, dtype)

        return computed([length // as_size(2) + 1, count], element, "mel_weights")

    scalars = (R.reshape(part, ()) for part in (sample_rate, lower_edge_hertz, upper_edge_hertz))
    return cx.te(kernel, *(cx.emit(part) for part in scalars), name="mel_weights")
