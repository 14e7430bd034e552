"""Rules for GPUs, by TVM's names: they let its programs run unchanged, as there is no GPU here."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.dlight.gpu")
if TYPE_CHECKING:
    from relaxpy.tvm.tir.bind_target import Fallback as Fallback
    from relaxpy.tvm.tir.bind_target import ScheduleRule as GEMV
    from relaxpy.tvm.tir.bind_target import ScheduleRule as GeneralReduction
    from relaxpy.tvm.tir.bind_target import ScheduleRule as LowBatchGEMV
    from relaxpy.tvm.tir.bind_target import ScheduleRule as Matmul
    from relaxpy.tvm.tir.bind_target import ScheduleRule as RMSNorm
    from relaxpy.tvm.tir.bind_target import ScheduleRule as Reduction
    from relaxpy.tvm.tir.bind_target import ScheduleRule as Transpose
    __all__ = ['Fallback', 'GEMV', 'GeneralReduction', 'LowBatchGEMV', 'Matmul', 'RMSNorm', 'Reduction', 'Transpose']
