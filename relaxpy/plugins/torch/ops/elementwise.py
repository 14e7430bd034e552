"""Element by element: arithmetic, comparisons, logic, casts, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import (
    as_dtype,
    dtype_of,
    is_float,
    rank_of,
    scalar,
    wide_dtype,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.arrays import dtype_name
from relaxpy.plugins.torch.context import NARROW, Context, cast
from relaxpy.plugins.torch.registry import Value, converter

#: Functions of floats; integers become the default float first.
_OF_FLOATS = {
    name: getattr(R, name)
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log"),
        *("log2", "log10", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
    )
}


def _sign(x: Expr) -> Expr:
    """The signs of numbers; that of NaN is 0."""
    if not is_float(x):
        return R.sign(x)
    zero, dtype = scalar(0, x), dtype_of(x)
    return R.astype(x > zero, dtype) - R.astype(x < zero, dtype)


#: Functions whose results are their operands.
_NOTHING = (
    *("positive", "clone", "alias", "detach", "detach_", "lift_fresh", "lift_fresh_copy"),
    *("contiguous", "resolve_conj", "resolve_neg", "conj", "_conj", "real"),
)
#: Functions that keep the datatype.
_SAME = {
    **{name: getattr(R, name) for name in ("abs", "square")},
    **dict.fromkeys(("sign", "sgn"), _sign),
    **dict.fromkeys(("neg", "_neg_view", "_neg_view_copy"), R.negative),
    "bitwise_not": R.bitwise_not,
    "relu": R.nn.relu,
    "selu": R.nn.selu,
    "silu": R.nn.silu,
    **dict.fromkeys(_NOTHING, lambda x: x),
}
#: Functions that are the identity on integers.
_OF_FRACTIONS = {name: getattr(R, name) for name in ("ceil", "floor", "trunc")}
#: Questions about floats, which no integer answers with yes.
_QUESTIONS = {name: getattr(R, name) for name in ("isinf", "isnan")}


def floated(cx: Context, x: Expr) -> Expr:
    """A tensor of floats: of the result's datatype if this one has integers."""
    if is_float(x):
        return x
    dtype = cx.result_dtype()
    return R.astype(x, dtype if "float" in dtype else "float32")


def _register() -> None:
    for name, op in _OF_FLOATS.items():
        converter(name)(lambda cx, x, op=op: op(floated(cx, x)))
    for name, op in _SAME.items():
        converter(name)(lambda cx, x, op=op: op(x))
    for name, op in _OF_FRACTIONS.items():
        converter(name)(lambda cx, x, op=op: op(x) if is_float(x) else x)
    for name, op in _QUESTIONS.items():
        converter(name)(lambda cx, x, op=op: op(x) if is_float(x) else R.not_equal(x, x))
    for name, op in _BINARY.items():
        converter(name)(_binary(op))
    for name, op in _FACTORS.items():
        converter(name)(lambda cx, x, y, op=op: op(*_factors(cx, x, y)))
    for name, op in _LOGIC.items():
        converter(name)(lambda cx, x, y, op=op: op(truth(cx, x), truth(cx, y)))
    converter("add")(_scaled(R.add))
    converter("sub")(_scaled(R.subtract))


#: Functions of two operands in one datatype.
_BINARY = {
    "eq": R.equal,
    "ne": R.not_equal,
    "lt": R.less,
    "le": R.less_equal,
    "gt": R.greater,
    "ge": R.greater_equal,
    "atan2": R.atan2,
    **dict.fromkeys(("maximum", "max.other"), R.maximum),
    **dict.fromkeys(("minimum", "min.other"), R.minimum),
    **dict.fromkeys(("bitwise_and", "__and__"), R.bitwise_and),
    **dict.fromkeys(("bitwise_or", "__or__"), R.bitwise_or),
    **dict.fromkeys(("bitwise_xor", "__xor__"), R.bitwise_xor),
}
#: Functions of factors in one datatype.
_FACTORS = {**dict.fromkeys(("mul", "multiply"), R.multiply), "floor_divide": R.floor_divide}
_LOGIC = {"logical_and": R.logical_and, "logical_or": R.logical_or, "logical_xor": R.logical_xor}


def operands(cx: Context, x: Value, y: Value) -> tuple[Expr, Expr]:
    """Two operands in the datatype that PyTorch promotes them to."""
    dtype = cx.promoted(0, 1)
    return cx.tensor(x, dtype), cx.tensor(y, dtype)


def _factors(cx: Context, x: Value, y: Value) -> tuple[Expr, Expr]:
    """Two operands in one datatype; PyTorch rounds neither numbers nor 0-d tensors to 16 bits."""
    dtype = cx.promoted(0, 1)
    if dtype in NARROW and not all(_is_exact(value, dtype) for value in (x, y)):
        dtype = "float32"
    return cx.tensor(x, dtype), cx.tensor(y, dtype)


