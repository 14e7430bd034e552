"""Visitors and mutators of statements and expressions, for subclassing."""

from relaxpy.ir.tir.functor import (
    PyStmtExprMutator as PyStmtExprMutator,
    PyStmtExprMutatorWithAnalyzer as PyStmtExprMutatorWithAnalyzer,
    PyStmtExprVisitor as PyStmtExprVisitor,
    PyStmtExprVisitorWithAnalyzer as PyStmtExprVisitorWithAnalyzer,
    mutator as mutator,
    visitor as visitor,
)
