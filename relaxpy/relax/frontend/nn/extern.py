"""External functions that models call."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.extern")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.session import ExternModule as ExternModule, ObjectModule as ObjectModule, SourceModule as SourceModule
