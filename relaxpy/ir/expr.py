"""Scalar expressions, ranges and names of functions, under TVM's module name."""

from relaxpy.ir.relax.nodes import Expr as RelaxExpr, GlobalVar
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.iteration import Range

__all__ = ["GlobalVar", "PrimExpr", "Range", "RelaxExpr"]
