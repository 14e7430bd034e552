"""Operators that choose between elements, or find their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo
from relaxpy.ir.relax.op.binary import fit_numbers
from relaxpy.ir.relax.op.definition.gradients import elementwise, masked, no_gradient
from relaxpy.ir.relax.op.definition.layouts import elementwise_layout, extremum_layout
from relaxpy.ir.relax.op.definition.registry import R, Rows, family, register
from relaxpy.ir.relax.op.definition.rules import (
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
from relaxpy.ir.relax.op.definition.sharding import broadcast_axes
from relaxpy.ir.relax.op.statistical import reduced
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _where(condition: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    result: Tensor = topi.where(condition, x1, as_dtype(x2, x1.dtype))
    return result


_where_gradient = elementwise(
    None,
    lambda g, condition, x1, x2, y: masked(g, condition),
    lambda g, condition, x1, x2, y: masked(g, R.logical_not(condition)),
)


@register(
    "relax.where",
    sharding=broadcast_axes,
    layout=elementwise_layout,
    pure=True,
    legalize=by_te(_where, "where"),
    adapt=fit_numbers,
    gradient=_where_gradient,
)
def where(
    condition: TensorStructInfo, x1: TensorStructInfo, x2: TensorStructInfo
) -> TensorStructInfo:
    """x1 where the condition is true, else x2.

    Shapes:
        condition  Bool
        x1, x2     of one datatype (or one Bool); all three broadcast; a number takes the datatype
                   of the other one
        result     what they broadcast to, in the datatype of x1
    Errors:
        StructInfoError: the condition is not known to be Bool, the datatypes differ, or known sizes
            do not broadcast.
    """
    if not condition.dtype.is_bool:
        raise refuse_type(f"condition holds Booleans, found {condition}", condition)
    sinfos = (condition, x1, x2)
    shape, ndim = broadcast(sinfos, ("condition", "x1", "x2"))
    dtype = joint_dtype(x1, x2, ("x1", "x2"))
    return tensor(shape, dtype, joint_vdevice(sinfos, strict=False), ndim)


def _legalize_arg(name: str) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        result, kernel = builder.struct_info_of(call), getattr(topi, name)
        assert isinstance(result, TensorStructInfo)
        return te_kernel(builder, kernel, name, *call.args, dtype=str(result.dtype), **call.attrs)

    return legalize


def _infer_arg(
    x: TensorStructInfo, axis: int | None = None, keepdims: bool = False
) -> TensorStructInfo:
    shape = literal_shape(x)
    result = reduced(x, None if axis is None else (axis,), keepdims=keepdims)
    return with_dtype(result, shape[0].dtype if shape else INT64)


_ARG_DOC = """The position of the {} element along an axis: the first one, NaN first, -1 if none.

Shapes:
    x       any
    result  without the axis, or with size 1 there under `keepdims`; without an axis, the position
            in row-major order; in int64
Errors:
    StructInfoError: the axis is out of range.
"""


_arg = Rows(_infer_arg, _ARG_DOC, _legalize_arg, gradient=no_gradient, layout=extremum_layout)
ARG_REDUCTIONS = family(_arg("argmax", "largest"), _arg("argmin", "smallest"))
