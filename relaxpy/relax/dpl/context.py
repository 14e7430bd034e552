"""The context in which patterns are matched against a block as a whole."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.dpl.context")
if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.pattern import PatternContext as PatternContext
