"""Instruments for passes over Relax programs."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.ir")
if TYPE_CHECKING:
    from relaxpy.relax.ir import instrument as instrument
