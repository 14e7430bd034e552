"""Checks of schedules: comparison of kernels whatever their names are, and replay of traces."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.schedule.testing")
if TYPE_CHECKING:
    from relaxpy.plugins.schedule.schedule import verify_trace_roundtrip as verify_trace_roundtrip
    from relaxpy.plugins.testing.verify import assert_structural_equal_ignore_global_symbol as assert_structural_equal_ignore_global_symbol
