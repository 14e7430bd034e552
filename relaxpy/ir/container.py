"""The classes of the lists and tables in nodes, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.ir.container")
if TYPE_CHECKING:
    from builtins import tuple as Array
    from collections.abc import Mapping as Map
    __all__ = ['Array', 'Map']
