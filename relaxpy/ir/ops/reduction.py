"""Reductions and scans of tensors along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from relaxpy.ir.core.dtype import FLOAT32, DataType, accumulator
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.axis_rules import REDUCED, along
from relaxpy.ir.ops.definition.gradients import (
    count_reduced,
    gradient_in_float32,
    masked,
    of_operand,
    shape_like,
    with_reduced_axes,
)
from relaxpy.ir.ops.definition.registry import R, family, rows
from relaxpy.ir.relax.known import literal_shape, shape_of, tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, const
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.shapes import product, reduced_sizes
from relaxpy.ir.tir.expr import IntImm
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.ir.op_record import PartialRule
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Bound: TypeAlias = Callable[[Any], Any]
"""Binds a value, and returns the variable."""


def reduced(
    x: TensorStructInfo, axis: tuple[int, ...] | None, *, keepdims: bool
) -> TensorStructInfo:
    """RED: the struct info of x reduced along axes, along all for None.

    Errors:
        StructInfoError: an axis is out of range or occurs twice.
    """
    if axis is None and not keepdims:
        return rules.tensor((), x.dtype, x.vdevice)
    if x.ndim < 0:
        return rules.tensor(None, x.dtype, x.vdevice)
    axes = tuple(range(x.ndim)) if axis is None else rules.normal_axes(axis, x.ndim)
    shape = literal_shape(x)
    if len(axes) == x.ndim:
        return rules.tensor((rules.one(),) * x.ndim if keepdims else (), x.dtype, x.vdevice)
    if shape is None:
        return rules.tensor(None, x.dtype, x.vdevice, x.ndim if keepdims else x.ndim - len(axes))
    kept = axes if keepdims else ()
    return rules.tensor(reduced_sizes(shape, axes, kept=kept), x.dtype, x.vdevice)


def _infer(
    x: TensorStructInfo, axis: tuple[int, ...] | None = None, keepdims: bool = False
) -> TensorStructInfo:
    return reduced(x, axis, keepdims=keepdims)


def _infer_mean(
    x: TensorStructInfo, axis: tuple[int, ...] | None = None, keepdims: bool = False
) -> TensorStructInfo:
    if x.dtype.is_bool:
        raise rules.refuse_type(
            f"x holds numbers, found {x}", x, hint='convert it first: R.astype(x, "float32")'
        )
    return reduced(x, axis, keepdims=keepdims)


_DOC = """{}

Shapes:
    x       any
    result  without the axes (all of them by default), or with size 1 there under `keepdims`
Errors:
    StructInfoError: an axis is out of range or occurs twice{}.
Rule:
    Floats narrower than float32 accumulate in float32, integers of a mean in int64; the result is
    rounded once.
