"""Conditions that the patterns of backends have in common."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.backend.utils")
if TYPE_CHECKING:
    from relaxpy.tvm.libraries.patterns import has_leaking_intermediate_variables as has_leaking_intermediate_variables
