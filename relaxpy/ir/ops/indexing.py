"""Operators that select or gather elements of a tensor by their indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import INT64, Array
from relaxpy.ir.ops.definition import axis_rules, rules
from relaxpy.ir.ops.definition.gradients import of_operands, require_rank, require_shape, shape_like
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape, tensor_of
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.te.topi.transform import slice_bounds
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


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
        last = size - ops.const(1, size.dtype)
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
                    is_valid = R.expand_dims(is_valid, [*range(rank, rank + later)])
                gradient = R.where(is_valid, gradient, R.zeros_like(gradient))
            positions = inside
    return [R.grad.take_backward(gradient, x, positions, axis=axis), R.grad.no_grad(indices)]


@register(
    "relax.take",
    layout=axis_rules.taken_layout,
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
    shape = literal_shape(x)
    index_shape = () if isinstance(indices, rx.PrimStructInfo) else literal_shape(indices)
    if shape is None or index_shape is None:
        return rules.tensor(None, x.dtype, x.vdevice, x.ndim + rank - 1)
    return rules.tensor(
        (*shape[:first_axis], *index_shape, *shape[first_axis + 1 :]), x.dtype, x.vdevice
    )


def _values(sinfo: rx.StructInfo, name: str) -> list[PrimExpr | None] | None:
    """The known values of a tuple of int64 scalars; None for an unknown one."""
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


def _slice_layout(call: rx.Call, layout: str) -> axis_rules.InferredLayouts | None:
    """The slice along the same axes, where the layout has them."""
    axes = _values(cast("rx.StructInfo", call.args[1].struct_info), "axes")
    if axes is None or not all(isinstance(axis, IntImm) for axis in axes):
        return None
    if layout == axis_rules.initial_layout(len(layout)):
        return axis_rules.InferredLayouts((layout,), layout, call.attrs)
    moved = axis_rules.moved_axes([cast("IntImm", axis).value for axis in axes], layout)
    new = rx.Tuple(tuple(rx.PrimValue(ops.const(axis, INT64)) for axis in moved))
    return axis_rules.InferredLayouts((layout,), layout, call.attrs, {1: new})


@register(
    "relax.strided_slice",
    precision_policy=1,
    layout=axis_rules.following(_slice_layout),
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


def _gradient_dynamic_strided_slice(gradient: Any, x: Any, *bounds: Any) -> list[rx.Expr]:
    """Scatter the gradient to the positions of the slice; 0 elsewhere."""
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
    legalize_alone=rules.late("relaxpy.ir.ops.found_sizes:dynamic_strided_slice"),
    gradient=of_operands(_gradient_dynamic_strided_slice),
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
        shape = literal_shape(sinfo)
        if shape is not None and x.ndim >= 0 and rules.differ(shape[0], ops.const(x.ndim, INT64)):
            raise rules.refuse(
                f"{name} has one element for each axis of x {x}, found {sinfo}", sinfo
            )
    return rules.tensor(None, x.dtype, x.vdevice, x.ndim)


def require_indices(sinfo: rx.TensorStructInfo, name: str = "indices") -> None:
    """Refuse a tensor that is known not to contain integers.

    Errors:
        StructInfoTypeError: it does not.
    """
    rules.require_integer(sinfo.dtype, name, sinfo)


def require_same_rank(first: rx.TensorStructInfo, second: rx.TensorStructInfo, names: str) -> None:
    """Refuse two tensors whose ranks are known to differ.

    Errors:
        StructInfoError: they do.
    """
    if first.ndim >= 0 and second.ndim >= 0 and first.ndim != second.ndim:
        raise rules.refuse(f"{names} have one rank, found {first} and {second}", second)


def _gathered(
    x: rx.TensorStructInfo, shape: Sequence[PrimExpr] | None, ndim: int
) -> rx.TensorStructInfo:
    return rules.tensor(shape, x.dtype, x.vdevice, ndim)


def _gather_elements(data: Tensor, indices: Tensor, axis: int) -> Tensor:
    return topi.gather(data, axis, indices)


def _gradient_gather_elements(g: Any, data: Any, indices: Any, axis: Any) -> list[rx.Expr]:
    grad = R.scatter_elements(R.zeros_like(data), indices, g, axis=axis, reduction="add")
    return [grad, R.grad.no_grad(indices)]


@register(
    "relax.gather_elements",
    layout=axis_rules.along("axis", together=True),
    pure=True,
    legalize=rules.by_te(_gather_elements, "gather"),
    gradient=of_operands(_gradient_gather_elements),
)
def gather_elements(
    data: rx.TensorStructInfo, indices: rx.TensorStructInfo, axis: int = 0
) -> rx.TensorStructInfo:
    """The elements of data at `indices` along an axis, each in its own line along that axis.

    In two dimensions and along axis 0, element [i, j] is data[indices[i, j], j].

    Shapes:
        data     any of rank at least 1
        indices  integers, of the rank of data
        result   the shape of indices; unknown if the rank of data is
    Errors:
        StructInfoError: indices are known not to be integers, the ranks differ, or the axis is out
            of range.
    """
    require_indices(indices)
    require_same_rank(data, indices, "data and indices")
    ndim = max(data.ndim, indices.ndim)
    if ndim >= 0:
        rules.normal_axis(axis, ndim)
    if data.ndim < 0:
        return rules.tensor(None, data.dtype, data.vdevice)
    return rules.tensor(indices.shape, data.dtype, data.vdevice, ndim)


def position_count(indices: rx.TensorStructInfo) -> int | None:
    """The number of positions along the last axis of indices, if it is a literal."""
    shape = literal_shape(indices)
    if not shape or not isinstance(shape[-1], IntImm):
        return None
    return shape[-1].value


def legalize_at_positions(name: str) -> Any:
    """Legalise to a kernel that takes the axis of positions first."""

    def legalize(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        data, indices, *updates = call.args
        sinfo = tensor_of(builder.struct_info_of(indices))
        if position_count(sinfo) is None:
            return call
        order = (sinfo.ndim - 1, *range(sinfo.ndim - 1))

        def kernel(data: Tensor, indices: Tensor, *values: Any, **attrs: Any) -> Tensor:
            positions_first = indices if len(order) == 1 else topi.transpose(indices, order)
            function = topi.scatter_nd if updates else topi.gather_nd
            return function(data, positions_first, *values, **attrs)

        mode = {"mode": call.attrs["reduction"]} if updates else dict(call.attrs)
        return builder.call_te(
            kernel, data, indices, *updates, primfunc_name_hint=name, **cast("Any", mode)
        )

    return legalize


def _gradient_gather_nd(g: Any, data: Any, indices: Any, batch_dims: int) -> list[rx.Expr]:
    """The gradient added at the positions; leading batch axes are positions as well."""
    positions = indices
    if batch_dims:
        shape = require_shape(indices, "gather_nd")
        columns = []
        for axis in range(batch_dims):
            positions_along = R.reshape(
                R.arange(rx.PrimValue(shape[axis])),
                rx.ShapeExpr(
                    tuple(n if k == axis else ops.const(1, INT64) for k, n in enumerate(shape))
                ),
            )
            column_shape = rx.ShapeExpr((*shape[:-1], ops.const(1, INT64)))
            columns.append(R.broadcast_to(positions_along, column_shape))
        columns.append(R.astype(indices, "int64"))
        positions = R.concat(columns, -1)
    return [R.scatter_nd(R.zeros_like(data), positions, g, "add"), R.grad.no_grad(indices)]


@register(
    "relax.gather_nd",
    pure=True,
    legalize=legalize_at_positions("te_gather_nd"),
    gradient=of_operands(_gradient_gather_nd),
)
def gather_nd(
    data: rx.TensorStructInfo, indices: rx.TensorStructInfo, batch_dims: int = 0
) -> rx.TensorStructInfo:
    """The slices of data at the positions that lie along the last axis of indices.

    The first `batch_dims` axes of both belong together; positions count for the axes after them.

    Shapes:
        data     any
        indices  integers, (batch..., ..., k)
        result   the shape of indices without its last axis, then the axes of data after the first
                 batch_dims + k
    Errors:
        StructInfoError: indices are known not to be integers or have rank 0, `batch_dims` is out of
            range, or there are more positions than axes.
    """
    require_indices(indices)
    if indices.ndim == 0:
        raise rules.refuse(f"indices has rank at least 1, found {indices}", indices)
    for sinfo, name, most in ((data, "data", data.ndim), (indices, "indices", indices.ndim - 1)):
        if sinfo.ndim >= 0 and not 0 <= batch_dims <= most:
            raise rules.refuse(
                f"batch_dims is from 0 to {most} for {name} {sinfo}, found {batch_dims}"
            )
    count = position_count(indices)
    if data.ndim < 0 or indices.ndim < 0 or count is None:
        return _gathered(data, None, -1)
    if batch_dims + count > data.ndim:
        raise rules.refuse(
            f"indices {indices} hold {count} positions, but data {data} has "
            f"{data.ndim - batch_dims} axes after {batch_dims} batch axes",
            indices,
        )
    ndim = indices.ndim - 1 + data.ndim - batch_dims - count
    shape, index_shape = literal_shape(data), literal_shape(indices)
    if shape is None or index_shape is None:
        return _gathered(data, None, ndim)
    return _gathered(data, (*index_shape[:-1], *shape[batch_dims + count :]), ndim)


def index_fields(indices: rx.TupleStructInfo) -> list[rx.TensorStructInfo]:
    """The struct infos of a tuple of integer tensors, one at least."""
    out = []
    for k, sinfo in enumerate(indices.fields):
        if not isinstance(sinfo, rx.TensorStructInfo):
            raise rules.refuse_type(
                f"indices holds tensors, found {sinfo} as number {k + 1}", sinfo
            )
        require_indices(sinfo, f"number {k + 1} of indices")
        out.append(sinfo)
    if not out:
        raise rules.refuse("indices holds at least one tensor, found none", indices)
    return out


def fields_of(operand: rx.Expr, builder: BlockBuilder) -> list[rx.Expr]:
    """The fields of an operand that is a tuple."""
    if isinstance(operand, rx.Tuple):
        return list(operand.fields)
    sinfo = cast("rx.TupleStructInfo", builder.struct_info_of(operand))
    return [rx.TupleGetItem(operand, k) for k in range(len(sinfo.fields))]


def _stacked_indices(indices: Sequence[rx.Expr], shape: rx.Expr) -> rx.Expr:
    """Broadcast indices to a shape and stack them as positions along a new axis."""
    columns = [R.broadcast_to(R.astype(index, "int64"), shape) for index in indices]
    return cast("rx.Expr", R.stack(columns, -1))


def _joint_shape(indices: Sequence[rx.Expr]) -> rx.Expr:
    """The shape that indices broadcast to."""
    total = indices[0]
    for index in indices[1:]:
        total = R.add(R.astype(total, "int64"), R.astype(index, "int64"))
    return shape_like(total)


def _gradient_index_tensor(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    data, operand = call.args
    indices = fields_of(operand, builder)
    positions = _stacked_indices(indices, _joint_shape(indices))
    grad = R.scatter_nd(R.zeros_like(data), positions, gradient, "add")
    return [grad, rx.Tuple(tuple(R.grad.no_grad(index) for index in indices))]


@register(
    "relax.index_tensor",
    pure=True,
    legalize=rules.by_te("index_tensor"),
    gradient=_gradient_index_tensor,
)
def index_tensor(data: rx.TensorStructInfo, indices: rx.TupleStructInfo) -> rx.TensorStructInfo:
    """data[indices[0], indices[1], ...] as NumPy's; negative indices count from the end.

    Shapes:
        data     any
        indices  integer tensors that broadcast, one for each of the leading axes
        result   what they broadcast to, then the remaining axes of data
    Errors:
        StructInfoError: there is no index, one is known not to hold integers, there are more than
            axes, or known sizes do not broadcast.
    """
    fields = index_fields(indices)
    if 0 <= data.ndim < len(fields):
        raise rules.refuse(
            f"data {data} has {data.ndim} axes, found {len(fields)} indices", indices
        )
    names = [f"indices[{k}]" for k in range(len(fields))]
    shape, ndim = rules.broadcast(fields, names)
    if data.ndim < 0 or ndim < 0:
        return _gathered(data, None, -1)
    rank = ndim + data.ndim - len(fields)
    sizes = literal_shape(data)
    if not isinstance(shape, (tuple, rx.ShapeExpr)) or sizes is None:
        return _gathered(data, None, rank)
    values = shape.values if isinstance(shape, rx.ShapeExpr) else shape
    return _gathered(data, (*values, *sizes[len(fields) :]), rank)
