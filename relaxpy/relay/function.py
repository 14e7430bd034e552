"""Functions, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relay.function")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.expr import Function as Function
