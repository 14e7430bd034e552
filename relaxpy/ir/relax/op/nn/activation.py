"""Activations: functions of each element between the layers of a network."""

from __future__ import annotations

from relaxpy.ir.relax.nodes import TensorStructInfo
from relaxpy.ir.relax.op.registry import Rows, family, register
from relaxpy.ir.relax.op.rules import by_te, require_float
from relaxpy.ir.te import topi


@register("relax.nn.relu", pure=True, legalize=by_te(topi.nn.relu))
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


_activation = Rows(_infer_float, _DOC, lambda name: by_te(getattr(topi.nn, name), name))

ACTIVATIONS = family(
    _activation("nn.gelu", "x * (1 + erf(x / sqrt(2))) / 2."),
    _activation("nn.gelu_tanh", "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2."),
    _activation("nn.silu", "x * sigmoid(x)."),
)
gelu, gelu_tanh, silu = ACTIVATIONS.values()


@register("relax.nn.leakyrelu", pure=True, legalize=by_te(topi.nn.leaky_relu, "leaky_relu"))
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
