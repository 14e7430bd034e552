"""What importers share."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.plugins.importing.autopad import autopad as autopad
    from relaxpy.plugins.importing.params import detach_params as detach_params
else:
    _face(globals(), """
        relaxpy.plugins.importing.autopad: autopad
        relaxpy.plugins.importing.params: detach_params
    """)
