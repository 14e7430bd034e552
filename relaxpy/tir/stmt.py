"""Statements, under TVM's module name: all names of `tir`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.stmt")
if TYPE_CHECKING:
    from relaxpy.tir import *
