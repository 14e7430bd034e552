"""Schedule rules for CPUs, by TVM's names."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.dlight.cpu")
if TYPE_CHECKING:
    from relaxpy.tvm.tir.bind_target import ScheduleRule as GEMV
    __all__ = ['GEMV']
