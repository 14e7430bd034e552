"""The context in which patterns are matched against a block as a whole."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.dpl.context")
if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.pattern import PatternContext as PatternContext
