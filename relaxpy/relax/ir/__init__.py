"""Instruments for passes over Relax programs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.ir")
if TYPE_CHECKING:
    from relaxpy.relax.ir import instrument as instrument
