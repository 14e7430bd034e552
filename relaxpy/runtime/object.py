"""The base class of nodes."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.runtime.object")
if TYPE_CHECKING:
    from relaxpy.ir.core.node import Node as Object
    __all__ = ['Object']
