"""Normalisation along axes or by moments, and its decompositions.

In decompositions, floats narrower than float32 are float32, as in the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.axis_rules import along, whole_along
from relaxpy.ir.ops.definition.gradients import gradient_in_float32, of_operand, require_rank
from relaxpy.ir.ops.definition.registry import R, family, register, rows
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape, tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, Var
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder
    from relaxpy.ir.relax.rewrite.map_bindings import PrecedingBindings


class NormalizedAxes:
    """The axes of the parameters of a normalisation in their order, and the remaining axes."""

    def __init__(self, rank: int, axes: Sequence[int]) -> None:
        self.axes = rules.normal_axes(axes, rank, "axes:")
        self.others = tuple(axis for axis in range(rank) if axis not in self.axes)
        self._ascending = sorted(range(len(self.axes)), key=self.axes.__getitem__)

    @staticmethod
    def of(call: rx.Call, attribute: str = "axes") -> NormalizedAxes:
        """Those in an attribute of a call."""
        axes = cast("Any", call.attrs[attribute])
        rank = require_rank(call.args[0], cast("Op", call.op).name)
        return NormalizedAxes(rank, [axes] if isinstance(axes, int) else axes)

    def beside_data(self, parameter: Any) -> Any:
        """Permute and expand a parameter to broadcast along its axes of the data."""
        if self.axes == tuple(range(len(self.others), len(self.others) + len(self.axes))):
            return parameter
        if self._ascending != list(range(len(self.axes))):
            parameter = R.permute_dims(parameter, self._ascending)
        return R.expand_dims(parameter, self.others) if self.others else parameter

    def of_parameter(self, gradient: Any) -> Any:
        """The gradient of a parameter, from one in the shape of the data."""
        total = R.sum(gradient, self.others) if self.others else gradient
        if self._ascending == list(range(len(self.axes))):
            return total
        return R.permute_dims(total, [self._ascending.index(k) for k in range(len(self.axes))])


def _known(call: rx.Call) -> rx.TensorStructInfo | None:
    """The struct info of the data, if its rank, and the datatype and shapes of others are known."""
    sinfos = [arg.struct_info for arg in call.args]
    tensors = [sinfo for sinfo in sinfos if isinstance(sinfo, rx.TensorStructInfo)]
    data = tensors[0]
    if len(tensors) < len(sinfos) or len({sinfo.dtype for sinfo in tensors}) > 1:
        return None
    if any(sinfo.get_shape() is None for sinfo in tensors[1:]):
        return None
    return None if data.ndim < 0 or data.dtype.is_void else data


def _by_statistics(
    new: PrecedingBindings, call: rx.Call, ndim: int, mean: rx.Expr, variance: rx.Expr
) -> rx.Tuple:
    """The results of a `batch_norm` with these statistics instead of the moving ones."""
    axis = cast("int", call.attrs["axis"]) % ndim
    others = [k for k in range(ndim) if k != axis]

    def beside(vector: rx.Expr) -> rx.Expr:
        return new.bound(R.expand_dims(vector, others)) if others else vector

    centered = new.bound(R.subtract(call.args[0], beside(mean)))
    return rx.Tuple((_scaled(new, call, centered, beside(variance), beside), mean, variance))


def _scaled(
    new: PrecedingBindings,
    call: rx.Call,
    centered: rx.Expr,
    variance: rx.Expr,
    beside: Callable[[rx.Expr], rx.Expr],
) -> rx.Expr:
    """Values divided by their standard deviation, with the scale and shift that `call` requests."""
    x, *vectors = call.args[:3]
    sinfo = tensor_of(x)
    positive = new.bound(R.add(variance, rx.const(call.attrs["epsilon"], sinfo.dtype)))
    result = new.bound(R.divide(centered, new.bound(R.sqrt(positive))))
    for name, operator, vector in zip(
        ("scale", "center"), (R.multiply, R.add), vectors, strict=True
    ):
        if call.attrs[name]:
            result = new.bound(operator(result, beside(vector)))
    return result


def batch_norm_decomposition(
    new: PrecedingBindings, call: rx.Call, training: bool
) -> rx.Expr | None:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, along one axis.

    In training, the mean and variance are those of the batch; part of them is added to the old.
    """
    data = _known(call)
    if data is None:
        return None
    if not training or not call.attrs["training"]:
        return _by_statistics(new, call, data.ndim, *call.args[3:])
    x, moving = call.args[0], call.args[3:]
    axis = cast("int", call.attrs["axis"]) % data.ndim
    others = [k for k in range(data.ndim) if k != axis]
    batch = [new.bound(R.mean(x, others)), new.bound(R.variance(x, others))]
    inner = _by_statistics(new, call, data.ndim, *batch)
    momentum = cast("float", call.attrs["momentum"])
    result = new.bound(rx.TupleGetItem(new.bound(inner), 0))
    updated: list[rx.Expr] = []
    for old, now in zip(moving, batch, strict=True):
        kept = new.bound(R.multiply(rx.const(1 - momentum, data.dtype), old))
        added = new.bound(R.multiply(rx.const(momentum, data.dtype), now))
        updated.append(new.bound(R.add(kept, added)))
    return rx.Tuple((result, *updated))


