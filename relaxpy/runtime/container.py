"""Shapes of values."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.runtime.container")
if TYPE_CHECKING:
    from relaxpy.exec.runtime.values import ShapeTuple as ShapeTuple
