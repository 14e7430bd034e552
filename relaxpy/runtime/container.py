"""Shapes of values."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.runtime.container")
if TYPE_CHECKING:
    from relaxpy.exec.runtime.values import ShapeTuple as ShapeTuple
