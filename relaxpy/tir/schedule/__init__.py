"""Schedules of kernels: `tvm.tir.schedule`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.schedule")
if TYPE_CHECKING:
    from relaxpy.errors import ScheduleError as ScheduleError
    from relaxpy.plugins.schedule.schedule import Schedule as Schedule
    from relaxpy.plugins.schedule.scheduled import StmtSRef as StmtSRef
    from relaxpy.plugins.schedule.trace import BlockRV as BlockRV, ExprRV as ExprRV, Instruction as Instruction, InstructionKind as InstructionKind, LoopRV as LoopRV, SBlockRV as SBlockRV, Trace as Trace
    from relaxpy.tir.schedule import analysis as analysis, schedule as schedule, testing as testing
