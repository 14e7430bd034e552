"""Schedules of kernels, under the name of TVM after v0.22."""

import sys

from relaxpy import dlight
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.tir import (
    BijectiveLayout,
    Layout,
    Schedule,
    ScheduleError,
    analysis,
    bijective_layout,
    layout,
    schedule,
    transform,
)
from relaxpy.tir.schedule import BlockRV, Instruction, LoopRV, SBlockRV, StmtSRef, Trace
from relaxpy.tir.stmt_functor import renew_defs

__all__ = [
    "BijectiveLayout",
    "BlockRV",
    "Instruction",
    "Layout",
    "LoopRV",
    "SBlockRV",
    "Schedule",
    "ScheduleError",
    "StmtSRef",
    "Trace",
    "analysis",
    "bijective_layout",
    "dlight",
    "layout",
    "renew_defs",
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
