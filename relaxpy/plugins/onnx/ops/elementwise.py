"""Element by element: arithmetic, comparisons, logic, casts, activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from relaxpy.ir.core.dtype import DataType, accumulator
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import compute
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.intrin import reinterpret
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context, Value, converter, shaped_as
from relaxpy.plugins.onnx.view import NARROW, dtype_of as dtype_of_code

_UNARY = {
    **{name.capitalize(): name for name in ("abs", "acos", "acosh", "asin", "asinh", "atan")},
    **{name.capitalize(): name for name in ("atanh", "ceil", "cos", "cosh", "erf", "exp")},
    **{name.capitalize(): name for name in ("floor", "log", "round", "sigmoid", "sign", "sin")},
    **{name.capitalize(): name for name in ("sinh", "sqrt", "tan", "tanh")},
    "Neg": "negative",
    "Not": "logical_not",
    "BitwiseNot": "bitwise_not",
    "IsNaN": "isnan",
}


def _unary(op: Any) -> Callable[[Context, Expr], Expr]:
    def convert(cx: Context, x: Expr) -> Expr:
        result: Expr = op(x)
        return result

    return convert


for _name, _operator in _UNARY.items():
    converter(_name)(_unary(getattr(R, _operator)))
converter("Relu")(_unary(R.nn.relu))


def _aligned(x: Expr, y: Expr, broadcast: int, axis: int | None) -> Expr:
    """`y` so that it broadcasts by the rule of opsets before 7: along `axis` of `x`."""
    if not broadcast or axis is None:
        return y
    behind = tensors.rank_of(x) - tensors.normal_axis(axis, tensors.rank_of(x)) - tensors.rank_of(y)
    return (
        R.expand_dims(y, list(range(tensors.rank_of(y), tensors.rank_of(y) + behind)))
        if behind
        else y
    )


def _binary(op: Any) -> Callable[..., Expr]:
    def convert(cx: Context, a: Expr, b: Expr) -> Expr:
        return cx.broadcast(op, a, b)

    return convert


def _old_binary(op: Any) -> Callable[..., Expr]:
    def convert(
        cx: Context, a: Expr, b: Expr, *, broadcast: int = 0, axis: int | None = None
    ) -> Expr:
        return cx.broadcast(op, a, _aligned(a, b, broadcast, axis))

    return convert


def _quotient(a: Expr, b: Expr) -> Expr:
    """a / b; of integers rounded towards zero."""
    return a / b if tensors.is_float(a) else tensors.truncated(a, b)


def _power(x: Expr, exponent: Expr) -> Expr:
    """x to the power, in the datatype of `x`."""
    dtype, other = tensors.dtype_of(x), tensors.dtype_of(exponent)
    if dtype == other:
        return x**exponent
    if tensors.is_float(x) and "float64" not in other:
        return x ** R.astype(exponent, dtype)
    if tensors.is_float(exponent) and not tensors.is_float(x):
        return R.astype(R.astype(x, "float64") ** R.astype(exponent, "float64"), dtype)
    wide = "float64" if tensors.is_float(exponent) else "int64"
    return R.astype(R.astype(x, wide) ** R.astype(exponent, wide), dtype)


_BINARY = {
    "Add": R.add,
    "Sub": R.subtract,
    "Mul": R.multiply,
    "Div": _quotient,
    "Pow": _power,
    "And": R.logical_and,
    "Or": R.logical_or,
    "Xor": R.logical_xor,
    "Equal": R.equal,
    "Greater": R.greater,
    "Less": R.less,
}
for _name, _op in _BINARY.items():
    converter(_name)(_old_binary(_op))
    converter(_name, since=7)(_binary(_op))
for _name, _op in {
    "GreaterOrEqual": R.greater_equal,
    "LessOrEqual": R.less_equal,
    "BitwiseAnd": R.bitwise_and,
    "BitwiseOr": R.bitwise_or,
    "BitwiseXor": R.bitwise_xor,
}.items():
    converter(_name)(_binary(_op))


@converter("Mod")
def mod(cx: Context, a: Expr, b: Expr, *, fmod: int = 0) -> Expr:
    if fmod and not tensors.is_float(a):
        return cx.broadcast(_remainder, a, b)
    return cx.broadcast(R.mod if fmod else R.floor_mod, a, b)


def _remainder(a: Expr, b: Expr) -> Expr:
    """The remainder of integers, with the sign of `a`."""
    result: Expr = a - _quotient(a, b) * b
    return result


@converter("BitShift", admitted={"direction": ("LEFT", "RIGHT")})
def bit_shift(cx: Context, x: Expr, y: Expr, *, direction: str) -> Expr:
    return cx.broadcast(R.left_shift if direction == "LEFT" else R.right_shift, x, y)


def _fold(op: Any) -> Callable[..., Expr]:
    def convert(cx: Context, *data: Expr) -> Expr:
        if not data:
            raise UnsupportedError("it has no operands")
        return functools.reduce(functools.partial(cx.broadcast, op), data)

    return convert


for _name, _op in {"Max": R.maximum, "Min": R.minimum, "Sum": R.add}.items():
    converter(_name)(_fold(_op))


@converter("Mean")
def mean(cx: Context, *data: Expr) -> Expr:
    return _fold(R.add)(cx, *data) / tensors.scalar(len(data), data[0])


@converter("Reciprocal")
def reciprocal(cx: Context, x: Expr) -> Expr:
    return 1 / x


@converter("IsInf")
def is_inf(cx: Context, x: Expr, *, detect_negative: int = 1, detect_positive: int = 1) -> Expr:
    if detect_negative and detect_positive:
        return R.isinf(x)
    if not detect_negative and not detect_positive:
        return R.not_equal(x, x) if not tensors.is_float(x) else R.zeros_like(x, "bool")
    limit = tensors.scalar(np.inf, x)
    return R.equal(x, limit) if detect_positive else R.equal(x, -limit)


@converter("Clip")
def clip_6(cx: Context, x: Expr, *, min: float | None = None, max: float | None = None) -> Expr:
    result = x if min is None else R.maximum(x, tensors.scalar(min, x))
    return result if max is None else R.minimum(result, tensors.scalar(max, x))


@converter("Clip", since=11)
def clip(cx: Context, x: Expr, min: Expr | None = None, max: Expr | None = None) -> Expr:
    limits = [None if limit is None else _scalar_of(limit) for limit in (min, max)]
    result = x if limits[0] is None else R.maximum(x, limits[0])
    return result if limits[1] is None else R.minimum(result, limits[1])


def _scalar_of(x: Expr) -> Expr:
    return R.reshape(x, ()) if tensors.tensor_info(x).ndim == 1 else x


@converter("Equal", since=19, strings=True)
def equal(cx: Context, a: Expr, b: Expr) -> Expr:
    return R.equal(a, b)


_ROUNDING = {"round_mode": ("up", "down", "nearest")}


@converter("Cast", admitted=_ROUNDING, strings=True)
def cast(
    cx: Context, x: Value, *, to: int | str, saturate: int = 1, round_mode: str = "up"
) -> Value:
    code = TensorProto.DataType.Value(to) if isinstance(to, str) else to
    return cast_to(cx, cx.tensor(x), code, saturate, round_mode)


@converter("CastLike", admitted=_ROUNDING, strings=True)
def cast_like(
    cx: Context, x: Expr, target: Expr, *, saturate: int = 1, round_mode: str = "up"
) -> Expr:
    code = TensorProto.STRING if cx.has_strings(target) else cx.element_type(target)
    return cast_to(cx, x, code, saturate, round_mode)


def cast_to(cx: Context, x: Expr, code: int, saturate: int, round_mode: str) -> Expr:
    """`x` in an element type of ONNX."""
    has_strings = cx.has_strings(x)
    if code == TensorProto.STRING:
        if has_strings:
            return x
        texts = cx.importer.strings.call("from_numbers", shaped_as(x, "int64"), x)
        return cx.strings(texts)
    dtype = dtype_of_code(code)
    if has_strings:
        return cx.importer.strings.call("to_numbers", shaped_as(x, dtype), x, dtype)
    if code in NARROW:
        bits, _ = NARROW[code]
        whole = R.bitwise_and(R.astype(x, "int32"), const((1 << bits) - 1, "int32"))
        if dtype == "int8":
            half = const(1 << (bits - 1), "int32")
            whole = R.bitwise_xor(whole, half) - half
        return cx.of_element_type(R.astype(whole, dtype), code)
    if dtype == tensors.dtype_of(x):
        return x
    if "e8m0" in dtype and tensors.is_float(x):
        return cx.te(lambda t: _to_exponents(t, round_mode, saturate), x, name="cast_e8m0")
    if "float8" in dtype and saturate and tensors.is_float(x):
        limit = _largest(dtype)
        return R.astype(R.clip(x, -limit, limit), dtype)
    return R.astype(x, dtype)


def _to_exponents(t: Any, mode: str, saturate: int) -> Any:
    """The powers of two that floats are rounded to, as float8_e8m0fnu."""
    zero, one = tir.IntImm("int32", 0), tir.IntImm("int32", 1)

    def element(*index: Any) -> Any:
        bits = reinterpret("int32", t(*index).astype("float32")) & 0x7FFFFFFF
        exponent, mantissa = bits >> 23, bits & 0x7FFFFF
        limit = {"up": 1, "nearest": 0x400000}.get(mode)
        more = zero if limit is None else tir.Select(mantissa >= limit, one, zero)
        finite = tir.Min(exponent + more, tir.IntImm("int32", 254 if saturate else 255))
        result = tir.Select(bits > 0x7F800000, tir.IntImm("int32", 255), finite)
        return reinterpret("float8_e8m0fnu", result.astype("uint8"))

    return compute(t.shape, element, "exponents")


def _largest(dtype: str) -> float:
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]


def _rounded_once(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """A converter of one tensor, whose function of narrow floats is computed in float32."""

    @functools.wraps(function)
    def wide(cx: Context, x: Expr, **attributes: Any) -> Expr:
        dtype = tensors.dtype_of(x)
        if accumulator(DataType(dtype)) == dtype:
            return function(cx, x, **attributes)
        result: Expr = R.astype(function(cx, R.astype(x, "float32"), **attributes), dtype)
        return result

    return wide


@converter("LeakyRelu")
def leaky_relu(cx: Context, x: Expr, *, alpha: float = 0.01) -> Expr:
    return R.nn.leakyrelu(x, alpha)


@converter("PRelu", since=7)
def prelu(cx: Context, x: Expr, slope: Expr) -> Expr:
    return R.where(x < 0, cx.broadcast(R.multiply, x, slope), x)


@converter("PRelu")
def prelu_1(cx: Context, x: Expr, slope: Expr) -> Expr:
    behind = tensors.rank_of(x) - 1 - tensors.rank_of(slope)
    if tensors.rank_of(slope) == 1 and behind > 0:
        slope = R.expand_dims(slope, list(range(1, 1 + behind)))
    return prelu(cx, x, slope)


@converter("Elu")
@_rounded_once
def elu(cx: Context, x: Expr, *, alpha: float = 1.0) -> Expr:
    below = tensors.scalar(alpha, x) * (R.exp(R.minimum(x, tensors.scalar(0, x))) - 1)
    return R.where(x < 0, below, x)


@converter("Celu")
@_rounded_once
def celu(cx: Context, x: Expr, *, alpha: float = 1.0) -> Expr:
    below = R.exp(R.minimum(x, tensors.scalar(0, x)) / tensors.scalar(alpha, x)) - 1
    return R.maximum(x, tensors.scalar(0, x)) + tensors.scalar(alpha, x) * below


@converter("Selu")
@_rounded_once
def selu(
    cx: Context,
    x: Expr,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Expr:
    return tensors.scalar(gamma, x) * elu(cx, x, alpha=alpha)


@converter("HardSigmoid")
@_rounded_once
def hard_sigmoid(cx: Context, x: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    line = x * tensors.scalar(alpha, x) + tensors.scalar(beta, x)
    return R.clip(line, 0.0, 1.0)


@converter("HardSwish")
@_rounded_once
def hard_swish(cx: Context, x: Expr) -> Expr:
    return x * hard_sigmoid(cx, x, alpha=float(np.float32(1 / 6)), beta=0.5)


@converter("Softplus")
@_rounded_once
def softplus(cx: Context, x: Expr) -> Expr:
    tail = R.log(R.exp(-R.abs(x)) + 1)
    return R.maximum(x, tensors.scalar(0, x)) + tail


@converter("Mish")
@_rounded_once
def mish(cx: Context, x: Expr) -> Expr:
    result: Expr = x * R.tanh(softplus(cx, x))
    return result


@converter("Swish")
@_rounded_once
def swish(cx: Context, x: Expr, *, alpha: float = 1.0) -> Expr:
    if alpha == 1.0:
        return R.nn.silu(x)
    return x * R.sigmoid(x * tensors.scalar(alpha, x))


@converter("Gelu", admitted={"approximate": ("none", "tanh")})
def gelu(cx: Context, x: Expr, *, approximate: str = "none") -> Expr:
    return R.nn.gelu_tanh(x) if approximate == "tanh" else R.nn.gelu(x)


@converter("Shrink")
@_rounded_once
def shrink(cx: Context, x: Expr, *, lambd: float = 0.5, bias: float = 0.0) -> Expr:
    low = R.where(x < tensors.scalar(-lambd, x), x + tensors.scalar(bias, x), tensors.scalar(0, x))
    return R.where(x > tensors.scalar(lambd, x), x - tensors.scalar(bias, x), low)


def _flat_at(cx: Context, x: Expr, axis: int, compute: Callable[[Expr], Expr]) -> Expr:
    """`compute` on the matrix that `x` is when flattened at `axis`, in the shape of `x`."""
    sizes = tensors.shape_of(x)
    at = axis if axis == len(sizes) else tensors.normal_axis(axis, len(sizes))
    matrix = tensors.reshaped(x, (tensors.product(sizes[:at]), tensors.product(sizes[at:])))
    return tensors.reshaped(compute(matrix), tuple(sizes))


def _hardmax(x: Expr, axis: int) -> Expr:
    at = tensors.normal_axis(axis, tensors.rank_of(x))
    best = R.argmax(x, axis=at, keepdims=True)
    shape: list[tensors.Size] = [1] * tensors.rank_of(x)
    size = tensors.shape_of(x)[at]
    shape[at] = size
    position = tensors.reshaped(R.arange(0, size, 1, "int64"), tuple(shape))
    return R.astype(R.equal(R.astype(best, "int64"), position), tensors.dtype_of(x))


_ALONG = {"Softmax": R.nn.softmax, "LogSoftmax": R.nn.log_softmax, "Hardmax": _hardmax}


def _along(op: Any, flat: bool) -> Callable[..., Expr]:
    def old(cx: Context, x: Expr, *, axis: int = 1) -> Expr:
        return _flat_at(cx, x, axis, lambda matrix: op(matrix, 1))

    def new(cx: Context, x: Expr, *, axis: int = -1) -> Expr:
        result: Expr = op(x, axis)
        return result

    return old if flat else new


for _name, _op in _ALONG.items():
    converter(_name)(_along(_op, flat=True))
    converter(_name, since=13)(_along(_op, flat=False))


@converter("Where", strings=True)
def where(cx: Context, condition: Expr, x: Expr, y: Expr) -> Expr:
    return cx.broadcast(R.where, condition, x, y)


@converter("Identity", "MemcpyFromHost", "MemcpyToHost", strings=True)
def identity(cx: Context, x: Value) -> Value:
    return x


@converter("BitCast")
def bit_cast(cx: Context, x: Expr, *, to: int) -> Expr:
    dtype = dtype_of_code(to)
    if "bool" in (dtype, tensors.dtype_of(x)):
        return R.astype(x, dtype)
    return cx.te(lambda t: topi.reinterpret(t, dtype), x, name="bit_cast")


# Experimental until opset 9, in files of the converters of CoreML and Caffe2:


@converter("Scale")
def scale(cx: Context, x: Expr, *, scale: float = 1.0) -> Expr:
    return x * tensors.scalar(scale, x)


@converter("Affine")
@_rounded_once
def affine(cx: Context, x: Expr, *, alpha: float = 1.0, beta: float = 0.0) -> Expr:
    return x * tensors.scalar(alpha, x) + tensors.scalar(beta, x)


@converter("ScaledTanh")
@_rounded_once
def scaled_tanh(cx: Context, x: Expr, *, alpha: float = 1.0, beta: float = 1.0) -> Expr:
    return R.tanh(x * tensors.scalar(beta, x)) * tensors.scalar(alpha, x)


@converter("ParametricSoftplus")
@_rounded_once
def parametric_softplus(cx: Context, x: Expr, *, alpha: float = 1.0, beta: float = 1.0) -> Expr:
    return R.nn.softplus(x * tensors.scalar(beta, x)) * tensors.scalar(alpha, x)
