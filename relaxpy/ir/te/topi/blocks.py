"""Tensors whose channels become pixels of an image, or its pixels channels."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import tidy
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr

__all__ = ["pixel_shuffle"]

INJECTIVE = "injective"


def pixel_shuffle(data: Tensor, upscale_factor: int, name: str = "PixelShuffle") -> Tensor:
    """Channel (c * r + i) * r + j as row i and column j of the blocks of r * r pixels of channel c.

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

    made: Tensor = te.compute(shape, element, name=name, tag=INJECTIVE)
    return made
