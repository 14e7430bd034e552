"""Operations, under TVM's module name: all names of `te`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.te.operation")
if TYPE_CHECKING:
    from relaxpy.te import *
