"""Operators that sort, select or search elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import INT32, INT64, Array, DataType
from relaxpy.ir.ops.array_order import (
    SMALL,
    comparable,
    middle,
    nth_indices,
    order,
    sorted_elements,
    top_elements,
)
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.axis_rules import BROADCASTING, along, extremum_layout, same_layout
from relaxpy.ir.ops.definition.gradients import (
    gradient_in_float32,
    no_gradient,
    of_operand,
    tuple_fields,
)
from relaxpy.ir.ops.definition.registry import R, family, register, rows
from relaxpy.ir.ops.elementwise import fit_numbers
from relaxpy.ir.ops.reduction import extremum_gradient, reduced
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, TupleStructInfo, Var
from relaxpy.ir.te import tensor as te, topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _gradient_sort(g: Any, x: Any, y: Any, call: Call) -> Any:
    axis = call.attrs["axis"]
    indices = R.argsort(x, axis=axis, descending=call.attrs["descending"], dtype="int64")
    return R.scatter_elements(R.zeros_like(x), indices, g, axis=axis)


@register(
    "relax.sort",
    layout=along("axis"),
    pure=True,
    runtime=sorted_elements,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:ordered"),
    legalize_alone=rules.late("relaxpy.ir.ops.selection:whole_rows"),
    gradient=of_operand(_gradient_sort),
)
def sort(x: TensorStructInfo, axis: int = -1, descending: bool = False) -> TensorStructInfo:
    """The elements of x in order along an axis; NaN counts as greater than any number.

    Shapes:
        x       rank at least 1
        result  as x
    Errors:
        StructInfoError: the axis is out of range.
    """
    if x.ndim >= 0:
        rules.normal_axis(axis, x.ndim)
    return x


def _argsorted(
    data: Array, axis: int = -1, descending: bool = False, dtype: DataType = INT32
) -> Array:
    return order(data, axis, descending=descending).astype(str(dtype), copy=False)


@register(
    "relax.argsort",
    layout=along("axis"),
    pure=True,
    runtime=_argsorted,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:ordered"),
    legalize_alone=rules.late("relaxpy.ir.ops.selection:whole_rows"),
    gradient=no_gradient,
)
def argsort(
    data: TensorStructInfo, axis: int = -1, descending: bool = False, dtype: DataType = INT32
) -> TensorStructInfo:
    """The indices that sort data along an axis; equal elements keep their order.

    Shapes:
        data    rank at least 1
        result  as data, in `dtype`
    Errors:
        StructInfoError: the axis is out of range.
    """
    if data.ndim >= 0:
        rules.normal_axis(axis, data.ndim)
    return rules.with_dtype(data, data.dtype if dtype.is_void else dtype)


@register(
    "relax.nth_index",
    pure=True,
    runtime=nth_indices,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:nth_index"),
    gradient=no_gradient,
)
def nth_index(data: TensorStructInfo, n: TensorStructInfo, axis: int = -1) -> TensorStructInfo:
    """The index that `argsort` of data has at position n along an axis.

    A position before the first or after the last element is that of this element.

    Shapes:
        data    rank at least 1, with an element along the axis
        n       a scalar, or as the result
        result  as data, with size 1 along the axis, in int64
    Errors:
        StructInfoError: the axis is out of range, or n has another shape, or not integers.
    """
    rules.require_integer(n.dtype, "n", n)
    found = rules.with_dtype(reduced(data, (axis,), keepdims=True), INT64)
    if n.ndim > 0:
        rules.common_rank((found, n), "nth_index")
        rules.unified_shapes((found, n), "shapes of the result and n")
    return found


def _gradient_topk(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    [data] = call.args
    kind = call.attrs["ret_type"]
    if kind == "indices":
        return no_gradient(var, call, gradient, builder)
    values = tuple_fields(gradient, 2)[0] if kind == "both" else gradient
    attrs = {**call.attrs, "ret_type": "indices", "dtype": "int64"}
    indices = topk(data, **attrs)
    axis = call.attrs["axis"]
    return [R.scatter_elements(R.zeros_like(data), indices, values, axis=axis)]


@register(
    "relax.topk",
    layout=along("axis"),
    pure=True,
    runtime=top_elements,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:topk"),
    legalize_alone=rules.late("relaxpy.ir.ops.selection:whole_rows"),
    gradient=_gradient_topk,
)
def topk(
    data: TensorStructInfo,
    k: int = 1,
    axis: int = -1,
    ret_type: Literal["both", "values", "indices"] = "both",
    largest: bool = True,
    dtype: DataType = INT32,
) -> TensorStructInfo | TupleStructInfo:
    """The k largest elements along an axis in descending order, and their indices.

    With `largest` unset, the k smallest in ascending order; all elements if k is not positive. NaN
    counts as greater than any number, and equal elements keep their order.

    Shapes:
        data    rank at least 1
        result  values as data and indices in `dtype`, both of size k along the axis, or of the size
                of the axis if that is less; one of them if `ret_type` names it
    Errors:
        StructInfoError: the axis is out of range.
    """
    position = rules.normal_axis(axis, data.ndim) if data.ndim >= 0 else None
    shape = literal_shape(data)
    values = data
    if k > 0:
        values = rules.tensor(None, data.dtype, data.vdevice, data.ndim)
        if shape is not None and position is not None:
            size, count = shape[position], ops.const(k, "int64")
            limit = min(size.value, k) if isinstance(size, IntImm) else None
            extent = ops.minimum(size, count) if limit is None else ops.const(limit, "int64")
            values = rules.tensor(
                (*shape[:position], extent, *shape[position + 1 :]), data.dtype, data.vdevice
            )
    indices = rules.with_dtype(values, dtype)
    if ret_type == "both":
        return TupleStructInfo((values, indices))
    return values if ret_type == "values" else indices


def _bucketized(
    input_tensor: Array, boundaries: Array, out_int32: bool = False, right: bool = False
) -> Array:
    side: Literal["left", "right"] = "right" if right else "left"
    buckets = np.searchsorted(comparable(boundaries), comparable(input_tensor), side=side)
    return np.asarray(buckets, np.int32 if out_int32 else np.int64)


def _searched(values: Tensor, boundaries: Tensor, dtype: DataType, right: bool) -> Tensor:
    """`bucketize` by bisection: each step decides for all values whether to skip a half."""
    [size] = boundaries.shape
    assert isinstance(size, IntImm)
    last = ops.const(size.value - 1, dtype)
    left, found = size.value, None
    while left:
        step = max(left // 2, 1)
        found = _skipped(values, boundaries, found, step, last, right)
        left = left - step if left > 1 else 0
    assert found is not None
    return found


def _skipped(
    values: Tensor, boundaries: Tensor, found: Tensor | None, step: int, last: PrimExpr, right: bool
) -> Tensor:
    """The boundaries passed so far, and `step` more where the last one of these is passed, too."""
    width, zero = ops.const(step, last.dtype), ops.const(0, last.dtype)
    kind = _order_type(values.dtype, boundaries.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        start = zero if found is None else found(*index)
        place = ops.maximum(ops.minimum(start + ops.const(step - 1, last.dtype), last), zero)
        boundary, value = boundaries(place).astype(kind), values(*index).astype(kind)
        if right:
            passes = ops.any_of(value >= boundary, intrin.isnan(value))
        else:
            above = ops.logical_not(boundary >= value)
            passes = ops.all_of(above, ops.logical_not(intrin.isnan(boundary)))
        return start + tir.Select(passes, width, zero)

    result: Tensor = te.compute(values.shape, element, name="buckets")
    return result


def _order_type(*dtypes: DataType) -> DataType:
    """The datatype in which `comparable` elements of several datatypes are ordered."""
    common = np.result_type(*(comparable(np.empty(0, dtype.numpy())).dtype for dtype in dtypes))
    return DataType("uint8" if common == np.bool_ else common)


def _legalize_bucketize(builder: BlockBuilder, call: Call) -> Expr:
    values, boundaries = map(builder.struct_info_of, call.args)
    assert isinstance(values, TensorStructInfo)
    assert isinstance(boundaries, TensorStructInfo)
    [size] = literal_shape(boundaries) or [None]
    if not isinstance(size, IntImm) or not size.value:
        return call
    result = INT32 if call.attrs["out_int32"] else INT64
    return rules.te_kernel(builder, _searched, "bucketize", *call.args, result, call.attrs["right"])


@register(
    "relax.bucketize",
    layout=same_layout,
    pure=True,
    runtime=_bucketized,
    legalize=_legalize_bucketize,
    gradient=no_gradient,
)
def bucketize(
    input_tensor: TensorStructInfo,
    boundaries: TensorStructInfo,
    out_int32: bool = False,
    right: bool = False,
) -> TensorStructInfo:
    """For each element, the number of boundaries below it; with `right`, not above it.

    Shapes:
        input_tensor  any
        boundaries    (n,), in ascending order
        result        as input_tensor, int64, or int32 with `out_int32`
    Errors:
        StructInfoError: the boundaries are known to have another rank than 1.
    """
    if boundaries.ndim not in (-1, 1):
        raise rules.refuse(f"boundaries is a vector, found {boundaries}", boundaries)
    return rules.with_dtype(input_tensor, INT32 if out_int32 else INT64)


def _unique(
    x: Array,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    flags = (return_index or not sorted, return_inverse, return_counts)
    ordered = x.view(np.int8) if x.dtype == np.bool_ else comparable(x)
    if axis is None or x.ndim == 1:
        values, *extras = _distinct(ordered.reshape(-1), *flags)
    else:
        results: Any = np.unique(ordered, *flags, axis)  # type: ignore[call-overload]
        values, *extras = results if any(flags) else (results,)
    values, extras = values.astype(x.dtype), [np.asarray(e, np.int64).reshape(-1) for e in extras]
    if not sorted:
        order = np.argsort(extras[0])
        values = np.take(values, order, 0 if axis is None else axis)
        inverse = [np.argsort(order).astype(np.int64)[extras[1]]] if return_inverse else []
        counts = [extras[-1][order]] if return_counts else []
        extras = [*([extras[0][order]] if return_index else []), *inverse, *counts]
    return (values, *extras) if extras else values


_SPARSE = 4
"""The maximum ratio of places to integers that mark those that are there."""


def _distinct(x: Array, index: bool, inverse: bool, counts: bool) -> list[Array]:
    """As `np.unique` of a vector, which takes up to 50 times as long: it has a hash table."""
    if x.dtype.kind in "iu" and x.size:
        least = x.min()
        extent = int(x.max()) - int(least) + 1
        if extent <= x.size * (1 if index or inverse or counts else _SPARSE):
            return _marked(x, least, extent, index, inverse, counts)
    if index or inverse:
        # Without indices, equal integers may be in any order; zeros of two signs differ.
        is_any = not index and x.size <= SMALL and x.dtype.kind != "f"
        places = np.argsort(x) if is_any else order(x, 0, descending=False)
        values = x[places]
    else:
        places = values = sorted_elements(x)
    is_first = np.ones(values.size, bool)
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    if x.dtype.kind == "f":
        is_first[1:] &= ~np.isnan(values[:-1])
    [starts] = is_first.nonzero()
    found = [values[starts]]
    if index:
        found.append(places[starts])
    if inverse:
        found.append(np.empty(x.size, np.int64))
        found[-1][places] = np.cumsum(is_first) - 1
    if counts:
        found.append(np.concatenate((starts[1:], [x.size])) - starts)
    return found


def _marked(
    x: Array, least: Any, extent: int, index: bool, inverse: bool, counts: bool
) -> list[Array]:
    """`_distinct` of integers that mark their places in a short range."""
    wide = x if x.itemsize == 8 else x.astype(np.int64)
    places = (wide - wide.dtype.type(least)).view(np.int64)
    if counts:
        marks = np.bincount(places.astype(np.intp, copy=False))
    else:
        marks = np.zeros(extent, bool)
        marks[places] = True
    distinct = np.flatnonzero(marks)
    found = [distinct.astype(x.dtype) + least]
    if index:
        first = np.empty(extent, np.int64)
        first[places[::-1]] = np.arange(x.size)[::-1]
        found.append(first[distinct])
    if inverse:
        found.append((np.cumsum(marks != 0) - 1)[places])
    if counts:
        found.append(marks[distinct])
    return found


@register(
    "relax.unique",
    pure=True,
    data_dependent=True,
    runtime=_unique,
    legalize_alone=rules.late("relaxpy.ir.ops.found_sizes:unique"),
    gradient=no_gradient,
)
def unique(
    x: TensorStructInfo,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> TensorStructInfo | TupleStructInfo:
    """The distinct elements of x in ascending order, or its distinct slices along an axis.

    Without `sorted`, they have the order in which they occur first.

    Beside them, if requested: the index of the first occurrence of each, for each element or slice
    the position of its value, and how often each occurs.

    Shapes:
        x       any
        result  the values, of rank 1 without an axis; the others are vectors of int64
    Errors:
        StructInfoError: the axis is out of range.
    """
    if axis is not None and x.ndim >= 0:
        rules.normal_axis(axis, x.ndim)
    one = (ops.const(1, INT64),) if axis is None and x.ndim == 0 else None
    values = rules.tensor(one, x.dtype, x.vdevice, 1 if axis is None else x.ndim)
    extras = [return_index, return_inverse, return_counts].count(True)
    if not extras:
        return values
    vector = rules.tensor(one, INT64, x.vdevice, 1)
    return TupleStructInfo((values, *(vector,) * extras))


def _places(x: Array) -> Array:
    """`nonzero` of an array; NumPy is fast at finding True in a vector only."""
    found = np.flatnonzero(x if x.dtype == np.bool_ else x != 0)
    places = np.empty((max(x.ndim, 1), found.size), np.int64)
    for axis in range(x.ndim - 1, 0, -1):
        rows = found // x.shape[axis]
        np.subtract(found, rows * x.shape[axis], out=places[axis])
        found = rows
    places[0] = found
    return places


@register(
    "relax.nonzero",
    pure=True,
    data_dependent=True,
    runtime=_places,
    legalize_alone=rules.late("relaxpy.ir.ops.found_sizes:nonzero"),
    gradient=no_gradient,
)
def nonzero(x: TensorStructInfo) -> TensorStructInfo:
    """The indices of the elements other than 0, in row-major order: one column for each.

    Shapes:
        x       any; a scalar counts as a vector of one element
        result  (rank of x, number of elements other than 0), int64
    """
    return rules.tensor(None, INT64, x.vdevice, 2)


def sampled(
    prob: Array, uniform_sample: Array, sample_indices: Array, dtype: DataType = INT64
) -> Array:
    """`multinomial_from_uniform` of arrays.

    Errors:
        RuntimeCheckError: a shape is another one, there is no category, or an index is out of the
            range of rows.
    """
    for name, samples in (("uniform_sample", uniform_sample), ("sample_indices", sample_indices)):
        if samples.shape != (len(sample_indices), 1):
            raise RuntimeCheckError(
                f"{name} has shape ({len(sample_indices)}, 1), found {samples.shape}", rule="DER-36"
            )
    if not prob.shape[1]:
        raise RuntimeCheckError("prob has at least one category, found none", rule="DER-36")
    outside = sample_indices[(sample_indices < 0) | (sample_indices >= len(prob))]
    if outside.size:
        raise RuntimeCheckError(
            f"sample_indices are rows of prob, from 0 to {len(prob) - 1}, found {outside[0]}",
            rule="DER-36",
        )
    rows = prob[sample_indices[:, 0]].astype(np.float64)
    exceeds = np.cumsum(rows, 1) > uniform_sample.astype(np.float64)
    categories = np.where(exceeds.any(1), exceeds.argmax(1), prob.shape[1] - 1)
    column: Array = categories[:, None].astype(str(dtype))
    return column


@register("relax.multinomial_from_uniform", pure=True, runtime=sampled, gradient=no_gradient)
def multinomial_from_uniform(
    prob: TensorStructInfo,
    uniform_sample: TensorStructInfo,
    sample_indices: TensorStructInfo,
    dtype: DataType = INT64,
) -> TensorStructInfo:
    """For each sample, the first category at which the summed probabilities exceed it.

    If there is none, it is the last category.

    Shapes:
        prob            (batch, categories), floats: the probabilities of each row
        uniform_sample  (n, 1), floats in [0, 1)
        sample_indices  (n, 1), integers: the row of each sample
        result          (n, 1), in `dtype`
    Errors:
        StructInfoError: an operand is known to have another rank than 2, `prob` or the samples hold
            no floats or the indices no integers, a known size is another one.
    """
    named = {"prob": prob, "uniform_sample": uniform_sample, "sample_indices": sample_indices}
    for name, sinfo in named.items():
        if sinfo.ndim not in (-1, 2):
            raise rules.refuse(f"{name} has rank 2, found {sinfo}", sinfo)
        kind = sinfo.dtype
        fits = kind.is_int and not kind.is_bool if name == "sample_indices" else kind.is_float
        if not kind.is_void and not fits:
            wanted = "integers" if name == "sample_indices" else "floats"
            raise rules.refuse_type(f"{name} holds {wanted}, found {sinfo}", sinfo)
    rows = []
    for name in ("uniform_sample", "sample_indices"):
        shape = literal_shape(named[name])
        if shape is not None:
            rows.append(shape[0])
            if isinstance(shape[1], IntImm) and shape[1].value != 1:
                raise rules.refuse(f"{name} has one column, found {named[name]}", named[name])
    if len(rows) == 2 and rules.differ(*rows):
        raise rules.refuse(
            f"uniform_sample {uniform_sample} and sample_indices {sample_indices} have as many "
            "rows",
            sample_indices,
        )
    if len(rows) < 2:
        rank = min(sinfo.ndim for sinfo in named.values())
        return rules.tensor(None, dtype, prob.vdevice, rank)
    return rules.tensor((rows[0], ops.const(1, INT64)), dtype, prob.vdevice)


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
    **BROADCASTING,
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
        hint = "compare it, as in R.not_equal(condition, R.const(0, ...))"
        raise rules.refuse_type(
            f"condition holds Booleans, found {condition}",
            condition,
            hint=None if condition.dtype.is_void else hint,
        )
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
    shape = literal_shape(x)
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


_arg = rows(
    _infer_arg, _ARG_DOC, _legalize_arg, gradient=gradients.no_gradient, layout=extremum_layout
)
ARG_REDUCTIONS = family(_arg("argmax", "largest"), _arg("argmin", "smallest"))


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
    "relax.median",
    pure=True,
    runtime=middle,
    legalize_in_loops=rules.late("relaxpy.ir.ops.selection:median"),
    gradient=gradient_in_float32(_gradient_median),
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
