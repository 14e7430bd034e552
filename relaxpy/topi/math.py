"""Elementwise functions as tensor expressions: all names of `topi`."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.topi.math")
if TYPE_CHECKING:
    from relaxpy.topi import *
