"""Calls of kernels and packed functions, under TVM's module name: all operators."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.op.base")
if TYPE_CHECKING:
    from relaxpy.ir.ops import *
    from relaxpy.ir.ops.operators import *
