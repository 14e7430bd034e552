"""Instruments for passes over Relax programs."""

from relaxpy.relax.ir import instrument as instrument
