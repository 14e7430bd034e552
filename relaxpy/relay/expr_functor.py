"""Traversals of expressions, under the path of TVM."""

from relaxpy.ir.relay.functors import (
    ExprFunctor as ExprFunctor,
    ExprMutator as ExprMutator,
    ExprVisitor as ExprVisitor,
)
