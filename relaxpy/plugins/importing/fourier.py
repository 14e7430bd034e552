"""Fourier transforms as matmuls with DFT matrices; those of many points by smaller ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from relaxpy.ir.core.dtype import Array
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import as_sizes, double
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import (
    Place,
    Size,
    as_size,
    dtype_of,
    literal,
    rank_of,
    reshaped,
    shape_of,
)
from relaxpy.plugins.importing.windows import simple, whole

#: The elements of the largest matrix of a transform that is a constant; kernels compute others.
_LARGEST: Final = 1 << 22
#: The most points that are transformed by one matrix.
_DIRECT: Final = 256


def transform_matrix(
    cx: Place,
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
            n, source = (ops.floordiv(row, as_size(parts[0])), ops.floormod(row, as_size(parts[0])))
            k, target = (
                ops.floordiv(column, as_size(parts[1])),
                ops.floormod(column, as_size(parts[1])),
            )
            value = twiddle(n, k, total, source, target, inverse=inverse, onesided=onesided)
            return ops.cast_to(value, dtype)

        return computed([size * parts[0], columns * parts[1]], element, "transform")

    return cx.te(table, name="transform")


def twiddle(
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


def transformed(
    cx: Place, x: Expr, axis: int, count: Size, *, inverse: bool, onesided: bool
) -> Expr:
    """The transform of `count` points along an axis, whose other elements are cut off or 0.

    The last axis has the real part, or both, as it has of the result: both, or of an inverse that
    is `onesided` the real one. A transform that is onesided gives the first half of a spectrum that
    is symmetric, and its inverse takes that; `count` is always the number of points.
    """
    sizes, rank = shape_of(x), rank_of(x)
    others = [k for k in range(rank - 1) if k != axis]
    order = [*others, axis, rank - 1]
    moved = x if order == list(range(rank)) else R.permute_dims(x, order)
    outer = [sizes[k] for k in others]
    y = _of_rows(cx, moved, outer, count, inverse=inverse, onesided=onesided)
    if order == list(range(rank)):
        return y
    moved_back: Expr = R.permute_dims(y, [order.index(k) for k in range(rank)])
    return moved_back


def _of_rows(
    cx: Place, x: Expr, outer: Sequence[Size], count: Size, *, inverse: bool, onesided: bool
) -> Expr:
    """The transform along the axis before the last one."""
    at = len(outer)
    length, parts = shape_of(x)[at], whole(shape_of(x)[at + 1])
    halved = onesided and not inverse
    outputs = simple(count // 2 + 1) if halved else count
    made = 1 if inverse and onesided else 2
    if isinstance(count, int) and isinstance(length, int) and _is_long(length, count):
        x = _resized(x, at, length, count // 2 + 1 if made == 1 else count)
        if made == 1:
            x = _whole_spectrum(cx, cx.emit(x), at, count)
        y = _of_many(cx, cx.emit(x), outer, count, parts, inverse=inverse)
        axes, ends = [at, at + 1], [outputs, made]
        return R.strided_slice(y, axes, [0, 0], ends) if halved or made == 1 else y
    transform = transform_matrix(
        *(cx, length, count, outputs, (parts, made), dtype_of(x)),
        inverse=inverse,
        onesided=onesided,
    )
    rows = reshaped(x, (*outer, simple(length * parts)))
    return reshaped(cx.emit(R.matmul(rows, transform)), (*outer, outputs, made))


def _is_long(length: int, count: int) -> bool:
    """True if `count` points, `length` of them nonzero, are too many for one DFT matrix."""
    return count > _DIRECT and length > 4 * math.isqrt(count)


def _resized(x: Expr, axis: int, length: int, count: int) -> Expr:
    widths = [0] * (2 * rank_of(x))
    widths[2 * axis + 1] = max(count - length, 0)
    if length > count:
        x = R.strided_slice(x, [axis], [0], [count])
    return R.nn.pad(x, widths) if count > length else x


def _whole_spectrum(cx: Place, half: Expr, axis: int, count: int) -> Expr:
    """A spectrum that is symmetric, of its first half."""
    inner = R.strided_slice(half, [axis], [1], [(count + 1) // 2])
    signs = literal(np.array([1, -1], dtype_of(half)))
    mirrored = cx.emit(R.multiply(R.flip(inner, axis), signs))
    spectrum: Expr = R.concat([half, mirrored], axis)
    return spectrum


def _of_many(
    cx: Place, x: Expr, outer: Sequence[Size], count: int, parts: int, *, inverse: bool
) -> Expr:
    """The transform of as many points as the axis before the last one has."""
    factors = _factors(count)
    if factors is not None:
        return _in_two_steps(cx, x, outer, factors, parts, inverse=inverse)
    return _by_convolution(cx, x, outer, count, parts, inverse=inverse)


def _by_convolution(
    cx: Place, x: Expr, outer: Sequence[Size], count: int, parts: int, *, inverse: bool
) -> Expr:
    """Bluestein's transform of N points, for N with large prime factors.

    With w[n] = exp(-pi i n^2 / N), X is w times the convolution of w x with 1 / w
    (Bluestein, IEEE Trans. Audio Electroacoust. 18, 1970).
    """
    at = len(outer)
    more = 1 << (2 * count - 2).bit_length()
    squares = np.arange(count, dtype=object) ** 2 % (2 * count)
    chirp = np.exp((1j if inverse else -1j) * np.pi * squares.astype(np.float64) / count)
    around = np.zeros(more, np.complex128)
    around[:count] = chirp.conj()
    around[more - count + 1 :] = chirp.conj()[:0:-1]
    pair = x if parts == 2 else R.concat([x, R.zeros_like(x)], at + 1)
    a = _resized(_turned(cx, cx.emit(pair), chirp), at, count, more)
    spectrum = _of_many(cx, cx.emit(a), outer, more, 2, inverse=False)
    product = _turned(cx, cx.emit(spectrum), np.fft.fft(around))
    y = _of_many(cx, product, outer, more, 2, inverse=True)
    first = cx.emit(R.strided_slice(y, [at], [0], [count]))
    return _turned(cx, first, chirp / count if inverse else chirp)


def _turned(cx: Place, x: Expr, factor: Array) -> Expr:
    """Complex numbers multiplied by constants, one for each of their last two axes' rows."""
    last, dtype = rank_of(x) - 1, dtype_of(x)
    straight = literal(np.stack([factor.real] * 2, -1).astype(dtype))
    crossed = literal(np.stack([-factor.imag, factor.imag], -1).astype(dtype))
    return cx.emit(R.add(R.multiply(x, straight), R.multiply(R.flip(x, last), crossed)))


def _factors(count: int) -> tuple[int, int] | None:
    """Two factors of a number of points whose transforms take less than one of all points."""
    first = next((n for n in range(math.isqrt(count), 0, -1) if count % n == 0), 1)
    return (first, count // first) if 4 * (first + count // first) <= count else None


def _in_two_steps(
    cx: Place,
    x: Expr,
    outer: Sequence[Size],
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
    (a, b), at = factors, len(outer)

    def along(y: Expr, count: int) -> Expr:
        """The transform of `count` points along axis `at`, which comes after the next one."""
        swapped = cx.emit(R.permute_dims(y, [*range(at), at + 1, at, at + 2]))
        rows = (*outer, a * b // count)
        return _of_rows(cx, swapped, rows, count, inverse=inverse, onesided=False)

    y = along(reshaped(x, (*outer, a, b, parts)), a)
    angle = 2 * np.pi / (a * b) * np.outer(np.arange(b), np.arange(a))
    turned = _turned(cx, cx.emit(y), np.exp((1j if inverse else -1j) * angle))
    y = along(turned, b)
    whole_axes = R.permute_dims(y, [*range(at), at + 1, at, at + 2])
    return reshaped(whole_axes, (*outer, a * b, 2))
