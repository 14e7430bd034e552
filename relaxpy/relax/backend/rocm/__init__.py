"""Patterns of AMD's library, and a function that partitions modules by them."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.backend.rocm")
if TYPE_CHECKING:
    from relaxpy.relax.backend.rocm import hipblas as hipblas
