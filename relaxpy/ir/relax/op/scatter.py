"""Operators that gather elements at indices in tensors, or store elements there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax.nodes import (
    Call,
    Expr,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relaxpy.ir.relax.op.definition.gradients import (
    is_differentiable,
    masked,
    require_rank,
    require_shape,
    shape_like,
)
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.relax.op.definition.rules import (
    Sizes,
    broadcast,
    by_te,
    differ,
    literal_shape,
    normal_axis,
    refuse,
    refuse_type,
    require_integer,
    shape_text,
    shown,
    te_kernel,
    tensor,
)
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Reduction: TypeAlias = Literal["update", "add", "mul", "mean", "max", "min"]


def _require_indices(sinfo: TensorStructInfo, name: str = "indices") -> None:
    require_integer(sinfo.dtype, name, sinfo)


def _require_same_rank(first: TensorStructInfo, second: TensorStructInfo, names: str) -> None:
    if first.ndim >= 0 and second.ndim >= 0 and first.ndim != second.ndim:
        raise refuse(f"{names} have one rank, found {first} and {second}", second)


def _known(x: TensorStructInfo, shape: Sequence[PrimExpr] | None, ndim: int) -> TensorStructInfo:
    return tensor(shape, x.dtype, x.vdevice, ndim)


def _wrapped(indices: Expr, size: PrimExpr) -> Expr:
    """Indices of which negative ones count from the end of an axis, all counted from its start."""
    places = R.astype(indices, "int64")
    return cast("Expr", R.where(R.less(places, 0), places + PrimValue(size), places))


def _gather_elements(data: Tensor, indices: Tensor, axis: int) -> Tensor:
    return topi.gather(data, axis, indices)


def _gradient_gather_elements(
    var: Var, call: Call, gradient: Expr, builder: BlockBuilder
) -> list[Expr]:
    data, indices = call.args
    zeros, axis = R.zeros_like(data), call.attrs["axis"]
    grad = R.scatter_elements(zeros, indices, gradient, axis=axis, reduction="add")
    return [grad, R.grad.no_grad(indices)]


@register(
    "relax.gather_elements",
    pure=True,
    legalize=by_te(_gather_elements, "gather_elements"),
    gradient=_gradient_gather_elements,
)
def gather_elements(
    data: TensorStructInfo, indices: TensorStructInfo, axis: int = 0
) -> TensorStructInfo:
    """The elements of data at `indices` along an axis, each in its own line along that axis.

    In two dimensions and along axis 0, element [i, j] is data[indices[i, j], j].

    Shapes:
        data     any of rank 1 at least
        indices  integers, of the rank of data
        result   the shape of indices
    Errors:
        StructInfoError: indices are known not to be integers, the ranks differ, or the axis is out
            of range.
    """
    _require_indices(indices)
    _require_same_rank(data, indices, "data and indices")
    ndim = max(data.ndim, indices.ndim)
    if ndim >= 0:
        normal_axis(axis, ndim)
    return _known(data, literal_shape(indices), ndim)


def _literal_count(indices: TensorStructInfo) -> int | None:
    """How many positions the last axis of indices holds, if that is a literal."""
    shape = literal_shape(indices)
    if not shape or not isinstance(shape[-1], IntImm):
        return None
    return shape[-1].value


def _legalize_nd(name: str) -> Any:
    """The kernel takes the axis of positions first."""

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        data, indices, *updates = call.args
        sinfo = builder.struct_info_of(indices)
        assert isinstance(sinfo, TensorStructInfo)
        if _literal_count(sinfo) is None:
            return call
        order = (sinfo.ndim - 1, *range(sinfo.ndim - 1))

        def kernel(data: Tensor, indices: Tensor, *rest: Any, **attrs: Any) -> Tensor:
            turned = indices if len(order) == 1 else topi.transpose(indices, order)
            function = topi.gather_nd if name == "gather_nd" else topi.scatter_nd
            return function(data, turned, *rest, **attrs)

        mode = {"mode": call.attrs["reduction"]} if updates else dict(call.attrs)
        return builder.call_te(
            kernel, data, indices, *updates, primfunc_name_hint=name, **cast("Any", mode)
        )

    return legalize


def _gradient_gather_nd(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    """The gradient added at the positions; leading batch axes are positions as well."""
    data, indices = call.args
    zeros = R.zeros_like(data)
    batch = cast("int", call.attrs["batch_dims"])
    positions = indices
    if batch:
        shape = require_shape(indices, "gather_nd")
        columns = []
        for axis in range(batch):
            line = R.reshape(
                R.arange(PrimValue(shape[axis])),
                ShapeExpr(
                    tuple(n if k == axis else ops.const(1, INT64) for k, n in enumerate(shape))
                ),
            )
            whole = ShapeExpr((*shape[:-1], ops.const(1, INT64)))
            columns.append(R.broadcast_to(line, whole))
        columns.append(R.astype(indices, "int64"))
        positions = R.concat(columns, -1)
    return [R.scatter_nd(zeros, positions, gradient, "add"), R.grad.no_grad(indices)]


@register(
    "relax.gather_nd",
    pure=True,
    legalize=_legalize_nd("gather_nd"),
    gradient=_gradient_gather_nd,
)
def gather_nd(
    data: TensorStructInfo, indices: TensorStructInfo, batch_dims: int = 0
) -> TensorStructInfo:
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
    _require_indices(indices)
    if indices.ndim == 0:
        raise refuse(f"indices has rank 1 at least, found {indices}", indices)
    for sinfo, name, most in ((data, "data", data.ndim), (indices, "indices", indices.ndim - 1)):
        if sinfo.ndim >= 0 and not 0 <= batch_dims <= most:
            raise refuse(f"batch_dims is from 0 to {most} for {name} {sinfo}, found {batch_dims}")
    count = _literal_count(indices)
    if data.ndim < 0 or indices.ndim < 0 or count is None:
        return _known(data, None, -1)
    if batch_dims + count > data.ndim:
        raise refuse(
            f"indices {indices} hold {count} positions, but data {data} has "
            f"{data.ndim - batch_dims} axes after {batch_dims} batch axes",
            indices,
        )
    ndim = indices.ndim - 1 + data.ndim - batch_dims - count
    shape, places = literal_shape(data), literal_shape(indices)
    if shape is None or places is None:
        return _known(data, None, ndim)
    return _known(data, (*places[:-1], *shape[batch_dims + count :]), ndim)


def _fields(tensors: TupleStructInfo, name: str) -> list[TensorStructInfo]:
    """The struct infos of a tuple of integer tensors, one at least."""
    out = []
    for k, sinfo in enumerate(tensors.fields):
        if not isinstance(sinfo, TensorStructInfo):
            raise refuse_type(f"{name} holds tensors, found {sinfo} as number {k + 1}", sinfo)
        _require_indices(sinfo, f"number {k + 1} of {name}")
        out.append(sinfo)
    if not out:
        raise refuse(f"{name} holds one tensor at least, found none", tensors)
    return out


def _operand_fields(operand: Expr, builder: BlockBuilder) -> list[Expr]:
    if isinstance(operand, Tuple):
        return list(operand.fields)
    sinfo = cast("TupleStructInfo", builder.struct_info_of(operand))
    return [TupleGetItem(operand, k) for k in range(len(sinfo.fields))]


def _stacked_indices(indices: Sequence[Expr], shape: Expr) -> Expr:
    """Indices that broadcast to a shape, as positions along one more axis."""
    columns = [R.broadcast_to(R.astype(index, "int64"), shape) for index in indices]
    return cast("Expr", R.stack(columns, -1))


def _joint_shape(indices: Sequence[Expr]) -> Expr:
    """The shape that indices broadcast to."""
    total = indices[0]
    for index in indices[1:]:
        total = R.add(R.astype(total, "int64"), R.astype(index, "int64"))
    return shape_like(total)


def _gradient_index_tensor(
    var: Var, call: Call, gradient: Expr, builder: BlockBuilder
) -> list[Expr]:
    data, operand = call.args
    indices = _operand_fields(operand, builder)
    positions = _stacked_indices(indices, _joint_shape(indices))
    grad = R.scatter_nd(R.zeros_like(data), positions, gradient, "add")
    return [grad, Tuple(tuple(R.grad.no_grad(index) for index in indices))]


@register(
    "relax.index_tensor",
    pure=True,
    legalize=by_te(topi.index_tensor),
    gradient=_gradient_index_tensor,
)
def index_tensor(data: TensorStructInfo, indices: TupleStructInfo) -> TensorStructInfo:
    """data[indices[0], indices[1], ...] as NumPy's; negative indices count from the end.

    Shapes:
        data     any
        indices  integer tensors that broadcast, one for each of the leading axes
        result   what they broadcast to, then the remaining axes of data
    Errors:
        StructInfoError: there is no index, one is known not to hold integers, there are more than
            axes, or known sizes do not broadcast.
    """
    fields = _fields(indices, "indices")
    if 0 <= data.ndim < len(fields):
        raise refuse(f"data {data} has {data.ndim} axes, found {len(fields)} indices", indices)
    names = [f"indices[{k}]" for k in range(len(fields))]
    shape, ndim = broadcast(fields, names)
    if data.ndim < 0 or ndim < 0:
        return _known(data, None, -1)
    whole = ndim + data.ndim - len(fields)
    sizes = literal_shape(data)
    if not isinstance(shape, (tuple, ShapeExpr)) or sizes is None:
        return _known(data, None, whole)
    values = shape.values if isinstance(shape, ShapeExpr) else shape
    return _known(data, (*values, *sizes[len(fields) :]), whole)


def _require_update(data: TensorStructInfo, updates: TensorStructInfo, name: str) -> None:
    if data.dtype != updates.dtype and not (data.dtype.is_void or updates.dtype.is_void):
        raise refuse_type(
            f"data and {name} have one datatype, found {data.dtype} and {updates.dtype}", updates
        )


def _unequal(first: Sizes, second: Sizes) -> int | None:
    """The first dimension in which two shapes of one rank provably differ."""
    pairs = zip(first, second, strict=True)
    return next((axis for axis, (a, b) in enumerate(pairs) if differ(a, b)), None)


def _gradient_scatter(
    call: Call, var: Var, gradient: Expr, updates: Expr, scatter: Any, gather: Any
) -> list[Expr]:
    """The gradients of data and of updates, from functions that scatter and gather at the indices.

    With "update", the last of several updates of an element should get its gradient, and all do.
    """
    data = call.args[0]
    match call.attrs["reduction"]:
        case "update":
            return [scatter(gradient, R.zeros_like(updates), "update"), gather(gradient)]
        case "add":
            return [gradient, gather(gradient)]
        case "mul":
            scaled = scatter(gradient, updates, "mul")
            return [scaled, gather(gradient * var) / updates]
        case "mean":
            count = scatter(R.ones_like(data), R.ones_like(updates), "add")
            share = R.divide(gradient, count)
            return [share, gather(share)]
        case _:
            return [
                masked(gradient, R.equal(data, var)),
                masked(gather(gradient), R.equal(updates, gather(var))),
            ]


def _gradient_scatter_elements(
    var: Var, call: Call, gradient: Expr, builder: BlockBuilder
) -> list[Expr]:
    data, indices, updates = call.args
    axis = normal_axis(cast("int", call.attrs["axis"]), require_rank(data, "scatter_elements"))
    places = _wrapped(indices, require_shape(data, "scatter_elements")[axis])

    def scatter(x: Expr, y: Expr, reduction: str) -> Any:
        return scatter_elements(x, places, y, axis=axis, reduction=reduction)

    def gather(x: Expr) -> Any:
        return gather_elements(x, places, axis=axis)

    grad, update_grad = _gradient_scatter(call, var, gradient, updates, scatter, gather)
    return [grad, R.grad.no_grad(indices), update_grad]


@register(
    "relax.scatter_elements",
    pure=True,
    legalize=by_te(topi.scatter_elements),
    gradient=_gradient_scatter_elements,
)
def scatter_elements(
    data: TensorStructInfo,
    indices: TensorStructInfo,
    updates: TensorStructInfo,
    axis: int = 0,
    reduction: Reduction = "update",
) -> TensorStructInfo:
    """A copy of data with updates stored at `indices` along an axis, each in its own line.

    In two dimensions and along axis 0, updates[i, j] is stored at [indices[i, j], j]; negative
    indices count from the end. "update" keeps the last of several updates; "add", "mul", "max" and
    "min" combine them with the element, and "mean" takes the mean of all.

    Shapes:
        data     any of rank 1 at least
        indices  integers, of the rank of data
        updates  of the shape of indices and the datatype of data
        result   as data
    Errors:
        StructInfoError: indices are known not to be integers, ranks or datatypes differ, the shapes
            of indices and updates provably differ, or the axis is out of range.
    """
    _require_indices(indices)
    _require_update(data, updates, "updates")
    _require_same_rank(data, indices, "data and indices")
    _require_same_rank(data, updates, "data and updates")
    if data.ndim >= 0:
        normal_axis(axis, data.ndim)
    _require_same_rank(indices, updates, "indices and updates")
    places, values = literal_shape(indices), literal_shape(updates)
    if places is not None and values is not None:
        axis_at_fault = _unequal(places, values)
        if axis_at_fault is not None:
            raise refuse(
                f"indices {shape_text(places)} and updates {shape_text(values)} have one shape, "
                f"dimension {axis_at_fault} differs",
                updates,
            )
    return data


def _gradient_scatter_nd(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    data, indices, updates = call.args
    shape, places = require_shape(data, "scatter_nd"), require_shape(indices, "scatter_nd")
    count = cast("IntImm", places[-1]).value
    limits = R.concat([R.zeros((1,), "int64") + PrimValue(n) for n in shape[:count]], 0)
    positions = R.astype(indices, "int64")
    positions = R.where(R.less(positions, 0), positions + limits, positions)

    def scatter(x: Expr, y: Expr, reduction: str) -> Any:
        return scatter_nd(x, positions, y, reduction)

    def gather(x: Expr) -> Any:
        return gather_nd(x, positions)

    grad, update_grad = _gradient_scatter(call, var, gradient, updates, scatter, gather)
    return [grad, R.grad.no_grad(indices), update_grad]


@register(
    "relax.scatter_nd",
    pure=True,
    legalize=_legalize_nd("scatter_nd"),
    gradient=_gradient_scatter_nd,
)
def scatter_nd(
    data: TensorStructInfo,
    indices: TensorStructInfo,
    updates: TensorStructInfo,
    reduction: Reduction = "update",
) -> TensorStructInfo:
    """A copy of data with slices of updates stored at the positions along the last axis of indices.

    Negative positions count from the end; the reductions are those of `scatter_elements`.

    Shapes:
        data     any
        indices  integers, (..., k)
        updates  (..., then the axes of data after the first k), in the datatype of data
        result   as data
    Errors:
        StructInfoError: indices are known not to be integers or have rank 0, there are more
            positions than axes, datatypes differ, or the shape of updates provably is another one.
    """
    _require_indices(indices)
    _require_update(data, updates, "updates")
    if indices.ndim == 0:
        raise refuse(f"indices has rank 1 at least, found {indices}", indices)
    count = _literal_count(indices)
    if count is None or data.ndim < 0:
        return data
    if count > data.ndim:
        raise refuse(
            f"indices {indices} hold {count} positions, but data {data} has {data.ndim} axes",
            indices,
        )
    ndim = indices.ndim - 1 + data.ndim - count
    if 0 <= updates.ndim != ndim:
        raise refuse(
            f"updates has rank {ndim} for data {data} and indices {indices}, found {updates}",
            updates,
        )
    shape, places, values = map(literal_shape, (data, indices, updates))
    if shape is None or places is None or values is None:
        return data
    expected = (*places[:-1], *shape[count:])
    axis = _unequal(expected, values)
    if axis is not None:
        raise refuse(
            f"updates has shape {shape_text(expected)} for data {shape_text(shape)} and indices "
            f"{shape_text(places)}, found {shape_text(values)}: dimension {axis} differs",
            updates,
        )
    return data


def _gradient_index_put(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    _, operand, values = call.args
    indices = Tuple(tuple(_operand_fields(operand, builder)))
    taken = R.collapse_sum_to(index_tensor(gradient, indices), shape_like(values))
    if not call.attrs["accumulate"]:
        gradient = index_put(gradient, indices, R.zeros_like(values))
    skipped = Tuple(tuple(R.grad.no_grad(index) for index in indices.fields))
    return [gradient, skipped, taken if is_differentiable(values) else R.grad.no_grad(values)]


@register(
    "relax.index_put",
    pure=True,
    legalize=by_te(topi.index_put),
    gradient=_gradient_index_put,
)
def index_put(
    data: TensorStructInfo,
    indices: TupleStructInfo,
    values: TensorStructInfo,
    accumulate: bool = False,
) -> TensorStructInfo:
    """A copy of data with values at data[indices[0], indices[1], ...]; added with `accumulate`.

    Negative indices count from the end. Of several values for an element, the last one is stored.

    Shapes:
        data     any
        indices  integer tensors that broadcast, one for each of the leading axes
        values   broadcasts to the shape of the indices and the remaining axes of data; in the
                 datatype of data
        result   as data
    Errors:
        StructInfoError: there is no index, one is known not to hold integers, there are more than
            axes, datatypes differ, or known sizes do not broadcast.
    """
    fields = _fields(indices, "indices")
    _require_update(data, values, "values")
    if 0 <= data.ndim < len(fields):
        raise refuse(f"data {data} has {data.ndim} axes, found {len(fields)} indices", indices)
    shape, ndim = broadcast(fields, [f"indices[{k}]" for k in range(len(fields))])
    sizes, given = literal_shape(data), literal_shape(values)
    known = shape.values if isinstance(shape, ShapeExpr) else shape
    if data.ndim >= 0 and ndim >= 0 and values.ndim > ndim + data.ndim - len(fields):
        raise refuse(f"values {values} have more axes than data[indices] of data {data}", values)
    if sizes is None or given is None or not isinstance(known, tuple):
        return data
    whole = (*known, *sizes[len(fields) :])
    for k, (n, wanted) in enumerate(zip(given[::-1], whole[::-1], strict=False), start=1):
        if not (isinstance(n, IntImm) and n.value == 1) and differ(n, wanted):
            raise refuse(
                f"values {shape_text(given)} do not broadcast to {shape_text(whole)}: dimension "
                f"{-k} is {shown(n)}, not {shown(wanted)}",
                values,
            )
    return data


def _gradient_slice_scatter(
    var: Var, call: Call, gradient: Expr, builder: BlockBuilder
) -> list[Expr]:
    _, src, start, end, step = call.args
    axis = cast("int", call.attrs["axis"])
    rest = slice_scatter(gradient, R.zeros_like(src), start, end, step, axis=axis)
    bounds = ([v.value if isinstance(v, PrimValue) else v] for v in (start, end, step))
    taken = R.strided_slice(gradient, [axis], *bounds)
    return [rest, taken, *map(R.grad.no_grad, (start, end, step))]


def _legalize_slice_scatter(builder: BlockBuilder, call: Call) -> Expr:
    axis = call.attrs["axis"]
    return te_kernel(builder, topi.slice_scatter, "slice_scatter", *call.args, axis=axis)


@register(
    "relax.slice_scatter",
    pure=True,
    legalize=_legalize_slice_scatter,
    gradient=_gradient_slice_scatter,
)
def slice_scatter(
    input_tensor: TensorStructInfo,
    src: TensorStructInfo,
    start: PrimStructInfo,
    end: PrimStructInfo,
    step: PrimStructInfo = 1,  # type: ignore[assignment]
    axis: int = 0,
) -> TensorStructInfo:
    """A copy of a tensor with `src` at `start:end:step` along an axis.

    Shapes:
        input_tensor      any of rank 1 at least
        src               as input_tensor, but along the axis ceil((end - start) / step)
        start, end, step  integers, 0 <= start <= end <= the size of the axis, 1 <= step
        result            as input_tensor
    Errors:
        StructInfoError: ranks or datatypes differ, a bound is not an integer, the step is known not
            to be positive or the bounds not to be in order, known sizes differ, or the axis is out
            of range.
    """
    _require_same_rank(input_tensor, src, "input_tensor and src")
    _require_update(input_tensor, src, "src")
    for sinfo, name in ((start, "start"), (end, "end"), (step, "step")):
        if not sinfo.dtype.is_int or sinfo.dtype.is_bool:
            raise refuse_type(f"{name} is an integer, found {sinfo}", sinfo)
    first, last, by = start.value, end.value, step.value
    if isinstance(by, IntImm) and by.value < 1:
        raise refuse(f"step is positive, found {by.value}", step)
    if isinstance(first, IntImm) and first.value < 0:
        raise refuse(f"start is 0 at least, found {first.value}", start)
    if isinstance(first, IntImm) and isinstance(last, IntImm) and last.value < first.value:
        raise refuse(f"end is not before start {first.value}, found {last.value}", end)
    place = normal_axis(axis, input_tensor.ndim) if input_tensor.ndim >= 0 else None
    whole, part = literal_shape(input_tensor), literal_shape(src)
    if whole is None or part is None or place is None:
        return input_tensor
    expected: list[PrimExpr | None] = list(whole)
    expected[place] = None
    if isinstance(first, PrimExpr) and isinstance(last, PrimExpr) and isinstance(by, PrimExpr):
        a, b, c = (ops.cast_to(v, INT64) for v in (first, last, by))
        expected[place] = ops.floordiv(ops.sub(ops.add(b, ops.sub(c, ops.const(1, INT64))), a), c)
        if isinstance(last, IntImm) and isinstance(whole[place], IntImm):
            size = cast("IntImm", whole[place]).value
            if last.value > size:
                raise refuse(
                    f"end is at most {size}, the size of axis {place}, found {last.value}", end
                )
    for k, (n, wanted) in enumerate(zip(part, expected, strict=True)):
        if wanted is not None and differ(n, wanted):
            raise refuse(
                f"dimension {k} of src {shape_text(part)} is {shown(n)}, not {shown(wanted)}, for "
                f"input_tensor {shape_text(whole)}",
                src,
            )
    return input_tensor


def masked_fill(x: Expr, mask: Expr, value: object) -> Expr:
    """`value` where the mask is true, else x: no operator, but a call of `where`.

    Shapes:
        x       any
        mask    Booleans that broadcast with x
        result  what they broadcast to
    """
    return cast("Expr", R.where(mask, R.full_like(x, value), x))
