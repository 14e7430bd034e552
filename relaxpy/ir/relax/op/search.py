"""Operators that choose between elements, or find their positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, TupleStructInfo, Var
from relaxpy.ir.relax.op.binary import fit_numbers
from relaxpy.ir.relax.op.definition import gradients, rules
from relaxpy.ir.relax.op.definition.layouts import elementwise_layout, extremum_layout
from relaxpy.ir.relax.op.definition.registry import R, Rows, family, register
from relaxpy.ir.relax.op.definition.sharding import broadcast_axes
from relaxpy.ir.relax.op.definition.widening import gradient_in_float32
from relaxpy.ir.relax.op.sorting import SMALL, comparable, order
from relaxpy.ir.relax.op.statistical import extremum_gradient, reduced
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Array = np.ndarray[Any, Any]


def _where(condition: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    result: Tensor = topi.where(condition, x1, as_dtype(x2, x1.dtype))
    return result


_where_gradient = gradients.elementwise(
    None,
    lambda g, condition, x1, x2, y: gradients.masked(g, condition),
    lambda g, condition, x1, x2, y: gradients.masked(g, R.logical_not(condition)),
    exact=True,
)


@register(
    "relax.where",
    sharding=broadcast_axes,
    layout=elementwise_layout,
    pure=True,
    legalize=rules.by_te(_where, "where"),
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
        raise rules.refuse_type(f"condition holds Booleans, found {condition}", condition)
    sinfos = (condition, x1, x2)
    shape, ndim = rules.broadcast(sinfos, ("condition", "x1", "x2"))
    dtype = rules.joint_dtype(x1, x2, ("x1", "x2"))
    return rules.tensor(shape, dtype, rules.joint_vdevice(sinfos, strict=False), ndim)


def _legalize_arg(name: str) -> rules.Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        result, kernel = builder.struct_info_of(call), getattr(topi, name)
        assert isinstance(result, TensorStructInfo)
        return rules.te_kernel(
            builder, kernel, name, *call.args, dtype=str(result.dtype), **call.attrs
        )

    return legalize


def _infer_arg(
    x: TensorStructInfo, axis: int | None = None, keepdims: bool = False
) -> TensorStructInfo:
    shape = rules.literal_shape(x)
    result = reduced(x, None if axis is None else (axis,), keepdims=keepdims)
    return rules.with_dtype(result, shape[0].dtype if shape else INT64)


_ARG_DOC = """The position of the {} element along an axis: the first one, NaN first, -1 if none.

Shapes:
    x       any
    result  without the axis, or with size 1 there under `keepdims`; without an axis, the position
            in row-major order; in int64
Errors:
    StructInfoError: the axis is out of range.
"""


_arg = Rows(
    _infer_arg, _ARG_DOC, _legalize_arg, gradient=gradients.no_gradient, layout=extremum_layout
)
ARG_REDUCTIONS = family(_arg("argmax", "largest"), _arg("argmin", "smallest"))


def _middle(
    x: Array, axis: tuple[int, ...] | None = None, keepdims: bool = False
) -> Array | tuple[Array, Array]:
    """`median` of an array.

    Errors:
        RuntimeCheckError: there is no element along the axes.
    """
    axes = tuple(range(x.ndim)) if axis is None else rules.normal_axes(axis, x.ndim)
    kept = [size for k, size in enumerate(x.shape) if k not in axes]
    shape = [1 if k in axes else size for k, size in enumerate(x.shape)] if keepdims else kept
    count = math.prod(x.shape[k] for k in axes)
    if not count:
        raise RuntimeCheckError("x has an element along the axes, found none", rule="DER-36")
    last = range(x.ndim - len(axes), x.ndim)
    rows = comparable(np.moveaxis(x, axes, tuple(last)).reshape(-1, count))
    has_index = axis is not None and len(axis) == 1
    value, index = _middle_of_rows(rows, (count - 1) // 2, has_index=has_index)
    value = value.astype(x.dtype).reshape(shape)
    return value if index is None else (value, index.astype(np.int64).reshape(shape))


def _middle_of_rows(rows: Array, middle: int, *, has_index: bool) -> tuple[Array, Array | None]:
    """The element of each row that a stable sort puts at `middle`, or the first NaN; its index."""
    is_float = rows.dtype.kind == "f"
    if rows.size <= SMALL:
        index = order(rows, 1, descending=False)[:, middle]
    else:
        value = np.partition(rows, middle, 1)[:, middle]
        # Zeros of both signs are equal: the index decides which of them it is.
        if not has_index and not (is_float and (value == 0).any()):
            return np.where(np.isnan(rows.max(1)), np.nan, value) if is_float else value, None
        equal = rows == value[:, None]
        rank = middle - np.count_nonzero(rows < value[:, None], 1)
        index = equal.argmax(1)
        [later] = np.nonzero(rank)
        index[later] = (np.cumsum(equal[later], 1) > rank[later, None]).argmax(1)
    if is_float:
        is_nan = np.isnan(rows)
        index = np.where(is_nan.any(1), is_nan.argmax(1), index)
    return rows[np.arange(len(rows)), index], index if has_index else None


def _gradient_median(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> Sequence[Expr]:
    """Elements that equal the median share the gradient."""
    [x] = call.args
    if not gradients.is_differentiable(x):
        return gradients.no_gradient(var, call, gradient, builder)
    axis = call.attrs["axis"]
    has_index = axis is not None and len(cast("tuple[int, ...]", axis)) == 1
    y, g = (gradients.tuple_fields(v, 2)[0] if has_index else v for v in (var, gradient))
    return [extremum_gradient(g, x, y, call)]


@register(
    "relax.median", pure=True, runtime=_middle, gradient=gradient_in_float32(_gradient_median)
)
def median(
    x: TensorStructInfo, axis: tuple[int, ...] | None = None, keepdims: bool = False
) -> TensorStructInfo | TupleStructInfo:
    """The median of the elements along axes: the lower of two middle ones; NaN where there is one.

    Along one axis, also its index as a stable sort orders equal elements; that of the first NaN.

    Shapes:
        x       any, with an element along the axes
        result  without the axes (all of them by default), or with size 1 there under `keepdims`;
                with one axis, a tuple of this and of the indices, in int64
    Errors:
        StructInfoError: an axis is out of range or occurs twice, or the list of them is empty.
    """
    if axis is not None and not axis:
        raise rules.refuse("axis is None or has at least one axis, found an empty list", axis)
    value = reduced(x, axis, keepdims=keepdims)
    if axis is None or len(axis) > 1:
        return value
    return TupleStructInfo((value, rules.with_dtype(value, INT64)))
