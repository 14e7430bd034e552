"""Operators that select elements of a tensor by their indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition import layouts, rules
from relaxpy.ir.relax.op.definition.gradients import require_rank, require_shape
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.te.topi.transform import slice_bounds
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Array = np.ndarray[Any, Any]


def _gradient_take(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """Add the gradients of the uses of each element; indices are brought into the axis first."""
    x, indices = call.args
    axis = cast("int | None", call.attrs["axis"])
    positions: rx.Expr = indices
    if isinstance(indices.struct_info, rx.PrimStructInfo):
        positions = R.zeros((), indices.struct_info.dtype) + indices
    if call.attrs["mode"] != "fast":
        shape = require_shape(x, "take")
        size = shape[axis or 0]
        last = ops.sub(size, ops.const(1, size.dtype))
        positions = R.astype(positions, "int64")
        if call.attrs["mode"] == "wrap":
            positions = R.floor_mod(positions, rx.PrimValue(size))
        else:
            inside = R.clip(positions, 0, last)
            if call.attrs["mode"] == "nan":
                is_valid = builder.emit(R.equal(inside, positions))
                later = len(shape) - 1 - rules.normal_axis(axis or 0, len(shape))
                if later:
                    rank = require_rank(is_valid, "take")
                    is_valid = R.expand_dims(is_valid, range(rank, rank + later))
                gradient = R.where(is_valid, gradient, R.zeros_like(gradient))
            positions = inside
    return [R.grad.take_backward(gradient, x, positions, axis=axis), R.grad.no_grad(indices)]


@register(
    "relax.take",
    layout=layouts.taken_layout,
    pure=True,
    legalize=rules.by_te("take"),
    gradient=_gradient_take,
)
def take(
    x: rx.TensorStructInfo,
    indices: rx.TensorStructInfo | rx.PrimStructInfo,
    axis: int | None = None,
    mode: Literal["fast", "wrap", "clip", "nan"] = "fast",
) -> rx.TensorStructInfo:
    """The slices of x along an axis at `indices`.

    Indices outside the axis are undefined in mode "fast", brought to its ends in mode "clip", and
    taken modulo its size in mode "wrap". In mode "nan", their elements are NaN.

    Shapes:
        x        any; rank 1 without an axis
        indices  integers of any shape, or a scalar
        result   the shape of `indices` instead of the axis
    Errors:
        StructInfoError: the indices are known not to be integers, the axis is out of range, or
            there is none and x is not known to have rank 1; x holds no floats in mode "nan".
    """
    rules.require_integer(indices.dtype, "indices", indices)
    if mode == "nan":
        rules.require_float(x, "x")
    if axis is None and x.ndim != 1:
        raise rules.refuse(f"without an axis x has rank 1, found {x}", x)
    rank = 0 if isinstance(indices, rx.PrimStructInfo) else indices.ndim
    first_axis = rules.normal_axis(axis or 0, x.ndim) if x.ndim >= 0 else 0
    if x.ndim < 0 or rank < 0:
        return rules.tensor(None, x.dtype, x.vdevice)
    shape = rules.literal_shape(x)
    index_shape = () if isinstance(indices, rx.PrimStructInfo) else rules.literal_shape(indices)
    if shape is None or index_shape is None:
        return rules.tensor(None, x.dtype, x.vdevice, x.ndim + rank - 1)
    return rules.tensor(
        (*shape[:first_axis], *index_shape, *shape[first_axis + 1 :]), x.dtype, x.vdevice
    )


def _values(sinfo: rx.StructInfo, name: str) -> list[PrimExpr | None] | None:
    """The known values of a tuple of int64 scalars; None for an unknown one.

    Errors:
        StructInfoTypeError: a field has another type.
    """
    if not isinstance(sinfo, rx.TupleStructInfo):
        return None
    result: list[PrimExpr | None] = []
    for field in sinfo.fields:
        if not isinstance(field, rx.PrimStructInfo) or field.dtype != "int64":
            raise rules.refuse_type(f"{name} holds int64 scalars, found {field}", sinfo)
        result.append(field.value)
    return result


def _legalize_strided_slice(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    x, axes, begin, end, *strides = call.args
    axis_values = [v.value for v in _values(builder.struct_info_of(axes), "axes") or ()]  # type: ignore[union-attr]
    return rules.te_kernel(
        builder,
        topi.strided_slice,
        "strided_slice",
        x,
        begin,
        end,
        strides[0] if strides else None,
        axis_values,
        assume_inbound=call.attrs["assume_inbound"],
    )


def _gradient_strided_slice(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """Scatter the gradient to the positions of the slice, one axis at a time; 0 elsewhere."""
    x, *operands = call.args
    shape = require_shape(x, "strided_slice")
    axes, begins, ends, *strides = (
        _values(builder.struct_info_of(operand), "strided_slice") or [] for operand in operands
    )
    steps = strides[0] if strides else [ops.const(1, INT64)] * len(axes)
    sizes = list(require_shape(var, "strided_slice"))
    inbound = cast("bool", call.attrs["assume_inbound"])
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        if begin is None or end is None or not isinstance(step, IntImm):
            raise rules.refuse("the gradient of strided_slice needs literal axes and strides", call)
        position = rules.normal_axis(cast("IntImm", axis).value, len(shape))
        first, length = slice_bounds(shape[position], begin, end, step.value, inbound=inbound)
        count = R.arange(rx.PrimValue(length))
        positions = count * step.value + rx.PrimValue(first)
        sizes[position] = shape[position]
        zeros = R.zeros(
            rx.ShapeExpr(tuple(sizes)), cast("rx.TensorStructInfo", x.struct_info).dtype
        )
        gradient = R.grad.take_backward(gradient, zeros, positions, axis=position)
    return [gradient, *map(R.grad.no_grad, operands)]


def _slice_layout(call: rx.Call, layout: str) -> layouts.InferredLayouts | None:
    """The slice along the same axes, where the layout has them."""
    axes = _values(cast("rx.StructInfo", call.args[1].struct_info), "axes")
    if axes is None or not all(isinstance(axis, IntImm) for axis in axes):
        return None
    if layout == layouts.initial_layout(len(layout)):
        return layouts.InferredLayouts((layout,), layout, call.attrs)
    moved = layouts.moved_axes([cast("IntImm", axis).value for axis in axes], layout)
    new = rx.Tuple(tuple(rx.PrimValue(ops.const(axis, INT64)) for axis in moved))
    return layouts.InferredLayouts((layout,), layout, call.attrs, {1: new})


@register(
    "relax.strided_slice",
    precision_policy=1,
    layout=layouts.following(_slice_layout),
    pure=True,
    legalize=_legalize_strided_slice,
    gradient=_gradient_strided_slice,
)
def strided_slice(
    x: rx.TensorStructInfo,
    axes: rx.TupleStructInfo | rx.ObjectStructInfo,
    begin: rx.TupleStructInfo | rx.ObjectStructInfo,
    end: rx.TupleStructInfo | rx.ObjectStructInfo,
    strides: rx.TupleStructInfo | rx.ObjectStructInfo | None = None,
    assume_inbound: bool = False,
) -> rx.TensorStructInfo:
    """`x[begin:end:stride]` along each of the axes, with Python's meaning of all three.

    A bound below 0 counts from the end; a bound outside an axis counts as its end. Under
    `assume_inbound`, symbolic bounds are promised to lie inside, in this order.

    Shapes:
        axes, begin, end, strides  as many int64 scalars each; every stride is 1 by default
        result                     along each axis the number of elements taken, where that is known
    Errors:
        StructInfoError: the numbers of scalars differ, one is not an int64, an axis is out of range
            or occurs twice, or a stride is 0.
    """
    named = {"axes": axes, "begin": begin, "end": end}
    if strides is not None:
        named["strides"] = strides
    values = {name: _values(sinfo, name) for name, sinfo in named.items()}
    counts = {name: len(members) for name, members in values.items() if members is not None}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise rules.refuse(f"axes, begin, end and strides are as many, found {listed}", begin)
    axis_list = [v.value for v in values["axes"] or () if isinstance(v, IntImm)]
    if x.ndim >= 0:
        axis_list = list(rules.normal_axes(axis_list, x.ndim, "axes:"))
    steps = values.get("strides", [None] * len(axis_list))
    for step in steps or ():
        if isinstance(step, IntImm) and step.value == 0:
            raise rules.refuse("strides are other than 0", strides)
    strided = [step.value for step in steps or () if isinstance(step, IntImm)]
    if strides is None:
        strided = [1] * len(axis_list)
    shape = x.get_shape()
    if values["axes"] == [] and shape is None:
        return x
    begins, ends = values["begin"], values["end"]
    if shape is None or begins is None or ends is None or None in (*begins, *ends):
        return rules.tensor(None, x.dtype, x.vdevice, x.ndim)
    if not len(begins) == len(axis_list) == len(strided):
        return rules.tensor(None, x.dtype, x.vdevice, x.ndim)
    sizes = list(shape)
    for axis, first, last, stride in zip(axis_list, begins, ends, strided, strict=True):
        assert first is not None
        assert last is not None
        _, sizes[axis] = slice_bounds(shape[axis], first, last, stride, inbound=assume_inbound)
    return rules.tensor(sizes, x.dtype, x.vdevice)


def _sliced(x: Array, begin: Array, end: Array, strides: Array) -> Array:
    for name, bounds in (("begin", begin), ("end", end), ("strides", strides)):
        if bounds.shape != (x.ndim,):
            raise RuntimeCheckError(
                f"dynamic_strided_slice: {name} has one element for each axis of a tensor of shape "
                f"{x.shape}, found shape {bounds.shape}",
                rule=rules.RULE,
            )
    if not strides.all():
        raise RuntimeCheckError(
            f"dynamic_strided_slice: strides are other than 0, found {strides.tolist()}",
            rule=rules.RULE,
        )
    slices = map(slice, begin.tolist(), end.tolist(), strides.tolist())
    return np.array(x[tuple(slices)])


def _gradient_dynamic_strided_slice(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """Scatter the gradient to the positions of the slice; 0 elsewhere."""
    x, *bounds = call.args
    shape = rx.ShapeExpr(require_shape(x, "dynamic_strided_slice"))
    count = rx.PrimValue(product(shape.values))
    positions = dynamic_strided_slice(R.reshape(R.arange(count), shape), *bounds)
    zeros = R.reshape(R.zeros_like(x), rx.ShapeExpr((product(shape.values),)))
    scattered = R.scatter_elements(zeros, R.flatten(positions), R.flatten(gradient))
    return [R.reshape(scattered, shape), *map(R.grad.no_grad, bounds)]


@register(
    "relax.dynamic_strided_slice",
    pure=True,
    data_dependent=True,
    runtime=_sliced,
    gradient=_gradient_dynamic_strided_slice,
)
def dynamic_strided_slice(
    x: rx.TensorStructInfo,
    begin: rx.TensorStructInfo,
    end: rx.TensorStructInfo,
    strides: rx.TensorStructInfo,
) -> rx.TensorStructInfo:
    """`x[begin:end:strides]` along every axis, with Python's meaning of all three.

    Shapes:
        x                    any
        begin, end, strides  vectors of int64, with one element for each axis
        result               of the rank of x
    Errors:
        StructInfoError: a bound is known to be no vector, of other elements than int64, or of
            another length than the rank of x.
    """
    for name, sinfo in (("begin", begin), ("end", end), ("strides", strides)):
        if sinfo.ndim not in (-1, 1):
            raise rules.refuse(f"{name} is a vector, found {sinfo}", sinfo)
        if sinfo.dtype != INT64 and not sinfo.dtype.is_void:
            raise rules.refuse_type(
                f"{name} holds int64, found {sinfo}", sinfo, hint='convert it: R.astype(x, "int64")'
            )
        shape = rules.literal_shape(sinfo)
        if shape is not None and x.ndim >= 0 and rules.differ(shape[0], ops.const(x.ndim, INT64)):
            raise rules.refuse(
                f"{name} has one element for each axis of x {x}, found {sinfo}", sinfo
            )
    return rules.tensor(None, x.dtype, x.vdevice, x.ndim)
