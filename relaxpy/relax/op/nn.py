"""Operators of neural networks."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.op.nn")
if TYPE_CHECKING:
    from relaxpy.ir.ops.nn import *
    from relaxpy.ir.ops.nn import relu6 as relu6
