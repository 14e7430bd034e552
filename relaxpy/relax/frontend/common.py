"""Functions shared by importers."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.common")
if TYPE_CHECKING:
    from relaxpy.plugins.importing.tensors import detach_params as detach_params
    from relaxpy.plugins.importing.windows import autopad as autopad
