"""Assertions and marks of tests, under TVM's module name: all names of `testing`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.testing.utils")
if TYPE_CHECKING:
    from relaxpy.testing import *
