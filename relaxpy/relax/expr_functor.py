"""Visitors and mutators of expressions, for subclassing."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.expr_functor")
if TYPE_CHECKING:
    from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor as ExprFunctor, PyExprMutator as PyExprMutator, mutator as mutator
    from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator as ExprMutator
    from relaxpy.tvm.relax.dump_ast import PyExprVisitor as PyExprVisitor, visitor as visitor
    from relaxpy.tvm.relax.dump_ast import PyExprVisitor as ExprVisitor
    __all__ = ['ExprFunctor', 'ExprMutator', 'ExprVisitor', 'PyExprMutator', 'PyExprVisitor', 'mutator', 'visitor']
