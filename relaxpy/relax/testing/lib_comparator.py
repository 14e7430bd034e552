"""Comparison of the calls of a machine with those of other functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.testing.lib_comparator")
if TYPE_CHECKING:
    from relaxpy.plugins.testing.bisect import LibCompareVMInstrument as LibCompareVMInstrument
