"""Comparison of the calls of a machine with those of other functions."""

from relaxpy.exec.compare_calls import LibCompareVMInstrument as LibCompareVMInstrument
