"""Temporary directories: `tvm.contrib.utils`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.contrib.utils")
if TYPE_CHECKING:
    from relaxpy.tvm.tensor_cache import TempDirectory as TempDirectory, tempdir as tempdir
