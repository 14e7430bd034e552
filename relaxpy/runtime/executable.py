"""Compiled programs."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.runtime.executable")
if TYPE_CHECKING:
    from relaxpy.exec.api.executable import Executable as Executable
