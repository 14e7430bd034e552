"""External functions that models call."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.frontend.nn.extern import ExternModule as ExternModule, ObjectModule as ObjectModule, SourceModule as SourceModule
else:
    _face(globals(), """
        relaxpy.ir.relax.frontend.nn.extern: ExternModule ObjectModule SourceModule
    """)
