"""Further tools, under TVM's module names."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.contrib")
if TYPE_CHECKING:
    from relaxpy.contrib import tvmjs as tvmjs, utils as utils
