"""Operators of neural networks."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.nn")
if TYPE_CHECKING:
    from relaxpy.ir.ops.nn import *
    from relaxpy.ir.ops.nn import relu6 as relu6
