"""Arithmetic of scalars, by name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.generic")
if TYPE_CHECKING:
    from relaxpy.ir.tir.intrin import cast as cast
    from relaxpy.tir import add as add, div as div, floordiv as floordiv, multiply as multiply, subtract as subtract
    from relaxpy.tir import div as divide
    __all__ = ['add', 'cast', 'div', 'divide', 'floordiv', 'multiply', 'subtract']
