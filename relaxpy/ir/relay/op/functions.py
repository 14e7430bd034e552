"""Functions that users call, whose parameters are not the operands followed by the attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxpy.ir.relay.expr import Call, Constant, RelayExpr, Tuple, const
from relaxpy.ir.relay.op.makers import build, number, public, public_signature
from relaxpy.ir.relay.op.quantized import CODES

Expr = RelayExpr
Axes = int | Sequence[int] | None


# Creation, shapes and selection


@public("arange")
def arange(
    start: Expr, stop: Expr | None = None, step: Expr | None = None, dtype: str = "float32"
) -> Call:
    """Return evenly spaced numbers below `stop`; with one operand, it is `stop`, from 0."""
    if stop is None:
        start, stop = const(0, dtype), start
    return build("arange", start, stop, const(1, dtype) if step is None else step, dtype=dtype)


@public("matrix_set_diag")
def matrix_set_diag(
    data: Expr, diagonal: Expr, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> Call:
    """Return matrices with other diagonals, from `k` or from `k[0]` to `k[1]`."""
    first, *rest = (k,) if isinstance(k, int) else k
    return build(
        "matrix_set_diag",
        data,
        diagonal,
        k1=first,
        k2=rest[0] if rest else first,
        super_diag_right_align=align.startswith("RIGHT"),
        sub_diag_right_align=align.endswith("RIGHT"),
    )


@public("strided_set")
def strided_set(data: Expr, v: Expr, begin: Any, end: Any, strides: Any = None) -> Call:
    """Return the data with other elements in a slice, whose bounds are lists or expressions."""
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
    """Return a slice, whose bounds are lists or expressions."""
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
    """Return the variance over axes, around `with_mean` if it is given."""
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
    """Return the standard deviation over axes."""
    return build("sqrt", variance(data, axis, keepdims, exclude, unbiased))


@public("mean_variance")
def mean_variance(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Tuple:
    """Return the mean and the variance over axes."""
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
    """Return the mean and the standard deviation over axes."""
    mean, spread = mean_variance(data, axis, keepdims, exclude, unbiased)
    return Tuple((mean, build("sqrt", spread)))


@public("logsumexp")
def logsumexp(data: Expr, axis: Axes = None, keepdims: bool = False) -> Expr:
    """Return the logarithm of the sum of exponentials over axes."""
    top = build("max", data, axis=axis, keepdims=True)
    total = build("sum", build("exp", data - top), axis=axis, keepdims=True)
    result: Expr = build("log", total) + top
    if keepdims:
        return result
    return build("squeeze", result, axis=[axis] if isinstance(axis, int) else axis)


# Random numbers


# Devices


def _type_of(device: Any) -> Any:
    """Return the number of the kind of a device, such as 1 for the processor."""
    return getattr(device, "device_type", device)


@public("annotation.on_device")
def on_device(
    body: Expr, device: Any, constrain_result: bool = False, constrain_body: bool = True
) -> Call:
    """Return an expression that asks for a device, which has no effect here."""
    constraints = {"constrain_result": constrain_result, "constrain_body": constrain_body}
    return build("on_device", body, device_type=_type_of(device), **constraints)


@public("device_copy")
def device_copy(data: Expr, src_device: Any, dst_device: Any) -> Call:
    """Return a copy for another device, which is the tensor itself here."""
    devices = {"src_dev_type": _type_of(src_device), "dst_dev_type": _type_of(dst_device)}
    return build("device_copy", data, **devices)


# Quantised operators


@public("qnn.simulated_quantize")
def simulated_quantize(
    data: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    out_dtype: str | Expr = "int8",
) -> Call:
    """Return what `qnn.quantize` returns, in the datatype of the data."""
    code = _code(out_dtype)
    return build("qnn.simulated_quantize", data, code, output_scale, output_zero_point, axis=axis)


@public("qnn.simulated_dequantize")
def simulated_dequantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    axis: int = -1,
    in_dtype: str | Expr = "int8",
) -> Call:
    """Return what `qnn.dequantize` returns, of integers in the datatype of the result."""
    code = _code(in_dtype)
    return build("qnn.simulated_dequantize", data, code, input_scale, input_zero_point, axis=axis)


def _code(dtype: str | Expr) -> Expr:
    """Return the number that stands for a datatype, as an operand."""
    return dtype if isinstance(dtype, RelayExpr) else const(CODES.get(dtype, 0), "int32")


# Functions that differ in the order and the names of parameters only

for _text in (
    "gather(data, axis, indices)",
    "qnn.leaky_relu(x, alpha, input_scale: scale, input_zero_point: zero_point, output_scale, "
    "output_zero_point)",
    "qnn.contrib_dense_pack(data, weight, input_zero_point, kernel_zero_point, input_scale, "
    "kernel_scale, kernel_layout: weight_layout = 'NC', units=None, out_dtype='int32')",
):
    public_signature(_text)
public_signature("reverse_reshape(data, newshape)", "contrib_reverse_reshape")
