"""Rewriting of the expressions that patterns match."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.dpl.rewrite")
if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.rewriter import ExprPatternRewriter as ExprPatternRewriter, OrRewriter as OrRewriter, PatternMatchingRewriter as PatternMatchingRewriter, TupleRewriter as TupleRewriter, rewrite_bindings as rewrite_bindings, rewrite_call as rewrite_call
