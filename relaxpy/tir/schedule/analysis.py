"""What a program asks before it schedules: `tvm.tir.schedule.analysis`."""

from relaxpy.ir.tir.schedule.analysis import (
    has_block as has_block,
    is_output_block as is_output_block,
    suggest_index_map as suggest_index_map,
)
from relaxpy.missing import hint_at_absent as _hint_at_absent

_hint_at_absent(globals())
