"""Analyses of kernels."""

from relaxpy.ir.tir.prim_func.well_formed import verify_well_formed
from relaxpy.missing import hint_at_absent as _hint_at_absent

__all__ = ["verify_well_formed"]

_hint_at_absent(globals())
