"""Programs in colour, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.script.highlight")
if TYPE_CHECKING:
    from relaxpy.script.printer import cprint as cprint
