"""Schedules and their errors: `tvm.tir.schedule.schedule`."""

from relaxpy.errors import ScheduleError as ScheduleError
from relaxpy.ir.tir.schedule.schedule import Schedule as Schedule
