"""Layers that become functions of their own."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.subroutine")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.subroutine import SubroutineMixin as SubroutineMixin
