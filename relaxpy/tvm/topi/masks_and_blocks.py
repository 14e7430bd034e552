"""Tensor functions that no operator is legalised to: masks, windows, diagonals and blocks."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.arguments import checked
from relaxpy.ir.te.topi.elementwise import injective
from relaxpy.ir.te.topi.indexing import load, loops, stored, stored_in_copy
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.te.topi.shapes import as_sizes, normal_axis, shape_text, tidy
from relaxpy.ir.te.topi.transform import strided_slice
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.stmt import BufferStore, Stmt, stmt_seq

__all__ = [
    "batch_to_space_nd",
    "matrix_set_diag",
    "sequence_mask",
    "sliding_window",
    "space_to_batch_nd",
    "sparse_to_dense",
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


def _check_blocks(data: Tensor, name: str, block_shape: Sequence[int], *widths: object) -> None:
    counts = {len(block_shape), *(len(w) for w in widths if isinstance(w, Sequence))}
    if len(counts) != 1 or not 0 < len(block_shape) < data.ndim or min(block_shape) <= 0:
        raise MisuseError(
            f"{name} takes one positive block size and one width each for at most "
            f"{data.ndim - 1} axes after the first, found {list(block_shape)}"
        )


def space_to_batch_nd(
    data: Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: ExprLike = 0.0,
) -> Tensor:
    """Turn each position in a block into a separate batch, after padding.

    The blocks are along the axes after the first one, the batches in row-major order of positions.

    Errors:
        MisuseError: there is not one block size and width for each of these axes.
    """
    _check_blocks(data, "space_to_batch_nd", block_shape, pad_before, pad_after)
    unpadded = [0] * (data.ndim - len(block_shape) - 1)
    padded = pad(data, [0, *pad_before, *unpadded], [0, *pad_after, *unpadded], pad_value)
    sizes = [ops.const(size, "int64") for size in block_shape]
    batch, *spatial = padded.shape
    shape = [batch, *spatial]
    for axis, size in enumerate(sizes, start=1):
        shape[0] = tidy(ops.mul(shape[0], size))
        shape[axis] = tidy(ops.floordiv(shape[axis], size))

    def element(*index: PrimExpr) -> PrimExpr:
        source, position = list(index), ops.floordiv(index[0], batch)
        source[0] = ops.floormod(index[0], batch)
        for axis in range(len(sizes), 0, -1):
            size = sizes[axis - 1]
            offset = ops.floormod(position, size) if axis > 1 else position
            source[axis] = ops.add(ops.mul(index[axis], size), offset)
            position = ops.floordiv(position, size)
        return padded(*source)

    return injective(shape, element, "space_to_batch_nd")


def batch_to_space_nd(
    data: Tensor,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> Tensor:
    """Turn batches into positions in blocks along the axes after the first one, then crop the ends.

    Errors:
        MisuseError: there is not one block size and width for each of these axes.
    """
    _check_blocks(data, "batch_to_space_nd", block_shape, crop_begin_list, crop_end_list)
    sizes = [ops.const(size, "int64") for size in block_shape]
    shape = list(data.shape)
    for axis, size in enumerate(sizes, start=1):
        shape[0] = tidy(ops.floordiv(shape[0], size))
        shape[axis] = tidy(ops.mul(shape[axis], size))
    batch = shape[0]

    def element(*index: PrimExpr) -> PrimExpr:
        source: list[PrimExpr] = list(index)
        position: PrimExpr = ops.const(0, "int64")
        for axis, size in enumerate(sizes, start=1):
            position = ops.add(ops.mul(position, size), ops.floormod(index[axis], size))
            source[axis] = ops.floordiv(index[axis], size)
        source[0] = ops.add(ops.mul(position, batch), index[0])
        return data(*source)

    merged = injective(shape, element, "batch_to_space_nd")
    ends = [
        ops.sub(size, ops.const(cut, "int64"))
        for size, cut in zip(shape[1:], crop_end_list, strict=False)
    ]
    axes = list(range(1, len(sizes) + 1))
    return strided_slice(merged, list(crop_begin_list), ends, None, axes)


# Users call functions that check their arguments.
globals().update({_name: checked(globals()[_name]) for _name in __all__})
