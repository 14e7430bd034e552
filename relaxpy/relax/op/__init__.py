"""The operators of Relax as functions that build calls."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op")
if TYPE_CHECKING:
    from relaxpy.ir.ops import *
    from relaxpy.ir.ops.operators import *
    from relaxpy.relax.op import op_attrs as op_attrs
