"""A plug-in of mypy, with which decorated classes are modules."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.testing.mypy_plugin")
if TYPE_CHECKING:
    from relaxpy.plugins.testing.mypy_plugin import plugin as plugin
