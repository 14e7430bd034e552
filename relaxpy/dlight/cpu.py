"""Rules for processors, by TVM's names."""

from relaxpy.ir.tir.transform.bind_target import ScheduleRule as GEMV  # noqa: N814

__all__ = ["GEMV"]
