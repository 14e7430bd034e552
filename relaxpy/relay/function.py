"""Functions, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.function")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.expr import Function as Function
