"""Visitors and mutators of expressions, for subclassing."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor as ExprFunctor
    from relaxpy.ir.relax.rewrite.expr_mutator import (
        PyExprMutator as ExprMutator,
        PyExprMutator as PyExprMutator,
        mutator as mutator,
    )
    from relaxpy.ir.relax.rewrite.expr_visitor import (
        PyExprVisitor as ExprVisitor,
        PyExprVisitor as PyExprVisitor,
        visitor as visitor,
    )
else:
    _face(
        globals(),
        """
        relaxpy.ir.relax.rewrite.expr_functor: ExprFunctor
        relaxpy.ir.relax.rewrite.expr_mutator: PyExprMutator mutator ExprMutator=PyExprMutator
        relaxpy.ir.relax.rewrite.expr_visitor: PyExprVisitor visitor ExprVisitor=PyExprVisitor
        """,
    )
