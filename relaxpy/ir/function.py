"""The base class of functions, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.ir.function")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes import BaseFunc as BaseFunc
