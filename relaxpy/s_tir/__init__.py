"""Schedules of kernels, under the name of TVM after v0.22."""

import sys

from relaxpy import dlight
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.tir import Schedule, ScheduleError, analysis, schedule, transform
from relaxpy.tir.schedule import BlockRV, BlockRV as SBlockRV, Instruction, LoopRV, StmtSRef, Trace

__all__ = [
    "BlockRV",
    "Instruction",
    "LoopRV",
    "SBlockRV",
    "Schedule",
    "ScheduleError",
    "StmtSRef",
    "Trace",
    "analysis",
    "dlight",
    "schedule",
    "transform",
]

sys.modules.update(
    {
        "relaxpy.s_tir.analysis": analysis,
        "relaxpy.s_tir.dlight": dlight,
        "relaxpy.s_tir.schedule": schedule,
        "relaxpy.s_tir.transform": transform,
    }
)
_hint_at_absent(globals())