"""


def _sum_gradient(g: Any, x: Any, y: Any, call: Call) -> Any:
    return R.broadcast_to(with_reduced_axes(g, call), shape_like(x))


def _mean_gradient(g: Any, x: Any, y: Any, call: Call) -> Any:
    share: Any = with_reduced_axes(g, call) / count_reduced(call, x.struct_info.dtype)
    return R.broadcast_to(share, shape_like(x))


def _deviation(x: Any, call: Call) -> Any:
    return x - R.mean(x, call.attrs["axis"], keepdims=True)


def _variance_gradient(g: Any, x: Any, y: Any, call: Call) -> Any:
    scaled = with_reduced_axes(g, call) * 2 / count_reduced(call, x.struct_info.dtype)
    return scaled * _deviation(x, call)


def _std_gradient(g: Any, x: Any, y: Any, call: Call) -> Any:
    share = masked(g / y, R.not_equal(y, 0))  # equal elements are a minimum: 0, not 0 / 0
    scaled = with_reduced_axes(share, call) / count_reduced(call, x.struct_info.dtype)
    return scaled * _deviation(x, call)


def extremum_gradient(g: Any, x: Any, y: Any, call: Call) -> Any:
    """Equal extrema share the gradient."""
    chosen = R.equal(x, with_reduced_axes(y, call)).astype(x.struct_info.dtype)
    return with_reduced_axes(g, call) * chosen / R.sum(chosen, call.attrs["axis"], keepdims=True)


def _prod_gradient(g: Any, x: Any, y: Any, call: Call) -> Any:
    """The product of the other elements, also if some are 0."""
    axis = call.attrs["axis"]
    is_zero = R.equal(x, 0)
    nonzero = R.where(is_zero, R.ones_like(x), x)
    zeros = is_zero.astype("int64")
    is_only_zero = R.equal(R.sum(zeros, axis, keepdims=True), zeros)
    return masked(
        with_reduced_axes(g, call) * R.prod(nonzero, axis, keepdims=True) / nonzero, is_only_zero
    )


def _in_float32(rule: Callable[[Any, Call, Bound], Any]) -> PartialRule:
    """The rule on float32 instead of narrower floats, to which combined results are rounded."""

    def wide_rule(call: Call, bound: Bound) -> Any:
        [x], dtype = call.args, _dtype(call)
        if dtype == accumulator(dtype):
            return rule(x, call, bound)
        result = rule(bound(R.astype(x, FLOAT32)), call, bound)
        return None if result is None else R.astype(bound(result), dtype)

    return wide_rule


def _dtype(call: Call) -> DataType:
    sinfo: Any = call.args[0].struct_info
    return cast("DataType", sinfo.dtype)


def _partial_sum(x: Any, call: Call, bound: Bound) -> Any:
    return Call(call.op, (x,), call.attrs)


def _partial_mean(x: Any, call: Call, bound: Bound) -> Any:
    count = _known_count(call)
    if count is None:
        return None
    return R.divide(bound(R.sum(x, call.attrs["axis"], call.attrs["keepdims"])), bound(count))


def _partial_variance(x: Any, call: Call, bound: Bound) -> Any:
    count = _known_count(call)
    if count is None:
        return None
    mean = R.divide(bound(R.sum(x, call.attrs["axis"], keepdims=True)), bound(count))
    deviation = bound(R.subtract(x, bound(mean)))
    return _partial_mean(bound(R.multiply(deviation, deviation)), call, bound)


def _partial_std(x: Any, call: Call, bound: Bound) -> Any:
    variance = _partial_variance(x, call, bound)
    return None if variance is None else R.sqrt(bound(variance))


def _known_count(call: Call) -> Expr | None:
    """The number of elements that a mean of floats combines, if known."""
    sinfo, dtype, axis = call.args[0].struct_info, _dtype(call), call.attrs["axis"]
    shape = shape_of(sinfo.tensor_sinfo if isinstance(sinfo, DTensorStructInfo) else sinfo)
    if shape is None or not dtype.is_float:
        return None
    axes = range(len(shape)) if axis is None else rules.normal_axes(cast("Any", axis), len(shape))
    count = product([shape[axis] for axis in axes])
    return const(count.value, accumulator(dtype)) if isinstance(count, IntImm) else None


_reduction = rows(_infer, _DOC.format("{}", ""), lambda name: rules.by_te(name, name), **REDUCED)
_mean = replace(_reduction, rule=_infer_mean, doc=_DOC.format("{}", ", or x holds Booleans"))

REDUCTIONS = family(
    _reduction(
        "sum",
        "The sum of the elements along axes; of Booleans, whether one is true.",
        gradient=of_operand(_sum_gradient),
        partial=_in_float32(_partial_sum),
    ),
    _mean(
        "mean",
        "The sum along axes over the number of elements, on integers rounded toward zero.",
        gradient=gradient_in_float32(of_operand(_mean_gradient)),
        partial=_in_float32(_partial_mean),
    ),
    _mean(
        "variance",
        "The mean of the squared distances from the mean along axes, likewise.",
        gradient=gradient_in_float32(of_operand(_variance_gradient)),
        partial=_in_float32(_partial_variance),
    ),
    _mean(
        "std",
        "The square root of the variance along axes, likewise.",
        gradient=gradient_in_float32(of_operand(_std_gradient)),
        partial=_in_float32(_partial_std),
    ),
    _reduction(
        "max",
        "The largest element along axes; NaN where there is one.",
        gradient=gradient_in_float32(of_operand(extremum_gradient)),
        partial=lambda call, bound: call,
    ),
    _reduction(
        "min",
        "The smallest element along axes; NaN where there is one.",
        gradient=gradient_in_float32(of_operand(extremum_gradient)),
        partial=lambda call, bound: call,
    ),
    _reduction(
        "prod",
        "The product of the elements along axes; of Booleans, whether all are true.",
        gradient=gradient_in_float32(of_operand(_prod_gradient)),
        partial=_in_float32(_partial_sum),
    ),
)
"""The operators of this family by their names without `relax.`"""


def _infer_scan(
    data: TensorStructInfo,
    axis: int | None = None,
    dtype: DataType | None = None,
    exclusive: bool = False,
) -> TensorStructInfo:
    kind = dtype or data.dtype
    if kind.is_bool:
        raise rules.refuse_type(
            f"data holds numbers, found {data}", data, hint='pass a datatype: dtype="int64"'
        )
    if axis is not None:
        if data.ndim >= 0:
            rules.normal_axis(axis, data.ndim)
        return rules.tensor(data.shape, kind, data.vdevice, data.ndim)
    shape = literal_shape(data)
    return rules.tensor(None if shape is None else (product(shape),), kind, data.vdevice, 1)


def _legalization(name: str) -> Any:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        sinfo = tensor_of(builder.struct_info_of(call))
        attrs = {**call.attrs, "dtype": str(sinfo.dtype)}
        return rules.te_kernel(builder, getattr(topi, name), name, *call.args, **attrs)

    return legalize


def _backwards(g: Any, axis: int, *, exclusive: bool) -> Any:
    """The cumulative sum from the end."""
    return R.flip(R.cumsum(R.flip(g, axis), axis, exclusive=exclusive), axis)


def _as_operand(g: Any, x: Any) -> Any:
    """The gradient in the datatype of the operand."""
    dtype = x.struct_info.dtype
    return g if g.struct_info is not None and g.struct_info.dtype == dtype else R.astype(g, dtype)


def _gradient_cumsum(g: Any, x: Any, y: Any, call: Call) -> Any:
    axis, exclusive = cast("int | None", call.attrs["axis"]), bool(call.attrs["exclusive"])
    g = _as_operand(g, x)
    if axis is not None:
        return _backwards(g, axis, exclusive=exclusive)
    return R.reshape(_backwards(g, 0, exclusive=exclusive), shape_like(x))


def _gradient_cumprod(g: Any, x: Any, y: Any, call: Call) -> Any:
    axis, exclusive = cast("int | None", call.attrs["axis"]), bool(call.attrs["exclusive"])
    g = _as_operand(g, x)
    if axis is not None:
        return R.grad.cumprod_backward(g, x, axis, exclusive)
    total = R.grad.cumprod_backward(g, R.flatten(x), 0, exclusive)
    return R.reshape(total, shape_like(x))


_SCAN_DOC = """The {} of the elements up to each one along an axis; `exclusive` leaves it out.

Without an axis, the elements are taken in row-major order.

Shapes:
    data    any
    result  as data, in `dtype` where it is passed; without an axis (size of data,)
Errors:
    StructInfoError: the axis is out of range, or data holds Booleans and `dtype` is missing.
Rule:
    Floats narrower than float32 are accumulated in float32; each result is rounded once.
"""
_scan = rows(_infer_scan, _SCAN_DOC, _legalization, layout=along("axis"))
SCANS = family(
    _scan("cumsum", "sum", gradient=of_operand(_gradient_cumsum)),
    _scan("cumprod", "product", gradient=of_operand(_gradient_cumprod)),
)
