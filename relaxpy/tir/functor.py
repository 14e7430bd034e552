"""Visitors and mutators of statements and expressions, for subclassing."""

from relaxpy.ir.tir.functor import (
    PyStmtExprMutator as PyStmtExprMutator,
    PyStmtExprVisitor as PyStmtExprVisitor,
    mutator as mutator,
    visitor as visitor,
)
