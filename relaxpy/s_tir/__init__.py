"""Schedules of kernels, under the name of TVM after v0.22."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.s_tir import (
        analysis as analysis,
        dlight as dlight,
        schedule as schedule,
        transform as transform,
    )
    from relaxpy.tir import (
        BijectiveLayout as BijectiveLayout,
        BijectiveLayout as SBijectiveLayout,
        Layout as Layout,
        Layout as SLayout,
        MatchBufferRegion as MatchBufferRegion,
        SBlock as SBlock,
        SBlockRealize as SBlockRealize,
        Schedule as Schedule,
        ScheduleError as ScheduleError,
        bijective_layout as bijective_layout,
        bijective_layout as sbijective_layout,
        layout as layout,
        layout as slayout,
    )
    from relaxpy.tir.schedule import (
        BlockRV as BlockRV,
        Instruction as Instruction,
        LoopRV as LoopRV,
        SBlockRV as SBlockRV,
        StmtSRef as StmtSRef,
        Trace as Trace,
    )
    from relaxpy.tir.stmt_functor import renew_defs as renew_defs
else:
    _face(
        globals(),
        """
        relaxpy.s_tir.: analysis dlight schedule transform
        relaxpy.tir: BijectiveLayout Layout MatchBufferRegion SBlock SBlockRealize Schedule ScheduleError
            bijective_layout layout SBijectiveLayout=BijectiveLayout SLayout=Layout
            sbijective_layout=bijective_layout slayout=layout
        relaxpy.tir.schedule: BlockRV Instruction LoopRV SBlockRV StmtSRef Trace
        relaxpy.tir.stmt_functor: renew_defs
        """,
    )
