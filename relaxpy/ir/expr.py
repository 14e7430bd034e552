"""Scalar expressions, ranges and names of functions, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.ir.expr")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes import GlobalVar as GlobalVar
    from relaxpy.ir.relax.nodes import Expr as RelaxExpr
    from relaxpy.ir.tir.expr import PrimExpr as PrimExpr
    from relaxpy.ir.tir.iteration import Range as Range
    __all__ = ['GlobalVar', 'PrimExpr', 'Range', 'RelaxExpr']
