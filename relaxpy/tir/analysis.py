"""Analyses of kernels."""

from relaxpy.ir.tir.prim_func.well_formed import verify_well_formed

__all__ = ["verify_well_formed"]
