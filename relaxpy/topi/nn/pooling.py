"""Pooling of windows, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.topi.nn.pooling")
if TYPE_CHECKING:
    from relaxpy.ir.te.topi.nn import adaptive_pool as adaptive_pool, adaptive_pool1d as adaptive_pool1d, adaptive_pool3d as adaptive_pool3d, adaptive_pool_grad as adaptive_pool_grad, global_pool as global_pool, pool1d as pool1d, pool2d as pool2d, pool3d as pool3d, pool_grad as pool_grad, pool_selected as pool_selected
