"""Sequences of different lengths, windows, diagonals and indices as tensor expressions."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import injective
from relaxpy.ir.te.topi.indexing import load, loops, stored, stored_in_copy
from relaxpy.ir.te.topi.shapes import as_sizes, normal_axis, product, shape_text, tidy
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.stmt import BufferStore, Stmt, stmt_seq

__all__ = [
    "dynamic_strided_slice",
    "matrix_set_diag",
    "reverse_sequence",
    "sequence_mask",
    "shape",
    "sliding_window",
    "sparse_to_dense",
    "tensor_size",
    "unravel_index",
]


def _index(value: ExprLike) -> PrimExpr:
    return ops.cast_to(value, "int64")


def sequence_mask(
    data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0
) -> Tensor:
    """The data with `mask_value` after the valid length of each sequence.

    Sequences lie along axis 0 or 1, and batches along the other one of these axes.

    Errors:
        MisuseError: the axis is another one, or a rank is not 2 or more and 1.
    """
    if data.ndim < 2 or valid_length.ndim != 1 or axis not in (0, 1):
        raise MisuseError(
            "sequence_mask takes a tensor of rank 2 or more, a vector of lengths and axis 0 or 1, "
            f"found ranks {data.ndim} and {valid_length.ndim} and axis {axis}"
        )
    fill = ops.const(mask_value, data.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        length = _index(valid_length(index[1 - axis]))
        return intrin.if_then_else(ops.compare(tir.GE, index[axis], length), fill, data(*index))

    return injective(data.shape, element, "T_sequence_mask")


def reverse_sequence(
    a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0
) -> Tensor:
    """Reverse the first elements of each sequence; its length says how many.

    A length that exceeds the size counts as the size; one below 1 reverses nothing.

    Errors:
        MisuseError: the lengths are not a vector, or an axis is out of range or used twice.
    """
    along, batch = normal_axis(seq_axis, a.ndim), normal_axis(batch_axis, a.ndim)
    if seq_lengths.ndim != 1 or along == batch:
        raise MisuseError(
            f"reverse_sequence takes a vector of lengths and two axes, found rank "
            f"{seq_lengths.ndim} and axes {seq_axis} and {batch_axis}"
        )

    def element(*index: PrimExpr) -> PrimExpr:
        i, one = _index(index[along]), ops.const(1, "int64")
        length = ops.minimum(_index(seq_lengths(index[batch])), _index(a.shape[along]))
        is_reversed = ops.compare(tir.LT, i, length)
        source = intrin.if_then_else(is_reversed, ops.sub(ops.sub(length, one), i), i)
        return a(*index[:along], source, *index[along + 1 :])

    return injective(a.shape, element, "T_reverse_sequence")


def dynamic_strided_slice(
    a: Tensor, begin: Tensor, end: Tensor, strides: Tensor, output_shape: Sequence[ExprLike]
) -> Tensor:
    """Every stride-th element along each axis from `begin` on, of shape `output_shape`.

    A first index past the end of an axis is clamped to its last element; `end` is not used.

    Errors:
        MisuseError: there is not one bound and size for each axis.
    """
    sizes = as_sizes(output_shape)
    if len(sizes) != a.ndim or any(bound.ndim != 1 for bound in (begin, end, strides)):
        raise MisuseError(
            f"dynamic_strided_slice takes vectors of bounds and {a.ndim} sizes, found ranks "
            f"{begin.ndim}, {end.ndim} and {strides.ndim} and shape {shape_text(sizes)}"
        )

    def element(*index: PrimExpr) -> PrimExpr:
        source = []
        for axis, (i, size) in enumerate(zip(index, a.shape, strict=True)):
            k = ops.const(axis, "int64")
            first = ops.minimum(_index(begin(k)), ops.sub(size, _index(1)))
            source.append(ops.add(first, ops.mul(i, _index(strides(k)))))
        return a(*source)

    return injective(sizes, element, "T_dynamic_strided_slice")


def sliding_window(
    data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """The windows over the axes from `axis` on: the axes that count windows, then those inside.

    Errors:
        MisuseError: the axis is out of range, or there is not one positive size and stride for each
            axis from there on.
    """
    first = normal_axis(axis, data.ndim)
    count = data.ndim - first
    if not len(window_shape) == len(strides) == count or min(*window_shape, *strides) <= 0:
        raise MisuseError(
            f"sliding_window takes one positive size and stride for each of {count} axes, found "
            f"{list(window_shape)} and {list(strides)}"
        )
    windows, steps = as_sizes(window_shape), as_sizes(strides)
    counts = [
        tidy(ops.add(ops.floordiv(ops.sub(size, window), step), ops.const(1, "int64")))
        for size, window, step in zip(data.shape[first:], windows, steps, strict=True)
    ]

    def element(*index: PrimExpr) -> PrimExpr:
        source = (
            ops.add(ops.mul(number, step), offset)
            for number, step, offset in zip(
                index[first : first + count], steps, index[first + count :], strict=True
            )
        )
        return data(*index[:first], *source)

    return injective((*data.shape[:first], *counts, *windows), element, "T_sliding_window")


def matrix_set_diag(
    data: Tensor, diagonal: Tensor, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """Replace the elements on a diagonal of matrices, or on all diagonals of a band.

    A positive k is above the main diagonal. The rows of `diagonal` for a band are ordered from the
    upper diagonal to the lower one; `align` says to which end shorter rows above and below the main
    diagonal are aligned.

    Errors:
        MisuseError: a rank does not fit, or the diagonals are not in ascending order.
    """
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    is_band = low != high
    if data.ndim < 2 or low > high or diagonal.ndim != data.ndim - (0 if is_band else 1):
        raise MisuseError(
            f"matrix_set_diag takes matrices and diagonals {low} to {high}, found ranks "
            f"{data.ndim} and {diagonal.ndim}"
        )
    above, below = (side == "RIGHT" for side in align.split("_"))
    rows, columns = data.shape[-2:]

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def on_diagonal(number: int) -> Stmt:
            row, column = ops.const(max(-number, 0), "int64"), ops.const(max(number, 0), "int64")
            size = tidy(ops.minimum(ops.sub(rows, row), ops.sub(columns, column)))
            shift = ops.const(0, "int64")
            if is_band and (above if number >= 0 else below):
                shift = tidy(ops.sub(diagonal.shape[-1], size))
            line = [ops.const(high - number, "int64")] if is_band else []

            def element(index: list[PrimExpr]) -> Stmt:
                *lead, i = index
                value = load(ins[0], [*lead, *line, ops.add(i, shift)])
                return BufferStore(out, value, (*lead, ops.add(i, row), ops.add(i, column)))

            return loops((*data.shape[:-2], size), element)

        return stmt_seq(*map(on_diagonal, range(low, high + 1)))

    dtype = str(data.dtype)
    return stored_in_copy(data, data.shape, dtype, [diagonal], "matrix_set_diag", store)


def unravel_index(indices: Tensor, shape: Tensor) -> Tensor:
    """The index of the element at each row-major position in a shape, along the first axis.

    Errors:
        MisuseError: the indices have rank 2 or more, or the shape is not a vector of known length.
    """
    if indices.ndim > 1 or shape.ndim != 1 or not isinstance(shape.shape[0], tir.IntImm):
        raise MisuseError(
            f"unravel_index takes a scalar or vector and a vector of known length, found shapes "
            f"{shape_text(indices.shape)} and {shape_text(shape.shape)}"
        )
    rank = shape.shape[0].value

    def element(*index: PrimExpr) -> PrimExpr:
        position: PrimExpr = indices(*index[1:])
        digits: list[PrimExpr] = []
        for axis in range(rank - 1, -1, -1):
            size = ops.cast_to(shape(ops.const(axis, "int64")), position.dtype)
            digits.append(ops.floormod(position, size))
            position = ops.floordiv(position, size)
        value = digits[-1]
        for axis, digit in enumerate(reversed(digits[:-1]), start=1):
            is_axis = ops.compare(tir.EQ, index[0], ops.const(axis, "int64"))
            value = intrin.if_then_else(is_axis, digit, value)
        return value

    return injective((shape.shape[0], *indices.shape), element, "T_unravel")


def sparse_to_dense(
    sparse_indices: Tensor,
    output_shape: Sequence[ExprLike],
    sparse_values: Tensor,
    default_value: float = 0,
) -> Tensor:
    """A tensor with values at indices, and `default_value` elsewhere.

    The indices are one position, a vector of them, or a matrix with one index in each row; values
    are a vector or one scalar for all.

    Errors:
        MisuseError: a rank does not fit.
    """
    sizes, rank = as_sizes(output_shape), sparse_indices.ndim
    if rank > 2 or sparse_values.ndim > min(rank, 1) or (rank < 2 and len(sizes) != 1):
        raise MisuseError(
            f"sparse_to_dense takes one index for each value, found shapes "
            f"{shape_text(sparse_indices.shape)} and {shape_text(sparse_values.shape)} for "
            f"{shape_text(sizes)}"
        )
    dtype = str(sparse_values.dtype)

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def fill(index: list[PrimExpr]) -> Stmt:
            return BufferStore(out, ops.const(default_value, dtype), tuple(index))

        def element(index: list[PrimExpr]) -> Stmt:
            if rank < 2:
                target = [_index(load(ins[0], index))]
            else:
                target = [
                    _index(load(ins[0], [*index, ops.const(k, "int64")])) for k in range(len(sizes))
                ]
            value = load(ins[1], index if sparse_values.ndim else [])
            return BufferStore(out, value, tuple(target))

        return stmt_seq(loops(sizes, fill), loops(sparse_indices.shape[:1], element))

    return stored(sizes, dtype, [sparse_indices, sparse_values], "sparse_to_dense", store)


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The shape of a tensor as a vector."""

    def element(i: PrimExpr) -> PrimExpr:
        value: PrimExpr = ops.const(0, dtype)
        for axis, size in enumerate(array.shape):
            is_axis = ops.compare(tir.EQ, i, ops.const(axis, "int64"))
            value = intrin.if_then_else(is_axis, ops.cast_to(size, dtype), value)
        return value

    return injective((ops.const(array.ndim, "int64"),), element, "T_shape")


def tensor_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """The number of elements of a tensor, as a tensor of rank 0."""
    count = ops.cast_to(product(array.shape), DataType(dtype))
    return injective((), lambda: count, "ndarray_size")
