"""Layers of neural networks as tensor expressions."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.te.topi.convolution_names import *
    from relaxpy.ir.te.topi.masks_and_blocks import batch_to_space_nd as batch_to_space_nd, space_to_batch_nd as space_to_batch_nd
    from relaxpy.ir.te.topi.nn import *
else:
    _face(globals(), """
        relaxpy.ir.te.topi.convolution_names: *
        relaxpy.ir.te.topi.masks_and_blocks: batch_to_space_nd space_to_batch_nd
        relaxpy.ir.te.topi.nn: *
    """)
