"""Layers of neural networks as tensor expressions."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.te.topi.nn import *
    from relaxpy.tvm.topi.convolution_names import *
    from relaxpy.tvm.topi.masks_and_blocks import batch_to_space_nd as batch_to_space_nd, space_to_batch_nd as space_to_batch_nd
else:
    _face(globals(), """
        relaxpy.ir.te.topi.nn: *
        relaxpy.tvm.topi.convolution_names: *
        relaxpy.tvm.topi.masks_and_blocks: batch_to_space_nd space_to_batch_nd
    """)
