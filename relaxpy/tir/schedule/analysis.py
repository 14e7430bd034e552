"""Analyses before scheduling: `tvm.tir.schedule.analysis`."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.tir.schedule.analysis")
if TYPE_CHECKING:
    from relaxpy.plugins.schedule.queries import has_block as has_block, is_output_block as is_output_block, suggest_index_map as suggest_index_map
