"""The pass that chooses how samples are computed."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.backend.dispatch_sampling")
if TYPE_CHECKING:
    from relaxpy.relax.backend import DispatchSampling as DispatchSampling
