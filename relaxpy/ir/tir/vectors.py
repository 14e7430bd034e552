"""The lanes of vectors: a number, or a multiple of the hardware's vscale."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import INT32, DataType
from relaxpy.ir.tir import expr, ops


def vector_of(
    scalar: DataType, lanes: int | expr.PrimExpr, requirement: str
) -> tuple[int | expr.PrimExpr, DataType]:
    """The lanes of a vector of scalars, a number or a multiple of vscale, and its datatype.

    Errors:
        MisuseError: `scalar` is a vector, or there are fewer than 2 lanes.
    """
    times = scalable_lanes(lanes)
    if times is None:
        count = ops.as_int(lanes)
        if scalar.vector or count < 2:
            raise MisuseError(f"{requirement} and at least 2 lanes")
        return count, scalar.with_lanes(count)
    if scalar.vector or times < 1:
        raise MisuseError(f"{requirement} and a positive multiple of vscale as lanes")
    return lanes_of(times), DataType(f"{scalar.element}xvscalex{times}")


def lanes_of(times: int) -> expr.PrimExpr:
    """`times` vscale, the number of lanes of a scalable vector."""
    vscale = expr.Call(INT32, "tir.vscale", ())
    return expr.Mul(vscale, expr.IntImm(INT32, times))


def scalable_lanes(lanes: object) -> int | None:
    """k if `lanes` is k times vscale, otherwise None."""
    match lanes:
        case expr.Call(op=op) if getattr(op, "name", "") == "tir.vscale":
            return 1
        case expr.Mul(a=a, b=expr.IntImm(value=times)) | expr.Mul(a=expr.IntImm(value=times), b=a):
            return times if scalable_lanes(a) == 1 else None
        case _:
            return None


def match_scalable(
    left: expr.PrimExpr, right: expr.PrimExpr
) -> tuple[expr.PrimExpr, expr.PrimExpr]:
    """Broadcast a scalar operand to the scalable vector type of the other operand."""
    for vector, scalar in ((left, right), (right, left)):
        if vector.dtype.is_scalable and not scalar.dtype.vector:
            wide = expr.Broadcast(
                ops.cast_to(scalar, vector.dtype.element), lanes_of(vector.dtype.lanes)
            )
            return (left, wide) if vector is left else (wide, right)
    raise MisuseError(f"cannot match types {left.dtype} and {right.dtype}")


def widen(value: expr.PrimExpr, lanes: int) -> expr.PrimExpr:
    """Broadcast a scalar to a number of lanes. Errors: MisuseError if it has another number."""
    if value.dtype.lanes == lanes:
        return value
    if value.dtype.lanes != 1:
        raise MisuseError(f"cannot match {value.dtype.lanes} lanes with {lanes}")
    return expr.Broadcast(value, lanes)
