"""From models to modules of Relax functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.exporter")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.exporter import add_extern as add_extern
