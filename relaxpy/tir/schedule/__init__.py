"""Schedules of kernels: `tvm.tir.schedule`."""

from relaxpy.errors import ScheduleError as ScheduleError
from relaxpy.ir.tir.schedule.schedule import Schedule as Schedule
from relaxpy.ir.tir.schedule.scheduled import StmtSRef as StmtSRef
from relaxpy.ir.tir.schedule.trace import (
    BlockRV as BlockRV,
    ExprRV as ExprRV,
    Instruction as Instruction,
    InstructionKind as InstructionKind,
    LoopRV as LoopRV,
    SBlockRV as SBlockRV,
    Trace as Trace,
)
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.tir.schedule import analysis as analysis, schedule as schedule, testing as testing

_hint_at_absent(globals())
