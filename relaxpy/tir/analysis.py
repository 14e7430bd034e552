"""Analyses of kernels."""

from relaxpy.absent import hint_at_absent as _hint_at_absent
from relaxpy.ir.tir.prim_func.well_formed import verify_well_formed

__all__ = ["verify_well_formed"]

_hint_at_absent(globals())
