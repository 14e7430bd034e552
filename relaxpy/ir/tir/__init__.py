"""Loop-level IR: PrimExprs, statements, buffers and PrimFuncs."""

# Imported first, since `prim_expr`, `ops` and `expr` import each other: the operators of the nodes
# are functions of `ops`, which build nodes.
from relaxpy.ir.tir import expr

__all__ = ["expr"]
