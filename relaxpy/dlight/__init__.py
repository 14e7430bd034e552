"""The schedules of kernels that programs of TVM ask for: `compile` decides them here.

It lets such programs run unchanged, and is not a feature: the rules have no effect.
"""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.dlight")
if TYPE_CHECKING:
    from relaxpy.dlight import cpu as cpu, gpu as gpu
    from relaxpy.tvm.tir.bind_target import ApplyDefaultSchedule as ApplyDefaultSchedule, ScheduleRule as ScheduleRule
