"""Visitors and mutators of statements and expressions, for subclassing."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.functor")
if TYPE_CHECKING:
    from relaxpy.tvm.tir.functor import PyStmtExprMutator as PyStmtExprMutator, PyStmtExprMutatorWithAnalyzer as PyStmtExprMutatorWithAnalyzer, PyStmtExprVisitor as PyStmtExprVisitor, PyStmtExprVisitorWithAnalyzer as PyStmtExprVisitorWithAnalyzer, mutator as mutator, visitor as visitor
