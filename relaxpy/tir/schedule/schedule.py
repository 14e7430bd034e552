"""Schedules and their errors: `tvm.tir.schedule.schedule`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.schedule.schedule")
if TYPE_CHECKING:
    from relaxpy.errors import ScheduleError as ScheduleError
    from relaxpy.plugins.schedule.schedule import Schedule as Schedule
