"""Matmuls and contractions of kernels."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from relaxpy.exec.machine.tuning import NumPy
from relaxpy.ir.core.dtype import Array


def matmul(left: Array, right: Array, out: Array | None = None) -> Array:
    """`np.matmul`; integers are converted to floats if these represent all sums exactly."""
    wide = None
    if left.dtype.kind in "iu" and left.size * right.shape[-1] >= NumPy.MANY_PRODUCTS:
        ends = [max(int(x.max()), -int(x.min())) for x in (left, right) if x.size]
        bound = left.shape[-1] * math.prod(ends)
        wide = next((kind for kind, limit in EXACT_SUMS if bound <= limit), None)
    if wide is None:
        product: Array = np.matmul(left, right, out=out)
        return product
    kind = np.result_type(left, right) if out is None else out.dtype
    exact = np.matmul(left.astype(wide), right.astype(wide)).astype(np.int64)
    if out is None:
        out = np.empty(exact.shape, kind)
    out[...] = exact
    return out


def dot(left: Array, right: Array, out: Array) -> None:
    """`np.matmul` of a vector or matrix of floats and a matrix, at half the cost of a call."""
    try:
        left.dot(right, out)
    except ValueError:  # the output is not contiguous
        np.matmul(left, right, out=out)


EXACT_SUMS = ((np.float32, 1 << 24), (np.float64, 1 << 53))


def contract(
    left: Array, right: Array, counts: tuple[int, int, int, int], out: Array | None = None
) -> Array:
    """The matrix product over groups of axes; batch axes are broadcast.

    Shapes:
        left    batch, row, summed axes
        right   batch, summed, column axes
        counts  the numbers of batch, row, column and summed axes
        result  batch, row, column axes
    """
    batch, rows, columns, summed = counts
    ranks = batch + rows + summed, batch + summed + columns
    if out is not None and (left.ndim, right.ndim) == ranks and _is_contiguous(left, right, out):
        matmul(_matrix(left, batch, rows), _matrix(right, batch, summed), _matrix(out, batch, rows))
        return out
    left = _padded(left, batch + rows + summed)
    right = _padded(right, batch + summed + columns)
    head = np.broadcast_shapes(left.shape[:batch], right.shape[:batch])
    shape = (*head, *left.shape[batch : batch + rows], *right.shape[batch + summed :])
    if out is None:
        out = np.empty(shape, np.result_type(left, right))
    left_copied = 0 if _folds(left, batch, rows) else left.nbytes
    right_copied = 0 if _folds(right, batch, summed) else right.nbytes
    is_float = out.dtype.char in "fd" and left.dtype == right.dtype == out.dtype
    if is_float and _are_dots(
        left.shape[batch : batch + rows], right.shape[batch + summed :], right_copied
    ):
        position = (slice(None),) * batch + (0,) * rows
        _dots(left[position], right, out[position], batch)
        return out
    copied, other = (right_copied, left) if right_copied > left_copied else (left_copied, right)
    most = max(NumPy.MOST_COPIED, other.nbytes)
    own_axes = range(batch, batch + rows) if other is right else range(batch + rows, len(shape))
    axis = next((k for k in (*range(batch), *own_axes) if shape[k] > 1), None)
    if copied > most and axis is not None:
        # Folding duplicates overlapping windows, so it is done piece by piece.
        if left_copied and right_copied:
            left, right = (np.ascontiguousarray(x) if x is other else x for x in (left, right))
        at_left = axis if axis < batch + rows else None
        at_right = axis if axis < batch else axis - rows + summed if at_left is None else None
        step = max(1, shape[axis] * most // copied)
        for start in range(0, shape[axis], step):
            chunk = slice(start, start + step)
            operands = _cut(left, at_left, chunk), _cut(right, at_right, chunk)
            contract(*operands, counts, _cut(out, axis, chunk))
        return out
    a, b = _matrix(left, batch, rows), _matrix(right, batch, summed)
    if _folds(out, batch, rows):
        matmul(a, b, _matrix(out, batch, rows))
    else:
        out[...] = matmul(a, b).reshape(shape)
    return out


def _are_dots(rows: tuple[int, ...], columns: tuple[int, ...], copied: int) -> bool:
    """True if to multiply one row with each column, which copies no overlapping windows."""
    return (
        math.prod(rows) == 1 and math.prod(columns) <= NumPy.MOST_DOTS and copied > NumPy.WORTH_DOTS
    )


def _dots(row: Array, columns: Array, out: Array, batch: int) -> None:
    """The product of a row with each column; summed axes follow those of the batch."""
    labels = list(range(row.ndim))
    for index in np.ndindex(*out.shape[batch:]):
        column = columns[(..., *index)]
        np.einsum(row, labels, column, labels, labels[:batch], out=out[(..., *index)])


def stays_finite(count: int, *factors: Any) -> bool:
    """True if sums of `count` products of the factors are finite in any order of evaluation.

    So are all products of a subset of the factors.
    """
    bound = float(count)
    for factor in factors:
        largest = max(np.max(factor, initial=0), -np.min(factor, initial=0))
        bound *= max(float(largest), 1.0)
    kinds = [np.result_type(factor) for factor in factors]
    limit = ml_dtypes.finfo(np.result_type(*kinds)).max  # type: ignore[no-untyped-call]
    return bound < float(limit) / 2


def _padded(array: Array, rank: int) -> Array:
    """`array` with leading axes of size 1, as broadcasting adds them."""
    return array[(None,) * (rank - array.ndim)]


def _matrix(array: Array, batch: int, rows: int) -> Any:
    """`array` with the `rows` axes after the batch folded into one, and the rest into another."""
    head = array.shape[:batch]
    height = math.prod(array.shape[batch : batch + rows])
    width = math.prod(array.shape[batch + rows :])
    return array.reshape(*head, height, width)


def _folds(array: Array, batch: int, rows: int) -> bool:
    """True if `_matrix` makes a view of the array, not a copy."""
    for axes in (slice(batch, batch + rows), slice(batch + rows, None)):
        dimensions = zip(array.shape[axes], array.strides[axes], strict=True)
        steps = [(size, stride) for size, stride in dimensions if size != 1]
        if any(stride != size * inner for (_, stride), (size, inner) in pairwise(steps)):
            return False
    return True


def _is_contiguous(*arrays: Array) -> bool:
    """True if the axes of all arrays fold without a copy because there are no gaps."""
    return all(array.flags.c_contiguous for array in arrays)


def _cut(array: Array, axis: int | None, chunk: slice) -> Array:
    """A chunk of the array along an axis, unless the array is broadcast along it."""
    if axis is None or array.shape[axis] == 1:
        return array
    return array[(slice(None),) * axis + (chunk,)]
