"""Compiled programs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.runtime.executable")
if TYPE_CHECKING:
    from relaxpy.exec.api.executable import Executable as Executable
