"""Assertions and marks of tests, under TVM's module name: all names of `testing`."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.testing.utils")
if TYPE_CHECKING:
    from relaxpy.testing import *
