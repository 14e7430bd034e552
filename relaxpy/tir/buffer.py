"""Buffers."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.buffer")
if TYPE_CHECKING:
    from relaxpy.ir.tir.buffer import Buffer as Buffer, decl_buffer as decl_buffer
