"""Normalisation by the moments of batches, groups of channels, or single instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition import gradients, rules
from relaxpy.ir.relax.op.definition.layouts import along
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.relax.op.definition.widening import gradient_in_float32
from relaxpy.ir.relax.op.nn import decompositions
from relaxpy.ir.relax.op.nn.normalization import standardized, through_moments
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _check_channels(
    data: rx.TensorStructInfo, params: Mapping[str, rx.TensorStructInfo], axis: int
) -> bool:
    """Return whether all known numbers of channels are provably that of data.

    Errors:
        StructInfoError: data holds no floats; a parameter has another datatype, is not a vector, or
            has provably not one element for each channel; the axis is out of range.
    """
    rules.require_float(data, "data")
    position = rules.normal_axis(axis, data.ndim) if data.ndim >= 0 else None
    sizes = rules.literal_shape(data)
    decided = True
    for name, sinfo in params.items():
        rules.require_dtype_of(sinfo, name, data)
        if sinfo.ndim not in (-1, 1):
            raise rules.refuse(
                f"{name} is a vector with one element for each channel, found {sinfo}", sinfo
            )
        shape = rules.literal_shape(sinfo)
        if sizes is None or shape is None or position is None:
            continue
        equal = prove_equal(shape[0], sizes[position])
        decided = decided and equal is True
        if equal is False:
            raise rules.refuse(
                f"{name} {rules.shape_text(shape)} has {rules.shown(shape[0])} elements, but axis "
                f"{position} "
                f"of data {rules.shape_text(sizes)} has {rules.shown(sizes[position])} channels",
                sinfo,
            )
    return decided


def _along_axis(parameter: Any, rank: int, axis: int) -> Any:
    """Reshape a vector to lie along an axis of a tensor of this rank."""
    others = tuple(k for k in range(rank) if k != axis)
    return R.expand_dims(parameter, others) if others else parameter


def _number(x: Any, shape: Sequence[PrimExpr], axes: Sequence[int]) -> rx.PrimValue:
    """The number of elements along axes, in the datatype of x."""
    dtype = cast("rx.TensorStructInfo", x.struct_info).dtype
    return rx.PrimValue(ops.cast_to(product([shape[a] for a in axes]), dtype))


def _gradient_batch_norm(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    x, gamma, beta, moving_mean, moving_var = cast("Any", call.args)
    out, mean_out, var_out = cast("Any", gradients.tuple_fields(gradient, 3))
    attrs = cast("Mapping[str, Any]", call.attrs)
    rank = gradients.require_rank(x, "batch_norm")
    axis = rules.normal_axis(attrs["axis"], rank)
    others = tuple(k for k in range(rank) if k != axis)

    def along(vector: Any) -> Any:
        return _along_axis(vector, rank, axis)

    g = out * along(gamma) if attrs["scale"] else out
    if attrs["training"]:
        centered, inverse = standardized(x, others, attrs["epsilon"])
        normal = centered * inverse
        momentum = attrs["momentum"]
        count = _number(x, gradients.require_shape(x, "batch_norm"), others)
        moved = along(mean_out) + 2 * along(var_out) * centered
        data_grad = through_moments(g, normal, inverse, others) + moved * momentum / count
        moving = [mean_out * (1 - momentum), var_out * (1 - momentum)]
    else:
        inverse = R.rsqrt(along(moving_var) + attrs["epsilon"])
        normal = (x - along(moving_mean)) * inverse
        data_grad = g * inverse
        spread = R.sum(g * normal * inverse * inverse, others)
        moving = [mean_out - R.sum(data_grad, others), var_out - spread * 0.5]
    return [
        data_grad,
        R.sum(out * normal, others) if attrs["scale"] else R.grad.no_grad(gamma),
        R.sum(out, others) if attrs["center"] else R.grad.no_grad(beta),
        *moving,
    ]


@register(
    "relax.nn.batch_norm",
    layout=along("axis"),
    pure=True,
    legalize=rules.by_te("nn.batch_norm", "batch_norm"),
    gradient=gradient_in_float32(_gradient_batch_norm),
    decompose=decompositions.batch_norm,
)
def batch_norm(
    data: rx.TensorStructInfo,
    gamma: rx.TensorStructInfo,
    beta: rx.TensorStructInfo,
    moving_mean: rx.TensorStructInfo,
    moving_var: rx.TensorStructInfo,
    axis: int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> rx.TupleStructInfo:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, and the moving moments.

    In training the moments are those of the batch along all axes but the channels, and the moving
    ones become (1 - momentum) * moving + momentum * batch. Otherwise the moving ones are used, and
    returned unchanged.

    Shapes:
        data                      float dtype
        gamma, beta               (channels,), used under `scale` and `center`
        moving_mean, moving_var   (channels,)
        result                    a tuple: as data, as moving_mean, as moving_var; of unknown
                                  shapes while the numbers of channels may differ
    Errors:
        StructInfoError: data holds no floats; a parameter has another datatype, is not a vector, or
            has provably not one element for each channel; the axis is out of range.
    """
    params = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    results: tuple[rx.TensorStructInfo, ...] = (data, moving_mean, moving_var)
    if not _check_channels(data, params, axis):
        results = tuple(rules.tensor(None, s.dtype, s.vdevice, s.ndim) for s in results)
    return rx.TupleStructInfo(results)


