"""External functions that models call."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.plugins.nn.session import ExternModule as ExternModule, ObjectModule as ObjectModule, SourceModule as SourceModule
else:
    _face(globals(), """
        relaxpy.plugins.nn.session: ExternModule ObjectModule SourceModule
    """)
