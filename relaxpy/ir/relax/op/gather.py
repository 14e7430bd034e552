"""Operators that gather elements at indices in tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import require_shape, shape_like
from relaxpy.ir.relax.op.definition.layouts import along
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


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


def _gradient_gather_elements(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    data, indices = call.args
    zeros, axis = R.zeros_like(data), call.attrs["axis"]
    grad = R.scatter_elements(zeros, indices, gradient, axis=axis, reduction="add")
    return [grad, R.grad.no_grad(indices)]


@register(
    "relax.gather_elements",
    layout=along("axis", together=True),
    pure=True,
    legalize=rules.by_te(_gather_elements, "gather"),
    gradient=_gradient_gather_elements,
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
    shape = rules.literal_shape(indices)
    if not shape or not isinstance(shape[-1], IntImm):
        return None
    return shape[-1].value


def legalize_at_positions(name: str) -> Any:
    """Legalise to a kernel that takes the axis of positions first."""

    def legalize(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        data, indices, *updates = call.args
        sinfo = builder.struct_info_of(indices)
        assert isinstance(sinfo, rx.TensorStructInfo)
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


def _gradient_gather_nd(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """The gradient added at the positions; leading batch axes are positions as well."""
    data, indices = call.args
    zeros = R.zeros_like(data)
    batch = cast("int", call.attrs["batch_dims"])
    positions = indices
    if batch:
        shape = require_shape(indices, "gather_nd")
        columns = []
        for axis in range(batch):
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
    return [R.scatter_nd(zeros, positions, gradient, "add"), R.grad.no_grad(indices)]


@register(
    "relax.gather_nd",
    pure=True,
    legalize=legalize_at_positions("te_gather_nd"),
    gradient=_gradient_gather_nd,
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
    shape, index_shape = rules.literal_shape(data), rules.literal_shape(indices)
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
    sizes = rules.literal_shape(data)
    if not isinstance(shape, (tuple, rx.ShapeExpr)) or sizes is None:
        return _gathered(data, None, rank)
    values = shape.values if isinstance(shape, rx.ShapeExpr) else shape
    return _gathered(data, (*values, *sizes[len(fields) :]), rank)
