"""Checks of schedules: comparison of kernels whatever their names are, and replay of traces."""

from relaxpy.exec.runtime.verify import assert_structural_equal_ignore_global_symbol
from relaxpy.ir.tir.schedule.verify import verify_trace_roundtrip

__all__ = ["assert_structural_equal_ignore_global_symbol", "verify_trace_roundtrip"]
