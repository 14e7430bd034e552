"""Quantisation, under TVM's module name: all operators."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.qdq")
if TYPE_CHECKING:
    from relaxpy.ir.ops import *
    from relaxpy.ir.ops.operators import *
