"""Schedules and their errors: `tvm.tir.schedule.schedule`."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.errors import ScheduleError as ScheduleError
    from relaxpy.plugins.schedule.schedule import Schedule as Schedule
else:
    _face(globals(), """
        relaxpy.errors: ScheduleError
        relaxpy.plugins.schedule.schedule: Schedule
    """)
