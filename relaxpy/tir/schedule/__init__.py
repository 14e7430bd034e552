"""Kernels have no schedules; here is what test files of TVM import from this path."""

from relaxpy.tir.schedule import testing as testing
