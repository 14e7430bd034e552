"""Passes over PrimFuncs."""

from relaxpy.ir.tir.prim_func_pass import Apply, Filter, prim_func_pass
from relaxpy.ir.transform import ApplyPassToFunction, PrintIR

__all__ = ["Apply", "ApplyPassToFunction", "Filter", "PrintIR", "prim_func_pass"]
