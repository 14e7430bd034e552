"""Attributes of nodes, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.ir.attrs")
if TYPE_CHECKING:
    from relaxpy.ir.core.node import Attrs as Attrs
    from relaxpy.ir.core.node import Attrs as DictAttrs
    __all__ = ['Attrs', 'DictAttrs']
