"""Maps of iterations, under TVM's module name: all names of `arith`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.arith.iter_affine_map")
if TYPE_CHECKING:
    from relaxpy.arith import *
