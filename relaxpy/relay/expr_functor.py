"""Traversals of expressions, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.expr_functor")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.functors import ExprFunctor as ExprFunctor, ExprMutator as ExprMutator, ExprVisitor as ExprVisitor
