"""Shared arithmetic of functions that interpolate between elements."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.ir.core.dtype import FLOAT32, FLOAT64, DataType
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr


def double(value: ExprLike) -> PrimExpr:
    """A number in float64."""
    return ops.cast_to(value, FLOAT64) if isinstance(value, PrimExpr) else ops.const(value, FLOAT64)


def ratio(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """a / b of integers, rounded once."""
    return tir.Div(double(a), double(b))


def cubic_weights(t: PrimExpr, alpha: float) -> list[PrimExpr]:
    """The weights at distances 1 + t, t, 1 - t and 2 - t (Keys, IEEE Trans. ASSP 29(6), 1981)."""
    a, b, c = double(alpha), double(alpha + 2), double(alpha + 3)
    t2 = t * t
    t3 = t2 * t
    return [
        a * (t3 - t2 * double(2.0) + t),
        b * t3 - c * t2 + double(1.0),
        double(2 * alpha + 3) * t2 - b * t3 - a * t,
        a * t2 - a * t3,
    ]


def _hat(distance: PrimExpr, alpha: float) -> PrimExpr:
    return ops.maximum(double(1.0) - distance, double(0.0))


def _cubic(distance: PrimExpr, alpha: float) -> PrimExpr:
    """The weight of Keys at a distance of at least 0."""
    d, a = distance, double(alpha)
    near = ((a + double(2.0)) * d - (a + double(3.0))) * d * d + double(1.0)
    far = ((a * d - double(5 * alpha)) * d + double(8 * alpha)) * d - double(4 * alpha)
    beyond = tir.Select(d < double(2.0), far, double(0.0))
    return tir.Select(d <= double(1.0), near, beyond)


#: The minimum number of taps on one side of an element, and the weight at a distance, by method.
FILTERS: dict[str, tuple[int, Callable[[PrimExpr, float], PrimExpr]]] = {
    "linear": (1, _hat),
    "cubic": (2, _cubic),
}


def sum_dtype(*dtypes: DataType) -> DataType:
    """The datatype of sums: float64 for floats or integers that float32 does not represent."""
    is_narrow = all(d.bits <= (FLOAT32.bits if d.is_float else 16) for d in dtypes)
    return FLOAT32 if is_narrow else FLOAT64