def _gradient_of_channels(
    g: Any, normal: Any, call: rx.Call, channel: int, rank: int
) -> tuple[rx.Expr, rx.Expr]:
    """The gradients of gamma and beta."""
    others = tuple(k for k in range(rank) if k != channel)
    gamma, beta = call.args[1:3]
    return (
        R.sum(g * normal, others) if call.attrs["scale"] else R.grad.no_grad(gamma),
        R.sum(g, others) if call.attrs["center"] else R.grad.no_grad(beta),
    )


def _gradient_instance_norm(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    x, gamma, _ = cast("Any", call.args)
    attrs = cast("Mapping[str, Any]", call.attrs)
    rank = gradients.require_rank(x, "instance_norm")
    channel = rules.normal_axis(attrs["channel_axis"], rank)
    axes = rules.normal_axes(attrs["axes"], rank)
    centered, inverse = standardized(x, axes, attrs["epsilon"])
    normal = centered * inverse
    g = gradient * _along_axis(gamma, rank, channel) if attrs["scale"] else gradient
    return [
        through_moments(g, normal, inverse, axes),
        *_gradient_of_channels(gradient, normal, call, channel, rank),
    ]


@register(
    "relax.nn.instance_norm",
    layout=along("channel_axis", "axes"),
    precision_policy=1,
    pure=True,
    legalize=rules.by_te("nn.instance_norm", "instance_norm", axes="axis"),
    gradient=gradient_in_float32(_gradient_instance_norm),
)
def instance_norm(
    data: rx.TensorStructInfo,
    gamma: rx.TensorStructInfo,
    beta: rx.TensorStructInfo,
    channel_axis: int,
    axes: tuple[int, ...],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> rx.TensorStructInfo:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, the moments taken along the axes.

    Shapes:
        data         float dtype
        gamma, beta  (channels,), used under `scale` and `center`
        result       as data
    Errors:
        StructInfoError: data holds no floats; a parameter has another datatype, is not a vector, or
            has provably not one element for each channel; an axis is out of range or occurs twice.
    """
    _check_channels(data, {"gamma": gamma, "beta": beta}, channel_axis)
    if data.ndim >= 0:
        rules.normal_axes(axes, data.ndim, "axes:")
    return data


def _gradient_group_norm(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """As the gradient of an instance norm, with the channel axis divided into groups."""
    x, gamma, _ = cast("Any", call.args)
    attrs = cast("Mapping[str, Any]", call.attrs)
    shape = gradients.require_shape(x, "group_norm")
    rank = len(shape)
    channel = rules.normal_axis(attrs["channel_axis"], rank)
    groups = ops.const(attrs["num_groups"], shape[channel].dtype)
    split = rx.ShapeExpr(
        (*shape[:channel], groups, ops.floordiv(shape[channel], groups), *shape[channel + 1 :])
    )
    split_axes = tuple(a + (a > channel) for a in rules.normal_axes(attrs["axes"], rank))
    reduced = (*split_axes, channel + 1)

    def grouped(value: Any) -> Any:
        return R.reshape(value, split)

    centered, inverse = standardized(grouped(x), reduced, attrs["epsilon"])
    normal = centered * inverse
    g = gradient * _along_axis(gamma, rank, channel) if attrs["scale"] else gradient
    data_grad = R.reshape(
        through_moments(grouped(g), normal, inverse, reduced), gradients.shape_like(x)
    )
    normal_data = R.reshape(normal, gradients.shape_like(x))
    return [data_grad, *_gradient_of_channels(gradient, normal_data, call, channel, rank)]


@register(
    "relax.nn.group_norm",
    layout=along("channel_axis", "axes"),
    precision_policy=1,
    pure=True,
    legalize=rules.by_te("nn.group_norm", "group_norm"),
    gradient=gradient_in_float32(_gradient_group_norm),
)
def group_norm(
    data: rx.TensorStructInfo,
    gamma: rx.TensorStructInfo,
    beta: rx.TensorStructInfo,
    num_groups: int,
    channel_axis: int,
    axes: tuple[int, ...],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> rx.TensorStructInfo:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, with the moments of groups of channels.

    The channels are `num_groups` groups of neighbours; the moments are taken along the axes and
    within each group.

    Shapes:
        data         float dtype; the number of channels is a multiple of `num_groups`
        gamma, beta  (channels,), used under `scale` and `center`
        result       as data
    Errors:
        StructInfoError: data holds no floats; a parameter has another datatype, is not a vector, or
            has provably not one element for each channel; the groups provably do not divide the
            channels; an axis is out of range, occurs twice, or is that of the channels.
    """
    _check_channels(data, {"gamma": gamma, "beta": beta}, channel_axis)
    if num_groups < 1:
        raise rules.refuse(f"num_groups is positive, found {num_groups}", num_groups)
    if data.ndim < 0:
        return data
    channel = rules.normal_axis(channel_axis, data.ndim)
    if channel in rules.normal_axes(axes, data.ndim, "axes:"):
        raise rules.refuse(
            f"the moments are not taken along the channel axis {channel} alone", axes
        )
    shape = rules.literal_shape(data)
    if shape is not None:
        size = shape[channel]
        remainder = ops.floormod(size, ops.const(num_groups, size.dtype))
        if (isinstance(remainder, IntImm) and remainder.value) or rules.differ(
            remainder, ops.const(0, size.dtype)
        ):
            raise rules.refuse(
                f"axis {channel} of data {rules.shape_text(shape)} has {rules.shown(size)} "
                f"channels, which are "
                f"not {num_groups} groups of one size",
                data,
            )
    return data