def _is_exact(value: Value, dtype: str) -> bool:
    """True if a factor is a tensor with axes or of this datatype, or a number that it has."""
    if isinstance(value, Expr):
        return bool(rank_of(value)) or dtype_of(value) == dtype
    kind = getattr(torch, dtype)
    return isinstance(value, (int, float)) and torch.tensor(value, dtype=kind).item() == value


def _binary(op: Any) -> Callable[..., Expr]:
    def convert(cx: Context, x: Value, y: Value) -> Expr:
        result: Expr = op(*operands(cx, x, y))
        return result

    return convert


def _scaled(op: Any) -> Callable[..., Expr]:
    def convert(cx: Context, x: Value, y: Value, *, alpha: Value = 1) -> Expr:
        a, b = operands(cx, x, y)
        if alpha != 1:
            kind = wide_dtype(a) if is_float(a) else dtype_of(a)
            a, b = cx.tensor(a, kind), cx.tensor(b, kind) * cx.tensor(alpha, kind)
        if dtype_of(a) == "bool":
            return R.logical_or(a, b)
        result: Expr = op(a, b)
        return result

    return convert


def truth(cx: Context, x: Value) -> Expr:
    """A boolean tensor: true where elements are not zero."""
    tensor = cx.tensor(x)
    return tensor if dtype_of(tensor) == "bool" else R.not_equal(tensor, scalar(0, tensor))


def _shift(op: Any) -> Callable[..., Expr]:
    def convert(cx: Context, x: Value, y: Value) -> Expr:
        """A count outside [0, bits) yields 0, or only sign bits for signed right shifts."""
        a, b = operands(cx, x, y)
        if not isinstance(y, int):
            return op(a, b)
        bits = DataType(dtype_of(a)).bits
        if 0 <= y < bits:
            return op(a, b)
        if op is R.left_shift or dtype_of(a).startswith("u"):
            return R.zeros_like(a)
        return op(a, cx.tensor(bits - 1, dtype_of(a)))

    return convert


converter("bitwise_left_shift", "__lshift__")(_shift(R.left_shift))
converter("bitwise_right_shift", "__rshift__")(_shift(R.right_shift))


@converter("logical_not")
def logical_not(cx: Context, x: Expr) -> Expr:
    return R.logical_not(truth(cx, x))


@converter("div", "divide", "true_divide")
def div(cx: Context, x: Value, y: Value, *, rounding_mode: str | None = None) -> Expr:
    a, b = _factors(cx, x, y)
    if rounding_mode is None:
        return floated(cx, a) / floated(cx, b)
    if rounding_mode == "floor":
        return R.floor_divide(a, b)
    return truncated(a, b)


def truncated(a: Expr, b: Expr) -> Expr:
    """a / b rounded towards zero."""
    if not is_float(a):
        return tensors.truncated(a, b)
    kind = wide_dtype(a)
    return R.trunc(as_dtype(a, kind) / as_dtype(b, kind))


@converter("fmod")
def fmod(cx: Context, x: Value, y: Value) -> Expr:
    a, b = operands(cx, x, y)
    return R.mod(a, b) if is_float(a) else a - truncated(a, b) * b


@converter("remainder")
def remainder(cx: Context, x: Value, y: Value) -> Expr:
    """The remainder of C, and the divisor more where the signs differ: -0.0 stays."""
    a, b = operands(cx, x, y)
    if not is_float(a):
        return R.floor_mod(a, b)
    rest = cx.emit(R.mod(a, b))
    zero = scalar(0.0, a)
    differ = R.logical_xor(rest < zero, b < zero)
    return R.where(R.logical_and(R.not_equal(rest, zero), differ), rest + b, rest)


@converter("pow", "float_power")
def power(cx: Context, x: Value, y: Value) -> Expr:
    dtype = cx.result_dtype()
    a = cx.tensor(x, dtype)
    if y == 2:
        return a * a
    if y == 0.5:
        return R.sqrt(a)
    if y == -0.5:
        return R.rsqrt(a)
    if y == -1:
        return 1 / a
    return a ** cx.tensor(y, dtype)


@converter("reciprocal")
def reciprocal(cx: Context, x: Expr) -> Expr:
    y = floated(cx, x)
    return 1 / y


@converter("exp2")
def exp2(cx: Context, x: Expr) -> Expr:
    y = floated(cx, x)
    return 2**y


