"""Visitors and mutators of expressions, for subclassing."""

from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor as ExprFunctor
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator as PyExprMutator, mutator as mutator
from relaxpy.ir.relax.rewrite.expr_visitor import PyExprVisitor as PyExprVisitor, visitor as visitor

ExprMutator = PyExprMutator
ExprVisitor = PyExprVisitor
