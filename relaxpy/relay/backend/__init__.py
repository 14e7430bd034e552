"""Executors, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relay.backend")
if TYPE_CHECKING:
    from relaxpy.relay.backend import interpreter as interpreter
