"""Loop-level IR: PrimExprs, statements, buffers and PrimFuncs."""
