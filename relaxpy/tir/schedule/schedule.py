"""Schedules and their errors: `tvm.tir.schedule.schedule`."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.tir.schedule.schedule")
if TYPE_CHECKING:
    from relaxpy.errors import ScheduleError as ScheduleError
    from relaxpy.plugins.schedule.schedule import Schedule as Schedule
