"""The dimensions, strides and other integers of a buffer, checked as users write them."""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeVar

from relaxpy.errors import check_type, unexpected
from relaxpy.ir.core.dtype import INT32
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var


def dimensions(shape: Any) -> tuple[ExprLike, ...]:
    """Return the dimensions of a shape; a single dimension need not be in a list.

    Errors:
        MisuseError: a dimension is not an integer.
    """
    return integers(shape if isinstance(shape, (tuple, list)) else (shape,), "a dimension")


def integers(values: Any, field: str) -> tuple[ExprLike, ...]:
    """Check that `values` are integers or integer expressions, and return them as a tuple."""
    check_type(values, (tuple, list), "expected a list of integers", hint=f"each member is {field}")
    for value in values:
        if isinstance(value, TypeVar):  # in an annotation, which Python evaluates
            continue
        kind = value.dtype if isinstance(value, PrimExpr) else None
        is_int = isinstance(value, Integral) if kind is None else kind.is_int and not kind.is_bool
        if not is_int or isinstance(value, bool):
            raise unexpected(
                value,
                f"{field} of a buffer is an integer",
                hint="declare a variable, as in n = T.int32(), and use T.match_buffer"
                if isinstance(value, str) and field == "a dimension"
                else None,
            )
    return tuple(values)


def strides(arguments: Any, shape: tuple[ExprLike, ...]) -> tuple[ExprLike, ...]:
    """Return the strides; a string becomes a new variable of the datatype of the dimensions."""
    first = shape[0] if shape else 0
    dtype = first.dtype if isinstance(first, PrimExpr) else INT32
    if isinstance(arguments, (tuple, list)):
        arguments = [
            Var(s, dtype) if isinstance(s, str) and s.isidentifier() else s for s in arguments
        ]
    return integers(arguments, "a stride")
