"""Functions that return shape expressions."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import StructInfoTypeError, unexpected
from relaxpy.ir.relax.nodes import Expr, ShapeExpr, TensorStructInfo
from relaxpy.ir.relax.op.misc import shape_of
from relaxpy.ir.tir.expr import ExprLike


def make_shape(shape: Sequence[ExprLike]) -> ShapeExpr:
    """The shape value with these members.

    Errors:
        MisuseError (also TypeError, ValueError): `shape` is not a list or tuple of integers.
    """
    if not isinstance(shape, (list, tuple)):
        raise unexpected(shape, "a shape is a list or tuple of dimensions")
    return ShapeExpr(tuple(shape))


def get_shape_of(expr: Expr) -> Expr:
    """The shape of a tensor from its struct info, or else a call of `relax.shape_of`.

    Errors:
        StructInfoTypeError: `expr` is not known to be a tensor.
    """
    sinfo = expr.struct_info if isinstance(expr, Expr) else type(expr).__name__
    if isinstance(sinfo, TensorStructInfo):
        return sinfo.shape if sinfo.shape is not None else shape_of(expr)
    raise StructInfoTypeError(
        f"expected a tensor, found {sinfo}", span=getattr(expr, "span", None), about=expr
    )
