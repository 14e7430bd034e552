"""Traversals of expressions, under the path of TVM."""

from relaxpy.ir.relay.functors import ExprFunctor, ExprMutator, ExprVisitor

__all__ = ["ExprFunctor", "ExprMutator", "ExprVisitor"]
