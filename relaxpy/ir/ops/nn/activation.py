"""Activations: elementwise functions between the layers of a network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir.op_record import Memory
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.axis_rules import BY_ELEMENT, along, same_layout
from relaxpy.ir.ops.definition.gradients import gradient_in_float32
from relaxpy.ir.ops.definition.registry import R, family, register, rows
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, Tuple, TupleStructInfo, Var, const
from relaxpy.ir.te import topi
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _gradient_relu(g: Any, x: Any, y: Any, call: Call) -> Any:
    # By the result, so that the operand need not be kept.
    return R.where(R.less_equal(y, 0), const(0, x.struct_info.dtype), g)


@register(
    "relax.nn.relu",
    **BY_ELEMENT,
    precision_policy=1,
    pure=True,
    in_place=True,
    activation=True,
    legalize=rules.by_te("nn.relu"),
    gradient=gradients.of_operand(_gradient_relu),
)
def relu(data: TensorStructInfo) -> TensorStructInfo:
    """max(data, 0).

    Shapes:
        data    any
        result  as data
    Errors:
        StructInfoError: data is not a tensor.
    """
    return data


def _infer_float(data: TensorStructInfo) -> TensorStructInfo:
    rules.require_float(data, "data")
    return data


_DOC = """{}

Shapes:
    data    any, float dtype
    result  as data
Errors:
    StructInfoError: data is not a tensor, or holds no floats.
"""


_FAR = 40
"""Beyond this distance from 0, the slopes of activations are 0 and 1 within rounding."""


def _gradient_gelu(g: Any, x: Any, y: Any, call: Call) -> Any:
    x = R.clip(x, -_FAR, _FAR)
    density = R.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return g * (0.5 + 0.5 * R.erf(x * math.sqrt(0.5)) + x * density)


def _gradient_gelu_tanh(g: Any, x: Any, y: Any, call: Call) -> Any:
    x = R.clip(x, -_FAR, _FAR)
    scale, square = math.sqrt(2 / math.pi), x * x
    power = R.tanh(scale * x * (1 + 0.044715 * square))
    slope = scale * (1 + 3 * 0.044715 * square)
    return g * 0.5 * (1 + power + x * (1 - power * power) * slope)


def _gradient_silu(g: Any, x: Any, y: Any, call: Call) -> Any:
    share = R.sigmoid(x)
    return g * share * (1 + R.clip(x, -_FAR, _FAR) * (1 - share))


_activation = rows(
    _infer_float,
    _DOC,
    lambda name: rules.by_te(f"nn.{name}", name),
    precision_policy=1,
    **BY_ELEMENT,
)

ACTIVATIONS = family(
    _activation(
        "nn.gelu",
        "x * (1 + erf(x / sqrt(2))) / 2.",
        gradient=gradient_in_float32(gradients.of_operand(_gradient_gelu)),
        activation=True,
    ),
    _activation(
        "nn.gelu_tanh",
        "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2.",
        gradient=gradient_in_float32(gradients.of_operand(_gradient_gelu_tanh)),
        activation=True,
    ),
    _activation(
        "nn.silu",
        "x * sigmoid(x).",
        in_place=True,
        gradient=gradient_in_float32(gradients.of_operand(_gradient_silu)),
        activation=True,
    ),
)
gelu, gelu_tanh, silu = ACTIVATIONS.values()


def _gradient_leakyrelu(g: Any, x: Any, y: Any, call: Call) -> Any:
    return R.where(R.greater(x, 0), g, g * call.attrs["alpha"])


@register(
    "relax.nn.leakyrelu",
    **BY_ELEMENT,
    pure=True,
    legalize=rules.by_te("nn.leaky_relu", "leaky_relu"),
    gradient=gradient_in_float32(gradients.of_operand(_gradient_leakyrelu)),
)
def leakyrelu(data: TensorStructInfo, alpha: float = 0.01) -> TensorStructInfo:
    """data where it is positive, else alpha * data.

    Shapes:
        data    any, float dtype
        result  as data
    Errors:
        StructInfoError: data is not a tensor, or holds no floats.
    """
    rules.require_float(data, "data")
    return data


def _gradient_selu(g: Any, x: Any, y: Any, call: Call) -> Any:
    scale, alpha = topi.nn.SELU_SCALE, topi.nn.SELU_ALPHA
    below = R.exp(R.minimum(x, 0)) * (scale * alpha)
    return g * R.where(R.greater(x, 0), R.full_like(x, scale), below)


SELU = _activation(
    "nn.selu",
    "1.0507 * x where x is positive, else 1.7581 * (exp(x) - 1).",
    gradient=gradient_in_float32(gradients.of_operand(_gradient_selu)),
)
(selu,) = family(SELU).values()


def _gradient_softplus(g: Any, x: Any, y: Any, call: Call) -> Any:
    power = x * call.attrs["beta"]
    return R.where(R.greater(power, call.attrs["threshold"]), g, g * R.sigmoid(power))


@register(
    "relax.nn.softplus",
    **BY_ELEMENT,
    pure=True,
    legalize=rules.by_te("nn.softplus"),
    gradient=gradient_in_float32(gradients.of_operand(_gradient_softplus)),
)
def softplus(
    data: TensorStructInfo, beta: float = 1.0, threshold: float = 20.0
) -> TensorStructInfo:
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above the threshold.

    Shapes:
        data    any, float dtype
        result  as data
    Errors:
        StructInfoError: data is not a tensor, or holds no floats, or `beta` is 0.
    """
    rules.require_float(data, "data")
    if beta == 0:
        raise rules.refuse("beta is other than 0")
    return data


