"""Functions of images as tensor expressions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.topi.image")
if TYPE_CHECKING:
    from relaxpy.ir.te.topi.image import *
