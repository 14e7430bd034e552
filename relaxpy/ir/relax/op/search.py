"""Operators that choose among elements, or look where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaxpy.ir.dtype import INT64
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo
from relaxpy.ir.relax.op.registry import OpDef, register
from relaxpy.ir.relax.op.rules import (
    Legalize,
    broadcast,
    by_te,
    joint_dtype,
    joint_vdevice,
    literal_shape,
    refuse_type,
    te_kernel,
    tensor,
    with_dtype,
)
from relaxpy.ir.relax.op.statistical import reduced
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor

if TYPE_CHECKING:
    from relaxpy.ir.relax.builder import BlockBuilder


def _where(condition: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    same = x2 if x1.dtype == x2.dtype else topi.cast(x2, x1.dtype)
    chosen: Tensor = topi.where(condition, x1, same)
    return chosen


@register("relax.where", pure=True, legalize=by_te(_where, "where"))
def where(
    condition: TensorStructInfo, x1: TensorStructInfo, x2: TensorStructInfo
) -> TensorStructInfo:
    """x1 where the condition is true, else x2.

    Shapes:
        condition  Bool
        x1, x2     of one datatype (or one Bool); all three broadcast
        result     what they broadcast to, in the datatype of x1
    Errors:
        StructInfoError: the condition is not known to be Bool, the datatypes differ, or known sizes
            do not broadcast.
    """
    if not condition.dtype.is_bool:
        raise refuse_type(f"condition holds Booleans, found {condition}", condition)
    infos = (condition, x1, x2)
    shape, ndim = broadcast(infos, ("condition", "x1", "x2"))
    dtype = joint_dtype(x1, x2, ("x1", "x2"))
    return tensor(shape, dtype, joint_vdevice(infos, strict=False), ndim)


_ARG = """Where the {what} element along an axis stands: the first of them, NaN first, -1 if none.

Shapes:
    x       any
    result  without the axis, or with size 1 there under `keepdims`; without an axis, the place in
            row-major order; in int64
Errors:
    StructInfoError: the axis is out of range.
"""


def _legalize(name: str) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        info = builder.struct_info_of(call)
        assert isinstance(info, TensorStructInfo)
        function = getattr(topi, name)
        return te_kernel(builder, function, name, *call.args, dtype=str(info.dtype), **call.attrs)

    return legalize


def _arg(name: str, what: str) -> OpDef:
    def infer(
        x: TensorStructInfo, axis: int | None = None, keepdims: bool = False
    ) -> TensorStructInfo:
        shape = literal_shape(x)
        result = reduced(x, None if axis is None else (axis,), keepdims=keepdims)
        return with_dtype(result, shape[0].dtype if shape else INT64)

    infer.__name__ = infer.__qualname__ = name
    infer.__doc__ = _ARG.format(what=what)
    return register(f"relax.{name}", pure=True, legalize=_legalize(name))(infer)


argmax, argmin = _arg("argmax", "largest"), _arg("argmin", "smallest")
