"""From models to modules of Relax functions."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.frontend.nn.exporter import add_extern as add_extern
else:
    _face(globals(), """
        relaxpy.ir.relax.frontend.nn.exporter: add_extern
    """)
