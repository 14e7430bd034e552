"""Visitors and mutators of expressions, for subclassing."""

from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor
from relaxpy.ir.relax.rewrite.expr_mutator import (
    PyExprMutator,
    PyExprMutator as ExprMutator,
    mutator,
)
from relaxpy.ir.relax.rewrite.expr_visitor import (
    PyExprVisitor,
    PyExprVisitor as ExprVisitor,
    visitor,
)

__all__ = [
    "ExprFunctor",
    "ExprMutator",
    "ExprVisitor",
    "PyExprMutator",
    "PyExprVisitor",
    "mutator",
    "visitor",
]
