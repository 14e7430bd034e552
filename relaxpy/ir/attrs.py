"""Attributes of nodes, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.ir.attrs")
if TYPE_CHECKING:
    from relaxpy.ir.core.node import Attrs as Attrs
    from relaxpy.ir.core.node import Attrs as DictAttrs
    __all__ = ['Attrs', 'DictAttrs']
