"""Pixel shuffle, depth-to-space, and the inverses."""

from __future__ import annotations

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import injective
from relaxpy.ir.te.topi.shapes import tidy
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr

__all__ = ["depth_to_space", "pixel_shuffle", "space_to_depth"]


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
