"""Schedules of kernels, under the name of TVM after v0.22."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.s_tir")
if TYPE_CHECKING:
    from relaxpy.s_tir import analysis as analysis, dlight as dlight, schedule as schedule, transform as transform
    from relaxpy.tir import BijectiveLayout as BijectiveLayout, Layout as Layout, MatchBufferRegion as MatchBufferRegion, SBlock as SBlock, SBlockRealize as SBlockRealize, Schedule as Schedule, ScheduleError as ScheduleError, bijective_layout as bijective_layout, layout as layout
    from relaxpy.tir import BijectiveLayout as SBijectiveLayout
    from relaxpy.tir import Layout as SLayout
    from relaxpy.tir import bijective_layout as sbijective_layout
    from relaxpy.tir import layout as slayout
    from relaxpy.tir.schedule import BlockRV as BlockRV, Instruction as Instruction, LoopRV as LoopRV, SBlockRV as SBlockRV, StmtSRef as StmtSRef, Trace as Trace
    from relaxpy.tir.stmt_functor import renew_defs as renew_defs
    __all__ = ['BijectiveLayout', 'BlockRV', 'Instruction', 'Layout', 'LoopRV', 'MatchBufferRegion', 'SBijectiveLayout', 'SBlock', 'SBlockRV', 'SBlockRealize', 'SLayout', 'Schedule', 'ScheduleError', 'StmtSRef', 'Trace', 'analysis', 'bijective_layout', 'dlight', 'layout', 'renew_defs', 'sbijective_layout', 'schedule', 'slayout', 'transform']
