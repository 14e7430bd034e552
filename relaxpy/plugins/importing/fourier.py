"""Fourier transforms of few points as matmuls with DFT matrices, of others by NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from relaxpy.ir.core.dtype import Array
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, PrimValue
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import as_sizes, double
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.windows import simple, whole

#: The elements of the largest matrix of a transform that is a constant; kernels compute others.
_LARGEST: Final = 1 << 22
#: The most points that are always transformed by a matrix.
_DIRECT: Final = 64
#: The multiplications by a matrix that take less time than a call of NumPy.
_FEW: Final = 1 << 18


def transform_matrix(
    cx: tensors.Place,
    length: tensors.Size,
    count: tensors.Size,
    outputs: tensors.Size,
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
        return tensors.literal(value.reshape(length * parts[0], outputs * parts[1]).astype(dtype))

    def table() -> Tensor:
        size, total, columns = as_sizes([length, count, outputs])

        def element(row: PrimExpr, column: PrimExpr) -> PrimExpr:
            n, source = (row // tensors.as_size(parts[0]), row % tensors.as_size(parts[0]))
            k, target = (column // tensors.as_size(parts[1]), column % tensors.as_size(parts[1]))
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
    angle = double(n * k % count) * double(2 * math.pi) / double(count)
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
    cx: tensors.Place, x: Expr, axis: int, count: tensors.Size, *, inverse: bool, onesided: bool
) -> Expr:
    """The transform of `count` points along an axis, whose other elements are cut off or 0.

    The last axis has the real part, or both, as it has of the result: both, or of an inverse that
    is `onesided` the real one. A transform that is onesided gives the first half of a spectrum that
    is symmetric, and its inverse takes that; `count` is always the number of points.
    """
    sizes, dtype = tensors.shape_of(x), tensors.dtype_of(x)
    length, parts = sizes[axis], whole(sizes[-1])
    outputs = simple(count // 2 + 1) if onesided and not inverse else count
    made = 1 if inverse and onesided else 2
    if _is_direct(sizes[:-1], axis, count, parts * made):
        transform = transform_matrix(
            *(cx, length, count, outputs, (parts, made), dtype), inverse=inverse, onesided=onesided
        )
        return _by_matrix(cx, x, axis, transform, [outputs, made])
    wide = tensors.wide_dtype(x)
    operand = (
        tensors.as_dtype(x, wide)
        if parts == 2
        else R.squeeze(tensors.as_dtype(x, wide), [len(sizes) - 1])
    )
    shape = [outputs if k == axis else size for k, size in enumerate(sizes[:-1])]
    found = tensors.call(
        "fft",
        [cx.emit(operand), PrimValue(tensors.as_size(count))],
        [(0, shape, wide, made == 2)],
        pairs=[0] if parts == 2 else [],
        names=["count"],
        axis=axis,
        inverse=inverse,
        onesided=onesided,
    )
    y = found if made == 2 else R.expand_dims(cx.emit(found), len(sizes) - 1)
    return tensors.as_dtype(cx.emit(y), dtype)


def _is_direct(sizes: Sequence[tensors.Size], axis: int, count: tensors.Size, parts: int) -> bool:
    """True if the transform of `count` points along an axis takes least time by a matrix."""
    known = [count, *(size for size in sizes if isinstance(size, int))]
    if not isinstance(count, int) or not isinstance(sizes[axis], int):
        return False
    is_short = max(count, whole(sizes[axis])) <= _DIRECT
    return is_short or (len(known) > len(sizes) and math.prod(map(whole, known)) * parts <= _FEW)


def _by_matrix(
    cx: tensors.Place, x: Expr, axis: int, transform: Expr, made: Sequence[tensors.Size]
) -> Expr:
    """The product of the elements along an axis, and of their parts, with a matrix."""
    sizes, rank = tensors.shape_of(x), tensors.rank_of(x)
    others = [k for k in range(rank - 1) if k != axis]
    order = [*others, axis, rank - 1]
    moved = x if order == list(range(rank)) else cx.emit(R.permute_dims(x, order))
    outer = [sizes[k] for k in others]
    rows = tensors.reshaped(moved, (*outer, simple(sizes[axis] * whole(sizes[-1]))))
    y = tensors.reshaped(cx.emit(R.matmul(rows, transform)), (*outer, *made))
    if order == list(range(rank)):
        return y
    moved_back: Expr = R.permute_dims(cx.emit(y), [order.index(k) for k in range(rank)])
    return moved_back
