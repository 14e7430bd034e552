"""The Prelude, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relay.prelude")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.module import Prelude as Prelude
