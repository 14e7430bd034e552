"""Activations: functions of each element between the layers of a network."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.ir.relax.nodes import Call, TensorStructInfo
from relaxpy.ir.relax.op.gradients import masked, of_operand
from relaxpy.ir.relax.op.registry import R, Rows, family, register
from relaxpy.ir.relax.op.rules import by_te, require_float
from relaxpy.ir.te import topi


def _gradient_relu(g: Any, x: Any, y: Any, call: Call) -> Any:
    return masked(g, R.greater(x, 0))


@register(
    "relax.nn.relu",
    pure=True,
    legalize=by_te(topi.nn.relu),
    gradient=of_operand(_gradient_relu),
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
    require_float(data, "data")
    return data


_DOC = """{}

Shapes:
    data    any, float dtype
    result  as data
Errors:
    StructInfoError: data is not a tensor, or holds no floats.
"""


def _gradient_gelu(g: Any, x: Any, y: Any, call: Call) -> Any:
    density = R.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return g * (0.5 + 0.5 * R.erf(x * math.sqrt(0.5)) + x * density)


def _gradient_gelu_tanh(g: Any, x: Any, y: Any, call: Call) -> Any:
    scale, square = math.sqrt(2 / math.pi), x * x
    power = R.tanh(scale * x * (1 + 0.044715 * square))
    slope = scale * (1 + 3 * 0.044715 * square)
    return g * 0.5 * (1 + power + x * (1 - power * power) * slope)


def _gradient_silu(g: Any, x: Any, y: Any, call: Call) -> Any:
    share = R.sigmoid(x)
    return g * (share + y * (1 - share))


_activation = Rows(_infer_float, _DOC, lambda name: by_te(getattr(topi.nn, name), name))

ACTIVATIONS = family(
    _activation("nn.gelu", "x * (1 + erf(x / sqrt(2))) / 2.", gradient=of_operand(_gradient_gelu)),
    _activation(
        "nn.gelu_tanh",
        "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2.",
        gradient=of_operand(_gradient_gelu_tanh),
    ),
    _activation("nn.silu", "x * sigmoid(x).", gradient=of_operand(_gradient_silu)),
)
gelu, gelu_tanh, silu = ACTIVATIONS.values()


def _gradient_leakyrelu(g: Any, x: Any, y: Any, call: Call) -> Any:
    return R.where(R.greater(x, 0), g, g * call.attrs["alpha"])


@register(
    "relax.nn.leakyrelu",
    pure=True,
    legalize=by_te(topi.nn.leaky_relu, "leaky_relu"),
    gradient=of_operand(_gradient_leakyrelu),
)
def leakyrelu(data: TensorStructInfo, alpha: float = 0.01) -> TensorStructInfo:
    """data where it is positive, else alpha * data.

    Shapes:
        data    any, float dtype
        result  as data
    Errors:
        StructInfoError: data is not a tensor, or holds no floats.
    """
    require_float(data, "data")
    return data
