"""The schedules of kernels that programs of TVM ask for: `compile` decides them here."""

from relaxpy.dlight import cpu, gpu
from relaxpy.ir.tir.transform.bind_target import ApplyDefaultSchedule, ScheduleRule

__all__ = ["ApplyDefaultSchedule", "ScheduleRule", "cpu", "gpu"]