def layer_norm_decomposition(
    new: PrecedingBindings, call: rx.Call, training: bool
) -> rx.Expr | None:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over some axes, in training."""
    if not training or _known(call) is None:
        return None
    x, axes = call.args[0], call.attrs["axes"]
    centered = new.bound(R.subtract(x, new.bound(R.mean(x, axes, keepdims=True))))
    along = NormalizedAxes.of(call)
    variance = new.bound(R.variance(x, axes, keepdims=True))
    return _scaled(new, call, centered, variance, lambda v: new.bound(along.beside_data(v)))


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
_along = rows(
    _infer_along, _ALONG_DOC, lambda name: rules.by_te(f"nn.{name}", name), **whole_along("axis")
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
    """NORM: the struct info of data normalised along axes; the parameters have these in order."""
    rules.require_float(data, "data")
    positions = rules.normal_axes(axes, data.ndim, "axes:") if data.ndim >= 0 else None
    sizes = literal_shape(data)
    decided = True
    for name, sinfo in params.items():
        rules.require_dtype_of(sinfo, name, data)
        if 0 <= sinfo.ndim != len(axes):
            raise rules.refuse(
                f"{name} has rank {len(axes)}, as many as axes, found {sinfo}", sinfo
            )
        shape = literal_shape(sinfo)
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


def _gradients(
    call: Call,
    gradient: Any,
    along: NormalizedAxes,
    axes: Sequence[int],
    shape: rx.ShapeExpr | None = None,
) -> list[Expr]:
    """The gradients of data, gamma and beta, which lie along axes, with moments along `axes`.

    These are axes of the data in another `shape`, if there is one.
    """
    x, gamma, beta = cast("Any", call.args)
    attrs = cast("Mapping[str, Any]", call.attrs)

    def divided(value: Any) -> Any:
        return value if shape is None else R.reshape(value, shape)

    def whole(value: Any) -> Any:
        return value if shape is None else R.reshape(value, gradients.shape_like(x))

    centered, inverse = standardized(divided(x), axes, attrs["epsilon"])
    normal = centered * inverse
    g = gradient * along.beside_data(gamma) if attrs["scale"] else gradient
    return [
        whole(through_moments(divided(g), normal, inverse, axes)),
        along.of_parameter(gradient * whole(normal)) if attrs["scale"] else R.grad.no_grad(gamma),
        along.of_parameter(gradient) if attrs["center"] else R.grad.no_grad(beta),
    ]


def _gradient_layer_norm(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    along = NormalizedAxes.of(call)
    return _gradients(call, gradient, along, along.axes)


def _gradient_rms_norm(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    x, weight = cast("Any", call.args)
    along = NormalizedAxes.of(call)

    def mean(value: Any) -> Any:
        return R.mean(value, along.axes, keepdims=True)

    inverse = R.rsqrt(mean(x * x) + call.attrs["epsilon"])
    normal = x * inverse
    g = gradient * along.beside_data(weight)
    return [inverse * (g - normal * mean(g * normal)), along.of_parameter(gradient * normal)]


@register(
    "relax.nn.layer_norm",
    **whole_along("axes"),
    precision_policy=1,
    pure=True,
    legalize=rules.by_te("nn.layer_norm", "layer_norm", axes="axis"),
    gradient=gradient_in_float32(_gradient_layer_norm),
    decompose=layer_norm_decomposition,
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
    **whole_along("axes"),
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


def _check_channels(
    data: rx.TensorStructInfo, params: Mapping[str, rx.TensorStructInfo], axis: int
) -> bool:
    """True if all known numbers of channels are provably that of data."""
    rules.require_float(data, "data")
    position = rules.normal_axis(axis, data.ndim) if data.ndim >= 0 else None
    sizes = literal_shape(data)
    decided = True
    for name, sinfo in params.items():
        rules.require_dtype_of(sinfo, name, data)
        if sinfo.ndim not in (-1, 1):
            raise rules.refuse(
                f"{name} is a vector with one element for each channel, found {sinfo}", sinfo
            )
        shape = literal_shape(sinfo)
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
    axes = NormalizedAxes.of(call, "axis")
    others, along = axes.others, axes.beside_data
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
        axes.of_parameter(out * normal) if attrs["scale"] else R.grad.no_grad(gamma),
        axes.of_parameter(out) if attrs["center"] else R.grad.no_grad(beta),
        *moving,
    ]


@register(
    "relax.nn.batch_norm",
    layout=along("axis"),
    pure=True,
    legalize=rules.by_te("nn.batch_norm", "batch_norm"),
    gradient=gradient_in_float32(_gradient_batch_norm),
    decompose=batch_norm_decomposition,
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


def _gradient_instance_norm(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    axes = NormalizedAxes.of(call).axes
    return _gradients(call, gradient, NormalizedAxes.of(call, "channel_axis"), axes)


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
    shape = gradients.require_shape(call.args[0], "group_norm")
    along = NormalizedAxes.of(call, "channel_axis")
    [channel] = along.axes
    size = shape[channel]
    groups = ops.const(cast("int", call.attrs["num_groups"]), size.dtype)
    split = (*shape[:channel], groups, size // groups, *shape[channel + 1 :])
    axes = (*(a + (a > channel) for a in NormalizedAxes.of(call).axes), channel + 1)
    return _gradients(call, gradient, along, axes, rx.ShapeExpr(split))


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
    shape = literal_shape(data)
    if shape is not None:
        size = shape[channel]
        remainder = size % ops.const(num_groups, size.dtype)
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
