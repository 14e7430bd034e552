"""Schedules of kernels, under the name of TVM after v0.22."""

import sys

from relaxpy import dlight
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.tir import (
    BijectiveLayout,
    Layout,
    MatchBufferRegion,
    SBlock,
    SBlockRealize,
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

SBijectiveLayout, SLayout = BijectiveLayout, Layout
sbijective_layout, slayout = bijective_layout, layout

__all__ = [
    "BijectiveLayout",
    "BlockRV",
    "Instruction",
    "Layout",
    "LoopRV",
    "MatchBufferRegion",
    "SBijectiveLayout",
    "SBlock",
    "SBlockRV",
    "SBlockRealize",
    "SLayout",
    "Schedule",
    "ScheduleError",
    "StmtSRef",
    "Trace",
    "analysis",
    "bijective_layout",
    "dlight",
    "layout",
    "renew_defs",
    "sbijective_layout",
    "schedule",
    "slayout",
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
