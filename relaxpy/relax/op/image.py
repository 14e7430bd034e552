"""Operators on images."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.image")
if TYPE_CHECKING:
    from relaxpy.ir.ops.image import affine_grid as affine_grid, grid_sample as grid_sample, resize2d as resize2d, resize3d as resize3d
