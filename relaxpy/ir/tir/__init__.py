"""Loop-level IR: PrimExprs, statements, buffers and PrimFuncs."""

# First, as `prim_expr`, `ops` and `expr` name each other: the nodes' operators are functions of
# `ops`, which build nodes.
from relaxpy.ir.tir import expr

__all__ = ["expr"]
