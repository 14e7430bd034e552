"""What importers share."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.frontend.autopad import autopad as autopad
    from relaxpy.ir.relax.frontend.params import detach_params as detach_params
else:
    _face(globals(), """
        relaxpy.ir.relax.frontend.autopad: autopad
        relaxpy.ir.relax.frontend.params: detach_params
    """)
