"""Channels or batches rearranged to pixels of images, and the inverses."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import injective
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.te.topi.shapes import tidy
from relaxpy.ir.te.topi.transform import strided_slice
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr

__all__ = [
    "batch_to_space_nd",
    "depth_to_space",
    "pixel_shuffle",
    "space_to_batch_nd",
    "space_to_depth",
]


def pixel_shuffle(data: Tensor, upscale_factor: int, name: str = "PixelShuffle") -> Tensor:
    """Turn channel (c * r + i) * r + j into row i, column j of blocks of r * r pixels of channel c.

    Errors:
        MisuseError: the data has rank 2 or less, or the factor is not positive.
    """
    if data.ndim < 3 or upscale_factor <= 0:
        raise MisuseError(
            f"pixel_shuffle takes a tensor of rank 3 or more and a positive factor, found rank "
            f"{data.ndim} and {upscale_factor}"
        )
    *lead, channels, height, width = data.shape
    factor = ops.const(upscale_factor, "int64")
    square = ops.mul(factor, factor)
    shape = (
        *lead,
        tidy(ops.floordiv(channels, square)),
        tidy(ops.mul(height, factor)),
        tidy(ops.mul(width, factor)),
    )

    def element(*index: PrimExpr) -> PrimExpr:
        *outer, c, y, x = index
        i, j = ops.floormod(y, factor), ops.floormod(x, factor)
        channel = ops.add(ops.mul(c, square), ops.add(ops.mul(i, factor), j))
        return data(*outer, channel, ops.floordiv(y, factor), ops.floordiv(x, factor))

    return injective(shape, element, name)


def _image_axes(layout: str, name: str) -> tuple[int, int, int]:
    """The axes of channels, rows and columns."""
    if layout not in ("NCHW", "NHWC"):
        raise unexpected(layout, f"{name}: layout is 'NCHW' or 'NHWC'")
    return (1, 2, 3) if layout == "NCHW" else (3, 1, 2)


def _check_image(data: Tensor, block_size: int, name: str) -> None:
    if data.ndim != 4 or block_size <= 0:
        raise MisuseError(
            f"{name} takes a tensor of rank 4 and a positive block size, found rank {data.ndim} "
            f"and {block_size}"
        )


def depth_to_space(
    data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> Tensor:
    """Turn channels of images into pixels of blocks of `block_size` rows and columns.

    Channel (i * b + j) * C + c becomes row i and column j of blocks of channel c in mode "DCR", and
    channel c * b * b + i * b + j in mode "CRD".

    Errors:
        MisuseError: the rank is not 4, or there is no such layout, mode or block size.
    """
    _check_image(data, block_size, "depth_to_space")
    if mode not in ("DCR", "CRD"):
        raise unexpected(mode, "depth_to_space: mode is 'DCR' or 'CRD'")
    channels, rows, columns = _image_axes(layout, "depth_to_space")
    block = ops.const(block_size, "int64")
    square = ops.mul(block, block)
    shape = list(data.shape)
    shape[channels] = depth = tidy(ops.floordiv(shape[channels], square))
    shape[rows], shape[columns] = (tidy(ops.mul(shape[a], block)) for a in (rows, columns))

    def element(*index: PrimExpr) -> PrimExpr:
        source, c, y, x = list(index), index[channels], index[rows], index[columns]
        offset = ops.add(ops.mul(ops.floormod(y, block), block), ops.floormod(x, block))
        source[channels] = (
            ops.add(ops.mul(offset, depth), c)
            if mode == "DCR"
            else ops.add(ops.mul(c, square), offset)
        )
        source[rows], source[columns] = ops.floordiv(y, block), ops.floordiv(x, block)
        return data(*source)

    return injective(shape, element, "depth_to_space")


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Tensor:
    """Turn pixels of blocks of `block_size` rows and columns into channels.

    Row i and column j of the blocks of channel c become channel (i * b + j) * C + c.

    Errors:
        MisuseError: the rank is not 4, or there is no such layout or block size.
    """
    _check_image(data, block_size, "space_to_depth")
    channels, rows, columns = _image_axes(layout, "space_to_depth")
    block = ops.const(block_size, "int64")
    shape, depth = list(data.shape), data.shape[channels]
    shape[channels] = tidy(ops.mul(depth, ops.mul(block, block)))
    shape[rows], shape[columns] = (tidy(ops.floordiv(shape[a], block)) for a in (rows, columns))

    def element(*index: PrimExpr) -> PrimExpr:
        source, channel = list(index), index[channels]
        offset = ops.floordiv(channel, depth)
        source[channels] = ops.floormod(channel, depth)
        source[rows] = ops.add(ops.mul(index[rows], block), ops.floordiv(offset, block))
        source[columns] = ops.add(ops.mul(index[columns], block), ops.floormod(offset, block))
        return data(*source)

    return injective(shape, element, "space_to_depth")


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
