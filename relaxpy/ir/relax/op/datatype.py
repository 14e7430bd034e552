"""Operators that change the datatype of a tensor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from relaxpy.ir.core.dtype import FLOAT32, DataType
from relaxpy.ir.op_record import Memory
from relaxpy.ir.relax.nodes import Call, Constant, Expr, TensorStructInfo, Var, const
from relaxpy.ir.relax.op.definition.gradients import is_differentiable, no_gradient
from relaxpy.ir.relax.op.definition.layouts import same_layout
from relaxpy.ir.relax.op.definition.registry import register
from relaxpy.ir.relax.op.definition.rules import te_kernel, tensor_sinfo, with_dtype
from relaxpy.ir.relax.op.definition.sharding import same_axes
from relaxpy.ir.te import topi
from relaxpy.ir.tir import ops

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _legalize_astype(builder: BlockBuilder, call: Call) -> Expr:
    x, dtype = call.args[0], str(call.attrs["dtype"])
    if isinstance(x, Constant) and not x.data.ndim and (number := _converted(x, dtype)) is not None:
        return const(number, dtype)
    return te_kernel(builder, topi.cast, "cast", x, dtype=dtype)


def _converted(x: Constant, dtype: str) -> object:
    """The element of a scalar constant in `dtype`, or None where it does not fit."""
    kind, value = DataType(dtype), x.data[()]
    if not kind.is_int or kind.is_bool:
        return x.data
    if not DataType(x.data.dtype).is_int and not math.isfinite(value):
        return None
    low, high = ops.int_range(kind)
    return int(value) if low <= int(value) <= high else None


def _gradient(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    [x] = call.args
    sinfo = tensor_sinfo(x)
    if sinfo is None or not (is_differentiable(x) and is_differentiable(var)):
        return no_gradient(var, call, gradient, builder)
    return [astype(gradient, sinfo.dtype)]


@register(
    "relax.astype",
    sharding=same_axes,
    layout=same_layout,
    precision_policy=1,
    pure=True,
    legalize=_legalize_astype,
    gradient=_gradient,
)
def astype(x: TensorStructInfo, dtype: DataType) -> TensorStructInfo:
    """x with its elements converted to `dtype`: toward zero, numbers to Bool by being other than 0.

    Shapes:
        x       any
        result  as x, in `dtype`
    Errors:
        StructInfoError: x is not a tensor.
    """
    return with_dtype(x, dtype)


def _legalize_wrap_param(builder: BlockBuilder, call: Call) -> Expr:
    [data], dtype = call.args, call.attrs["dtype"]
    return data if _has_datatype(builder, data, dtype) else astype(data, dtype)


def _memory_of_wrap_param(call: Call) -> Memory:
    sinfo, dtype = tensor_sinfo(call.args[0]), call.attrs["dtype"]
    if sinfo is None or sinfo.dtype.is_void or sinfo.dtype == dtype:
        return Memory.SAME
    return Memory.NEW


def _has_datatype(builder: BlockBuilder, x: Expr, dtype: object) -> bool:
    sinfo = builder.struct_info_of(x)
    return isinstance(sinfo, TensorStructInfo) and sinfo.dtype == dtype


@register(
    "relax.wrap_param",
    layout=same_layout,
    pure=True,
    memory=_memory_of_wrap_param,
    legalize=_legalize_wrap_param,
    gradient=_gradient,
)
def wrap_param(data: TensorStructInfo, dtype: DataType = FLOAT32) -> TensorStructInfo:
    """A parameter of a model, converted to `dtype` as by astype; itself if it has the datatype.

    Shapes:
        data    any
        result  as data, in `dtype`
    Errors:
        StructInfoError: data is not a tensor.
    """
    return with_dtype(data, dtype)
