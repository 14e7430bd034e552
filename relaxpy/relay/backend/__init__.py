"""Executors, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.backend")
if TYPE_CHECKING:
    from relaxpy.relay.backend import interpreter as interpreter