def _gradient_prelu(g: Any, x: Any, alpha: Any, axis: int) -> list[Expr]:
    rank = gradients.require_rank(x, "prelu")
    axis = rules.normal_axis(axis, rank)
    others = tuple(k for k in range(rank) if k != axis)
    slope = R.expand_dims(alpha, others) if others else alpha
    positive = R.greater(x, 0)
    below = R.where(positive, R.zeros_like(g), g * x)
    total = R.sum(below, others) if others else below
    return [R.where(positive, g, g * slope), gradients.unbroadcast(total, alpha)]


@register(
    "relax.nn.prelu",
    layout=along("axis"),
    pure=True,
    legalize=rules.by_te("nn.prelu"),
    gradient=gradient_in_float32(gradients.of_operands(_gradient_prelu)),
)
def prelu(data: TensorStructInfo, alpha: TensorStructInfo, axis: int = 1) -> TensorStructInfo:
    """data where it is positive, else alpha * data, with a slope for each channel.

    Shapes:
        data    any, float dtype
        alpha   (channels,) along the axis, or (1,)
        result  as data
    Errors:
        StructInfoError: data holds no floats, alpha has another datatype or is not a vector, its
            size provably is neither 1 nor that of the axis, or the axis is out of range.
    """
    rules.require_float(data, "data")
    rules.require_dtype_of(alpha, "alpha", data)
    if alpha.ndim not in (-1, 1):
        raise rules.refuse(f"alpha is a vector, found {alpha}", alpha)
    position = rules.normal_axis(axis, data.ndim) if data.ndim >= 0 else None
    sizes, slopes = literal_shape(data), literal_shape(alpha)
    if sizes is None or slopes is None or position is None or rules.is_one(slopes[0]):
        return data
    if rules.differ(slopes[0], sizes[position]):
        raise rules.refuse(
            f"alpha {rules.shape_text(slopes)} has {rules.shown(slopes[0])} slopes, but axis "
            f"{position} of "
            f"data {rules.shape_text(sizes)} has {rules.shown(sizes[position])} channels",
            alpha,
        )
    return data


def _legalize_dropout(builder: BlockBuilder, call: Call) -> Expr:
    [data] = call.args
    return Tuple((data, R.ones_like(data)))


def _gradient_dropout(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    return [gradients.tuple_fields(gradient, 2)[0]]


@register(
    "relax.nn.dropout",
    layout=same_layout,
    precision_policy=1,
    pure=True,
    memory=Memory.SAME,
    legalize=_legalize_dropout,
    gradient=_gradient_dropout,
)
def dropout(data: TensorStructInfo, rate: float = 0.5) -> TupleStructInfo:
    """data and a mask of ones: dropout is the identity at run time.

    Shapes:
        data    any
        result  a tuple of two tensors as data
    """
    return TupleStructInfo((data, data))


@user_facing
def relu6(data: Expr) -> Expr:
    """min(max(data, 0), 6): no operator, but a call of `clip`."""
    return cast("Expr", R.clip(data, 0, 6))
