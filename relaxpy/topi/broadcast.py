"""Elementwise functions of two tensors as tensor expressions: all names of `topi`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.topi.broadcast")
if TYPE_CHECKING:
    from relaxpy.topi import *
