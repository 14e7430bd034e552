"""The operators of Relax as functions that build calls."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.op")
if TYPE_CHECKING:
    from relaxpy.ir.ops import *
    from relaxpy.ir.ops.operators import *
    from relaxpy.relax.op import op_attrs as op_attrs
