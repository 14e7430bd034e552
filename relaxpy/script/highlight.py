"""Programs in colour, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.script.highlight")
if TYPE_CHECKING:
    from relaxpy.script.printer import cprint as cprint
