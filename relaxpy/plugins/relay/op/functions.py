"""Functions that users call, whose parameters are not the operands followed by the attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxpy.plugins.relay.expr import Call, Constant, RelayExpr, Tuple, TupleGetItem, const
from relaxpy.plugins.relay.op.makers import build, number, public, public_signature

Expr = RelayExpr
Axes = int | Sequence[int] | None


# Creation, shapes and selection


@public("arange")
def arange(
    start: Expr, stop: Expr | None = None, step: Expr | None = None, dtype: str = "float32"
) -> Call:
    """Evenly spaced numbers below `stop`; with one operand, it is `stop`, from 0."""
    if stop is None:
        start, stop = const(0, dtype), start
    return build("arange", start, stop, const(1, dtype) if step is None else step, dtype=dtype)


@public("strided_set")
def strided_set(data: Expr, v: Expr, begin: Any, end: Any, strides: Any = None) -> Call:
    """The data with other elements in a slice, whose bounds are lists or expressions."""
    begin, end = number(begin, "int32"), number(end, "int32")
    strides = build("ones_like", begin) if strides is None else number(strides, "int32")
    return build("strided_set", data, v, begin, end, strides)


@public("strided_slice")
def strided_slice(
    data: Expr,
    begin: Any,
    end: Any,
    strides: Any = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> Call:
    """A slice, whose bounds are lists or expressions."""
    bounds = begin, end, strides
    if any(isinstance(b, RelayExpr) and not isinstance(b, Constant) for b in bounds):
        begin, end = number(begin, "int64"), number(end, "int64")
        strides = build("ones_like", begin) if strides is None else number(strides, "int64")
    options = {"strides": strides, "axes": axes, "slice_mode": slice_mode}
    return build("strided_slice", data, begin=begin, end=end, **options)


# Statistics


@public("variance")
def variance(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Expr | None = None,
) -> Call:
    """The variance over axes, around `with_mean` if it is given."""
    mean = with_mean
    if mean is None:
        mean = build("mean", data, axis=axis, keepdims=True, exclude=exclude)
    options = {"axis": axis, "keepdims": keepdims, "exclude": exclude, "unbiased": unbiased}
    return build("variance", data, mean, **options)


@public("std")
def std(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Call:
    """The standard deviation over axes."""
    return build("sqrt", variance(data, axis, keepdims, exclude, unbiased))


@public("mean_variance")
def mean_variance(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Tuple:
    """The mean and the variance over axes."""
    mean = build("mean", data, axis=axis, keepdims=True, exclude=exclude)
    spread = variance(data, axis, keepdims, exclude, unbiased, mean)
    if not keepdims:
        mean = build("mean", data, axis=axis, keepdims=False, exclude=exclude)
    return Tuple((mean, spread))


@public("mean_std")
def mean_std(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Tuple:
    """The mean and the standard deviation over axes."""
    mean, spread = mean_variance(data, axis, keepdims, exclude, unbiased)
    return Tuple((mean, build("sqrt", spread)))


@public("logsumexp")
def logsumexp(data: Expr, axis: Axes = None, keepdims: bool = False) -> Expr:
    """The logarithm of the sum of exponentials over axes."""
    top = build("max", data, axis=axis, keepdims=True)
    total = build("sum", build("exp", data - top), axis=axis, keepdims=True)
    result: Expr = build("log", total) + top
    if keepdims:
        return result
    return build("squeeze", result, axis=[axis] if isinstance(axis, int) else axis)


# Networks


@public("nn.dropout")
def dropout(data: Expr, rate: float = 0.5) -> TupleGetItem:
    """The data unchanged, as dropout does at inference."""
    return TupleGetItem(build("nn.dropout", data, rate=rate), 0)


@public("nn.pad")
def pad(data: Expr, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant") -> Call:
    """The data padded at its borders; `pad_value` is a number or an expression."""
    value = pad_value if isinstance(pad_value, RelayExpr) else const(pad_value)
    return build("nn.pad", data, value, pad_width=pad_width, pad_mode=pad_mode)


# Functions that differ in the order, the names and the defaults of parameters only

public_signature("nn.dropout_raw(data, rate=0.5)", "nn.dropout")
for _text in (
    "gather(data, axis, indices)",
    "qnn.leaky_relu(x, alpha, input_scale: scale, input_zero_point: zero_point, output_scale, "
    "output_zero_point)",
    "qnn.avg_pool2d(data, input_scale, input_zero_point, output_scale, output_zero_point, "
    "pool_size, strides, padding, dilation, ceil_mode=False, count_include_pad=True, "
    "layout='NHWC', out_layout='')",
    "vision.get_valid_counts(data, score_threshold: float32, id_index=0, score_index=1)",
    "vision.all_class_non_max_suppression(boxes, scores, max_output_boxes_per_class: int64 = -1, "
    "iou_threshold: float32 = -1.0, score_threshold: float32 = -1.0, output_format='onnx')",
):
    public_signature(_text)
