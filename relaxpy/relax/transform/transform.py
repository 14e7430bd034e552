"""Passes, under TVM's module name: all names of `relax.transform`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.transform.transform")
if TYPE_CHECKING:
    from relaxpy.relax.transform import *
