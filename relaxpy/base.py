"""The base class of errors, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.base")
if TYPE_CHECKING:
    from relaxpy.error import TVMError as TVMError
