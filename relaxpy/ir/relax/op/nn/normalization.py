"""Normalisation along axes: softmax, layer norm and RMS norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, Var
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import of_operand
from relaxpy.ir.relax.op.definition.layouts import along
from relaxpy.ir.relax.op.definition.registry import R, Rows, family, register
from relaxpy.ir.relax.op.definition.sharding import whole_along
from relaxpy.ir.relax.op.definition.widening import gradient_in_float32
from relaxpy.ir.relax.op.nn import decompositions
from relaxpy.ir.relax.op.nn.decompositions import NormalizedAxes

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _infer_along(data: TensorStructInfo, axis: int = -1) -> TensorStructInfo:
    rules.require_float(data, "data")
    if data.ndim >= 0:
        rules.normal_axis(axis, data.ndim)
    return data


_ALONG_DOC = """{} with m = max(x), the sum and the maximum along the axis.

Shapes:
    data    rank at least 1, float dtype
    result  as data
Errors:
    StructInfoError: data holds no floats, or the axis is out of range.
Rule:
    Subtracting the maximum keeps every exponent <= 0, so nothing overflows
    (Blanchard, Higham & Higham, IMA J. Numer. Anal. 41(4), 2021).
"""
_along = Rows(
    _infer_along,
    _ALONG_DOC,
    lambda name: rules.by_te(f"nn.{name}", name),
    layout=along("axis"),
    sharding=whole_along,
)


def _gradient_softmax(g: Any, x: Any, y: Any, call: Call) -> Any:
    return (g - R.sum(g * y, call.attrs["axis"], keepdims=True)) * y


def _gradient_log_softmax(g: Any, x: Any, y: Any, call: Call) -> Any:
    return g - R.sum(g, call.attrs["axis"], keepdims=True) * R.exp(y)


NORMALIZED = family(
    _along(
        "nn.softmax",
        "exp(x - m) / sum(exp(x - m))",
        gradient=gradient_in_float32(of_operand(_gradient_softmax)),
    ),
    _along(
        "nn.log_softmax",
        "x - m - log(sum(exp(x - m)))",
        gradient=gradient_in_float32(of_operand(_gradient_log_softmax)),
    ),
)
softmax, log_softmax = NORMALIZED.values()


def _normalized(
    data: TensorStructInfo, params: dict[str, TensorStructInfo], axes: Sequence[int]
) -> TensorStructInfo:
    """NORM: the struct info of data normalised along axes, which the parameters have in this order.

    Errors:
        StructInfoError: data holds no floats; a parameter has another datatype, another rank than
            there are axes, or a provably different size; an axis is out of range or occurs twice.
    """
    rules.require_float(data, "data")
    positions = rules.normal_axes(axes, data.ndim, "axes:") if data.ndim >= 0 else None
    sizes = rules.literal_shape(data)
    decided = True
    for name, sinfo in params.items():
        rules.require_dtype_of(sinfo, name, data)
        if 0 <= sinfo.ndim != len(axes):
            raise rules.refuse(
                f"{name} has rank {len(axes)}, as many as axes, found {sinfo}", sinfo
            )
        shape = rules.literal_shape(sinfo)
        if sizes is None or shape is None or positions is None:
            continue
        for k, (size, axis) in enumerate(zip(shape, positions, strict=True)):
            equal = prove_equal(size, sizes[axis])
            decided = decided and equal is True
            if equal is False:
                raise rules.refuse(
                    f"dimension {k} of {name} {rules.shape_text(shape)} is {rules.shown(size)}, "
                    f"axis {axis} of data {rules.shape_text(sizes)} is {rules.shown(sizes[axis])}",
                    sinfo,
                )
    return data if decided else rules.tensor(None, data.dtype, data.vdevice, data.ndim)


def standardized(x: Any, axes: Sequence[int], epsilon: Any) -> tuple[Any, Any]:
    """x less its mean along axes, and the inverse of its standard deviation."""
    centered = x - R.mean(x, axes, keepdims=True)
    return centered, R.rsqrt(R.mean(centered * centered, axes, keepdims=True) + epsilon)


def through_moments(g: Any, normal: Any, inverse: Any, axes: Sequence[int]) -> Any:
    """The gradient of the data from that of the normalised data."""

    def mean(value: Any) -> Any:
        return R.mean(value, tuple(axes), keepdims=True)

    return inverse * (g - mean(g) - normal * mean(g * normal))


def _gradient_layer_norm(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    x, gamma, beta = cast("Any", call.args)
    along = NormalizedAxes(call)
    centered, inverse = standardized(x, along.axes, call.attrs["epsilon"])
    normal = centered * inverse
    g = gradient * along.beside_data(gamma) if call.attrs["scale"] else gradient
    return [
        through_moments(g, normal, inverse, along.axes),
        along.of_parameter(gradient * normal) if call.attrs["scale"] else R.grad.no_grad(gamma),
        along.of_parameter(gradient) if call.attrs["center"] else R.grad.no_grad(beta),
    ]


def _gradient_rms_norm(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    x, weight = cast("Any", call.args)
    along = NormalizedAxes(call)

    def mean(value: Any) -> Any:
        return R.mean(value, along.axes, keepdims=True)

    inverse = R.rsqrt(mean(x * x) + call.attrs["epsilon"])
    normal = x * inverse
    g = gradient * along.beside_data(weight)
    return [inverse * (g - normal * mean(g * normal)), along.of_parameter(gradient * normal)]


@register(
    "relax.nn.layer_norm",
    layout=along("axes"),
    sharding=whole_along,
    precision_policy=1,
    pure=True,
    legalize=rules.by_te("nn.layer_norm", "layer_norm", axes="axis"),
    gradient=gradient_in_float32(_gradient_layer_norm),
    decompose=decompositions.layer_norm,
)
def layer_norm(
    data: TensorStructInfo,
    gamma: TensorStructInfo,
    beta: TensorStructInfo,
    axes: tuple[int, ...],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> TensorStructInfo:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments taken along the axes.

    Shapes:
        data         any, float dtype
        gamma, beta  the sizes of the axes; used under `scale` and `center`
        result       as data
    Errors:
        StructInfoError: data holds no floats; gamma or beta has another datatype, another rank than
            there are axes, or a provably different size; an axis is out of range or occurs twice.
    """
    return _normalized(data, {"gamma": gamma, "beta": beta}, axes)


@register(
    "relax.nn.rms_norm",
    layout=along("axes"),
    sharding=whole_along,
    precision_policy=1,
    pure=True,
    legalize=rules.by_te("nn.rms_norm", "rms_norm", axes="axis"),
    gradient=gradient_in_float32(_gradient_rms_norm),
)
def rms_norm(
    data: TensorStructInfo,
    weight: TensorStructInfo,
    axes: tuple[int, ...] = (-1,),
    epsilon: float = 1e-5,
) -> TensorStructInfo:
    """x / sqrt(mean(x * x) + epsilon) * weight, the mean taken along the axes.

    Shapes:
        data    any, float dtype
        weight  the sizes of the axes
        result  as data
    Errors:
        StructInfoError: data holds no floats; weight has another datatype, another rank than there
            are axes, or a provably different size; an axis is out of range or occurs twice.
    """
    return _normalized(data, {"weight": weight}, axes)
