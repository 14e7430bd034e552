"""Operators on images."""

from relaxpy.ir.relax.op.image import (
    affine_grid as affine_grid,
    grid_sample as grid_sample,
    resize2d as resize2d,
    resize3d as resize3d,
)
