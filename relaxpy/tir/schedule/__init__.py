"""Kernels have no schedules; here is what test files of TVM import from this path."""

from relaxpy.absent import hint_at_absent as _hint_at_absent
from relaxpy.tir.schedule import testing as testing

_hint_at_absent(globals())
