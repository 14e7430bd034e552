"""Rules for GPUs, by TVM's names."""

from relaxpy.ir.tir.transform.bind_target import (
    Fallback,
    ScheduleRule as GEMV,  # noqa: N814
    ScheduleRule as GeneralReduction,
    ScheduleRule as LowBatchGEMV,
    ScheduleRule as Matmul,
    ScheduleRule as RMSNorm,
    ScheduleRule as Reduction,
    ScheduleRule as Transpose,
)

__all__ = [
    "GEMV",
    "Fallback",
    "GeneralReduction",
    "LowBatchGEMV",
    "Matmul",
    "RMSNorm",
    "Reduction",
    "Transpose",
]
