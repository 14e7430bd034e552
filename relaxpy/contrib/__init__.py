"""Further tools, under TVM's module names."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.contrib")
if TYPE_CHECKING:
    from relaxpy.contrib import tvmjs as tvmjs, utils as utils