@converter("log1p", wide=True)
def log1p(cx: Context, x: Expr) -> Expr:
    wide = floated(cx, x)
    one = scalar(1.0, wide)
    above = one + wide
    # Goldberg 1991, theorem 4: exact where 1 + x loses digits of x
    ratio = R.log(above) * (wide / (above - one))
    small = R.equal(above, one)
    large = R.equal(above, scalar(math.inf, wide))
    return R.where(small, wide, R.where(large, above, ratio))


@converter("expm1", wide=True)
def expm1(cx: Context, x: Expr) -> Expr:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), which loses no digits."""
    y = floated(cx, x)
    half = R.tanh(y * scalar(0.5, y))
    return half * (R.exp(y) + 1)


@converter("round", "round.decimals", wide=True)
def rounded(cx: Context, x: Expr, *, decimals: int = 0) -> Expr:
    if not is_float(x):
        return x
    if not decimals:
        return R.round(x)
    factor = const(10.0 ** abs(decimals), dtype_of(x))
    if decimals > 0:
        return R.round(x * factor) / factor
    return R.round(x / factor) * factor


@converter("isfinite")
def isfinite(cx: Context, x: Expr) -> Expr:
    return R.isfinite(x) if is_float(x) else R.equal(x, x)


@converter("where")
def where(cx: Context, condition: Expr, x: Value, y: Value) -> Expr:
    dtype = cx.result_dtype()
    return R.where(truth(cx, condition), cx.tensor(x, dtype), cx.tensor(y, dtype))


@converter("masked_fill")
def masked_fill(cx: Context, x: Expr, mask: Expr, value: Value) -> Expr:
    return R.where(truth(cx, mask), cx.tensor(value, dtype_of(x)), x)


@converter("clamp", "clip", "clamp_min")
def clamp(cx: Context, x: Expr, low: Value = None, high: Value = None) -> Expr:
    dtype = cx.result_dtype()
    y = cx.tensor(x, dtype)
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low <= high:
        return R.clip(y, low, high)
    if low is not None:
        y = R.maximum(y, cx.tensor(low, dtype))
    return y if high is None else R.minimum(y, cx.tensor(high, dtype))


@converter("clamp_max")
def clamp_max(cx: Context, x: Expr, high: Value) -> Expr:
    return clamp(cx, x, None, high)


@converter("hardtanh")
def hardtanh(cx: Context, x: Expr, low: Value = -1.0, high: Value = 1.0) -> Expr:
    return clamp(cx, x, low, high)


@converter("relu6")
def relu6(cx: Context, x: Expr) -> Expr:
    return clamp(cx, x, 0, 6)


@converter("leaky_relu", wide=True)
def leaky_relu(cx: Context, x: Expr, slope: float = 0.01) -> Expr:
    if slope > 1 or slope < 0:
        return R.where(x > 0, x, x * scalar(slope, x))
    return R.nn.leakyrelu(x, float(slope))


@converter("elu", wide=True)
def elu(cx: Context, x: Expr, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> Expr:
    scaled = x if inner == 1 else x * scalar(float(inner), x)
    negative = expm1(cx, scaled) * scalar(float(alpha) * float(scale), x)
    positive = x if scale == 1 else x * scalar(float(scale), x)
    return R.where(x > 0, positive, negative)


@converter("gelu", wide=True)
def gelu(cx: Context, x: Expr, *, approximate: str = "none") -> Expr:
    return R.nn.gelu_tanh(x) if approximate == "tanh" else R.nn.gelu(x)


@converter("softplus", wide=True)
def softplus(cx: Context, x: Expr, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    return R.nn.softplus(x, float(beta), float(threshold))


@converter("hardsigmoid", wide=True)
def hardsigmoid(cx: Context, x: Expr) -> Expr:
    raised = clamp(cx, x + 3, 0.0, 6.0)
    return raised / 6


@converter("_to_copy", "to.dtype_layout")
def to_copy(cx: Context, x: Value, *, dtype: Any = None) -> Expr:
    tensor = cx.tensor(x)  # with `torch.vmap`, of a number, too
    return tensor if dtype is None else cast(tensor, dtype_name(dtype))


@converter("to.dtype", "_cast_Float", "type_as", "to.other", "to.device")
def to_dtype(cx: Context, x: Expr, *rest: Value) -> Expr:
    return cast(x, cx.result_dtype())


@converter("copy")
def copied(cx: Context, x: Expr, source: Value) -> Expr:
    return R.broadcast_to(cx.tensor(source, dtype_of(x)), tuple(cx.result_shape()))


@converter("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(cx: Context, x: Expr, p: float, train: bool) -> Expr:
    if train and p:
        raise UnsupportedError("it draws random numbers; model.eval() is exported without them")
    return x


_register()
