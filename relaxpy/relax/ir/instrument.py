"""Instruments that look at a program before or after each pass."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.ir.instrument")
if TYPE_CHECKING:
    from relaxpy.ir.instrument import WellFormedInstrument as WellFormedInstrument
