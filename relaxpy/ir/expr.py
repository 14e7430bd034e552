"""Scalar expressions, ranges and names of functions, under TVM's module name."""

from relaxpy.ir.relax.nodes import Expr as RelaxExpr, GlobalVar
from relaxpy.ir.tir.buffer import Range
from relaxpy.ir.tir.expr import PrimExpr

__all__ = ["GlobalVar", "PrimExpr", "Range", "RelaxExpr"]
