"""Analyses before scheduling: `tvm.tir.schedule.analysis`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.schedule.analysis")
if TYPE_CHECKING:
    from relaxpy.plugins.schedule.queries import has_block as has_block, is_output_block as is_output_block, suggest_index_map as suggest_index_map
