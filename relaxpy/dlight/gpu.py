"""Rules for GPUs, by TVM's names."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.tir.transform.bind_target import (
        Fallback as Fallback,
        ScheduleRule as GEMV,
        ScheduleRule as GeneralReduction,
        ScheduleRule as LowBatchGEMV,
        ScheduleRule as Matmul,
        ScheduleRule as RMSNorm,
        ScheduleRule as Reduction,
        ScheduleRule as Transpose,
    )
else:
    _face(
        globals(),
        """
        relaxpy.ir.tir.transform.bind_target: Fallback GEMV=ScheduleRule GeneralReduction=ScheduleRule
            LowBatchGEMV=ScheduleRule Matmul=ScheduleRule RMSNorm=ScheduleRule Reduction=ScheduleRule
            Transpose=ScheduleRule
        """,
    )
