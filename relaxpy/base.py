"""The base class of errors, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.base")
if TYPE_CHECKING:
    from relaxpy.error import TVMError as TVMError
