"""Operators that store elements at indices into copies of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.ops import indexing
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.axis_rules import along
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Reduction: TypeAlias = Literal["update", "add", "mul", "mean", "max", "min"]


def _wrapped(indices: rx.Expr, size: PrimExpr) -> rx.Expr:
    """Convert negative indices, which count from the end of an axis, to non-negative ones."""
    positions = R.astype(indices, "int64")
    return cast("rx.Expr", R.where(R.less(positions, 0), positions + rx.PrimValue(size), positions))


def _unequal(first: rules.Sizes, second: rules.Sizes) -> int | None:
    """The first dimension in which two shapes of one rank provably differ."""
    pairs = zip(first, second, strict=True)
    return next((axis for axis, (a, b) in enumerate(pairs) if rules.differ(a, b)), None)


def _gradient_scatter(
    call: rx.Call, var: rx.Var, gradient: rx.Expr, updates: rx.Expr, scatter: Any, gather: Any
) -> list[rx.Expr]:
    """The gradients of data and updates, from functions that scatter and gather at the indices."""
    data = call.args[0]
    match call.attrs["reduction"]:
        case "update":
            return _gradient_of_last(
                gradient, updates, lambda x, y: scatter(x, y, "update"), gather
            )
        case "add":
            return [gradient, gather(gradient)]
        case "mul":
            return [
                scatter(gradient, updates, "mul"),
                gather(gradient) * _other_factors(data, updates, scatter, gather),
            ]
        case "mean":
            count = scatter(R.ones_like(data), R.ones_like(updates), "add")
            share = R.divide(gradient, count)
            return [share, gather(share)]
        case _:  # equal extrema share the gradient
            dtype = cast("rx.TensorStructInfo", data.struct_info).dtype
            in_data = R.astype(R.equal(data, var), dtype)
            in_updates = R.astype(R.equal(updates, gather(var)), dtype)
            share = gradient / scatter(in_data, in_updates, "add")
            return [share * in_data, gather(share) * in_updates]


def _gradient_of_last(
    gradient: rx.Expr, updates: rx.Expr, scatter: Any, gather: Any
) -> list[rx.Expr]:
    """The gradients of data and of updates of which the last one for an element is stored.

    To find these, the updates are numbered: an element then has the number of its update.
    """
    ones = R.flatten(R.ones_like(updates, "int64"))
    numbers = R.reshape(R.cumsum(ones, 0), gradients.shape_like(updates))
    is_last = R.equal(gather(scatter(R.zeros_like(gradient, "int64"), numbers)), numbers)
    return [scatter(gradient, R.zeros_like(updates)), gradients.masked(gather(gradient), is_last)]


def _other_factors(data: rx.Expr, updates: Any, scatter: Any, gather: Any) -> Any:
    """The product of an element of data and its updates without the update, also if some are 0."""
    is_zero = R.equal(updates, 0)
    nonzero = R.where(is_zero, R.ones_like(updates), updates)
    zeros = R.astype(is_zero, updates.struct_info.dtype)
    is_only_zero = R.equal(gather(scatter(R.zeros_like(data), zeros, "add")), zeros)
    return gradients.masked(gather(scatter(data, nonzero, "mul")) / nonzero, is_only_zero)


def _gradient_scatter_elements(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    data, indices, updates = call.args
    axis = rules.normal_axis(
        cast("int", call.attrs["axis"]), gradients.require_rank(data, "scatter_elements")
    )
    positions = _wrapped(indices, gradients.require_shape(data, "scatter_elements")[axis])

    def scatter(x: rx.Expr, y: rx.Expr, reduction: str) -> Any:
        return scatter_elements(x, positions, y, axis=axis, reduction=reduction)

    def gather(x: rx.Expr) -> Any:
        return indexing.gather_elements(x, positions, axis=axis)

    grad, update_grad = _gradient_scatter(call, var, gradient, updates, scatter, gather)
    return [grad, R.grad.no_grad(indices), update_grad]


def _plain_update(arguments: dict[str, Any]) -> None:
    """Read "updates" as "update"."""
    if isinstance(arguments["reduction"], str) and arguments["reduction"] == "updates":
        arguments["reduction"] = "update"


def _check_reduction(data: rx.TensorStructInfo, reduction: Reduction) -> None:
    if reduction == "mean" and data.dtype.is_bool:
        raise rules.refuse_type(f"Booleans have no mean, found {data}", data)


@register(
    "relax.scatter_elements",
    layout=along("axis", together=True),
    pure=True,
    adapt=_plain_update,
    legalize=rules.by_te("scatter_elements"),
    gradient=gradients.gradient_in_float32(_gradient_scatter_elements),
)
def scatter_elements(
    data: rx.TensorStructInfo,
    indices: rx.TensorStructInfo,
    updates: rx.TensorStructInfo,
    axis: int = 0,
    reduction: Reduction = "update",
) -> rx.TensorStructInfo:
    """A copy of data with updates stored at `indices` along an axis, each in its own line.

    In two dimensions and along axis 0, updates[i, j] is stored at [indices[i, j], j]; negative
    indices count from the end. "update", also called "updates", keeps the last of several updates;
    "add", "mul", "max" and "min" combine them with the element, and "mean" takes the mean of all,
    which is rounded down for integers.

    Shapes:
        data     any of rank at least 1
        indices  integers, of the rank of data
        updates  of the shape of indices and the datatype of data
        result   as data
    Errors:
        StructInfoError: indices are known not to be integers, ranks or datatypes differ, the shapes
            of indices and updates provably differ, the axis is out of range, or Booleans have no
            mean.
    """
    _check_reduction(data, reduction)
    indexing.require_indices(indices)
    rules.common_dtype([data, updates], "data and updates")
    indexing.require_same_rank(data, indices, "data and indices")
    indexing.require_same_rank(data, updates, "data and updates")
    if data.ndim >= 0:
        rules.normal_axis(axis, data.ndim)
    indexing.require_same_rank(indices, updates, "indices and updates")
    sizes, values = literal_shape(indices), literal_shape(updates)
    if sizes is not None and values is not None:
        axis_at_fault = _unequal(sizes, values)
        if axis_at_fault is not None:
            raise rules.refuse(
                f"indices {rules.shape_text(sizes)} and updates {rules.shape_text(values)} have "
                f"one shape, "
                f"dimension {axis_at_fault} differs",
                updates,
            )
    return data


def _gradient_scatter_nd(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    data, indices, updates = call.args
    shape = gradients.require_shape(data, "scatter_nd")
    count = indexing.position_count(cast("rx.TensorStructInfo", indices.struct_info))
    if count is None:
        raise rules.refuse(
            "the gradient of scatter_nd needs the number of positions along the last axis of "
            f"indices, found {indices.struct_info}",
            indices,
            hint="state it by R.match_cast",
        )
    limits = R.concat([R.zeros((1,), "int64") + rx.PrimValue(n) for n in shape[:count]], 0)
    positions = R.astype(indices, "int64")
    positions = R.where(R.less(positions, 0), positions + limits, positions)

    def scatter(x: rx.Expr, y: rx.Expr, reduction: str) -> Any:
        return scatter_nd(x, positions, y, reduction)

    def gather(x: rx.Expr) -> Any:
        return indexing.gather_nd(x, positions)

    grad, update_grad = _gradient_scatter(call, var, gradient, updates, scatter, gather)
    return [grad, R.grad.no_grad(indices), update_grad]


@register(
    "relax.scatter_nd",
    pure=True,
    legalize=indexing.legalize_at_positions("scatter_nd"),
    gradient=gradients.gradient_in_float32(_gradient_scatter_nd),
)
def scatter_nd(
    data: rx.TensorStructInfo,
    indices: rx.TensorStructInfo,
    updates: rx.TensorStructInfo,
    reduction: Reduction = "update",
) -> rx.TensorStructInfo:
    """A copy of data with slices of updates stored at the positions along the last axis of indices.

    Negative positions count from the end; the reductions are those of `scatter_elements`.

    Shapes:
        data     any
        indices  integers, (..., k)
        updates  (..., then the axes of data after the first k), in the datatype of data
        result   as data
    Errors:
        StructInfoError: indices are known not to be integers or have rank 0, there are more
            positions than axes, datatypes differ, the shape of updates provably is another one, or
            Booleans have no mean.
    """
    _check_reduction(data, reduction)
    indexing.require_indices(indices)
    rules.common_dtype([data, updates], "data and updates")
    if indices.ndim == 0:
        raise rules.refuse(f"indices has rank at least 1, found {indices}", indices)
    count = indexing.position_count(indices)
    if count is None or data.ndim < 0:
        return data
    if count > data.ndim:
        raise rules.refuse(
            f"indices {indices} hold {count} positions, but data {data} has {data.ndim} axes",
            indices,
        )
    ndim = indices.ndim - 1 + data.ndim - count
    if 0 <= updates.ndim != ndim:
        raise rules.refuse(
            f"updates has rank {ndim} for data {data} and indices {indices}, found {updates}",
            updates,
        )
    shape, index_shape, values = map(literal_shape, (data, indices, updates))
    if shape is None or index_shape is None or values is None:
        return data
    expected = (*index_shape[:-1], *shape[count:])
    axis = _unequal(expected, values)
    if axis is not None:
        raise rules.refuse(
            f"updates has shape {rules.shape_text(expected)} for data {rules.shape_text(shape)} "
            f"and indices "
            f"{rules.shape_text(index_shape)}, found {rules.shape_text(values)}: dimension {axis} "
            f"differs",
            updates,
        )
    return data


def _gradient_index_put(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    _, operand, values = call.args
    indices = rx.Tuple(tuple(indexing.fields_of(operand, builder)))

    def scatter(x: rx.Expr, y: rx.Expr) -> Any:
        return index_put(x, indices, y)

    def gather(x: rx.Expr) -> Any:
        return indexing.index_tensor(x, indices)

    value_gradient = gather(gradient)
    if not call.attrs["accumulate"]:
        broadcast = R.zeros_like(value_gradient)
        gradient, value_gradient = _gradient_of_last(gradient, broadcast, scatter, gather)
    value_gradient = R.collapse_sum_to(value_gradient, gradients.shape_like(values))
    index_gradients = rx.Tuple(tuple(R.grad.no_grad(index) for index in indices.fields))
    return [
        gradient,
        index_gradients,
        value_gradient if gradients.is_differentiable(values) else R.grad.no_grad(values),
    ]


def _one_index(arguments: dict[str, Any]) -> None:
    """Take a tensor instead of a tuple of indices as the only index."""
    indices = arguments["indices"]
    if isinstance(indices, rx.Expr) and isinstance(indices.struct_info, rx.TensorStructInfo):
        arguments["indices"] = rx.Tuple((indices,))


@register(
    "relax.index_put",
    pure=True,
    adapt=_one_index,
    legalize=rules.by_te("index_put"),
    gradient=_gradient_index_put,
)
def index_put(
    data: rx.TensorStructInfo,
    indices: rx.TupleStructInfo,
    values: rx.TensorStructInfo,
    accumulate: bool = False,
) -> rx.TensorStructInfo:
    """A copy of data with values at data[indices[0], indices[1], ...]; added with `accumulate`.

    Negative indices count from the end. Of several values for an element, the last one is stored.

    Shapes:
        data     any
        indices  integer tensors that broadcast, one for each of the leading axes; one tensor
                 counts as a tuple of it
        values   broadcasts to the shape of the indices and the remaining axes of data; in the
                 datatype of data
        result   as data
    Errors:
        StructInfoError: there is no index, one is known not to hold integers, there are more than
            axes, datatypes differ, or known sizes do not broadcast.
    """
    fields = indexing.index_fields(indices)
    rules.common_dtype([data, values], "data and values")
    if 0 <= data.ndim < len(fields):
        raise rules.refuse(
            f"data {data} has {data.ndim} axes, found {len(fields)} indices", indices
        )
    shape, ndim = rules.broadcast(fields, [f"indices[{k}]" for k in range(len(fields))])
    sizes, actual = literal_shape(data), literal_shape(values)
    index_shape = shape.values if isinstance(shape, rx.ShapeExpr) else shape
    if data.ndim >= 0 and ndim >= 0 and values.ndim > ndim + data.ndim - len(fields):
        raise rules.refuse(
            f"values {values} have more axes than data[indices] of data {data}", values
        )
    if sizes is None or actual is None or not isinstance(index_shape, tuple):
        return data
    target = (*index_shape, *sizes[len(fields) :])
    for k, (n, expected) in enumerate(zip(actual[::-1], target[::-1], strict=False), start=1):
        if not (isinstance(n, IntImm) and n.value == 1) and rules.differ(n, expected):
            raise rules.refuse(
                f"values {rules.shape_text(actual)} do not broadcast to "
                f"{rules.shape_text(target)}: dimension "
                f"{-k} is {rules.shown(n)}, not {rules.shown(expected)}",
                values,
            )
    return data


def _gradient_slice_scatter(
    gradient: Any, _: Any, src: Any, start: Any, end: Any, step: Any, axis: int
) -> list[rx.Expr]:
    tensor_gradient = slice_scatter(gradient, R.zeros_like(src), start, end, step, axis=axis)
    bounds = ([v.value if isinstance(v, rx.PrimValue) else v] for v in (start, end, step))
    src_gradient = R.strided_slice(gradient, [axis], *bounds)
    return [tensor_gradient, src_gradient, *map(R.grad.no_grad, (start, end, step))]


@register(
    "relax.slice_scatter",
    pure=True,
    legalize=rules.by_te("slice_scatter", "slice_scatter"),
    gradient=gradients.of_operands(_gradient_slice_scatter),
)
def slice_scatter(
    input_tensor: rx.TensorStructInfo,
    src: rx.TensorStructInfo,
    start: rx.PrimStructInfo,
    end: rx.PrimStructInfo,
    step: rx.PrimStructInfo = 1,  # type: ignore[assignment]
    axis: int = 0,
) -> rx.TensorStructInfo:
    """A copy of a tensor with `src` at `start:end:step` along an axis.

    Shapes:
        input_tensor      any of rank at least 1
        src               as input_tensor, but along the axis ceil((end - start) / step)
        start, end, step  integers, 0 <= start <= end <= the size of the axis, 1 <= step
        result            as input_tensor
    Errors:
        StructInfoError: ranks or datatypes differ, a bound is not an integer, the step is known not
            to be positive or the bounds not to be in order, known sizes differ, or the axis is out
            of range.
    """
    indexing.require_same_rank(input_tensor, src, "input_tensor and src")
    rules.common_dtype([input_tensor, src], "data and src")
    for sinfo, name in ((start, "start"), (end, "end"), (step, "step")):
        if not sinfo.dtype.is_int or sinfo.dtype.is_bool:
            raise rules.refuse_type(f"{name} is an integer, found {sinfo}", sinfo)
    first, last, by = start.value, end.value, step.value
    if isinstance(by, IntImm) and by.value < 1:
        raise rules.refuse(f"step is positive, found {by.value}", step)
    if isinstance(first, IntImm) and first.value < 0:
        raise rules.refuse(f"start is at least 0, found {first.value}", start)
    if isinstance(first, IntImm) and isinstance(last, IntImm) and last.value < first.value:
        raise rules.refuse(f"end is not before start {first.value}, found {last.value}", end)
    position = rules.normal_axis(axis, input_tensor.ndim) if input_tensor.ndim >= 0 else None
    shape, actual = literal_shape(input_tensor), literal_shape(src)
    if shape is None or actual is None or position is None:
        return input_tensor
    expected: list[PrimExpr | None] = list(shape)
    expected[position] = None
    if isinstance(first, PrimExpr) and isinstance(last, PrimExpr) and isinstance(by, PrimExpr):
        a, b, c = (ops.cast_to(v, INT64) for v in (first, last, by))
        expected[position] = (b + (c - ops.const(1, INT64)) - a) // c
        if isinstance(last, IntImm) and isinstance(shape[position], IntImm):
            limit = cast("IntImm", shape[position]).value
            if last.value > limit:
                raise rules.refuse(
                    f"end is at most {limit}, the size of axis {position}, found {last.value}", end
                )
    for k, (n, size) in enumerate(zip(actual, expected, strict=True)):
        if size is not None and rules.differ(n, size):
            raise rules.refuse(
                f"dimension {k} of src {rules.shape_text(actual)} is {rules.shown(n)}, not "
                f"{rules.shown(size)}, for "
                f"input_tensor {rules.shape_text(shape)}",
                src,
            )
    return input_tensor


@user_facing
def masked_fill(x: rx.Expr, mask: rx.Expr, value: object) -> rx.Expr:
    """`value` where the mask is true, else x: no operator, but a call of `where`.

    Shapes:
        x       any
        mask    Booleans that broadcast with x
        result  what they broadcast to
    """
    return cast("rx.Expr", R.where(mask, R.full_like(x, value), x))
