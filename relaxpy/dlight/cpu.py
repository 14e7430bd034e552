"""Rules for processors, by TVM's names."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.tir.transform.bind_target import ScheduleRule as GEMV
    __all__ = ['GEMV']
else:
    _face(globals(), """
        relaxpy.ir.tir.transform.bind_target: GEMV=ScheduleRule
    """)
