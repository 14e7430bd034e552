"""The base class of functions, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.ir.function")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes import BaseFunc as BaseFunc
