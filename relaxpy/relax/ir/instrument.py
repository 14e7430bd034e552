"""Instruments that look at a program before or after each pass."""

from relaxpy.ir.instrument import WellFormedInstrument as WellFormedInstrument
