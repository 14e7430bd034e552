"""Normalisation by statistics of batches, groups of channels, or single instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import reduction
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype, computed, multiply, subtract
from relaxpy.ir.te.topi.shapes import normal_axis
from relaxpy.ir.te.topi.transform import reshape
from relaxpy.ir.tir import intrin, ops
from relaxpy.ir.tir.expr import PrimExpr

__all__ = ["batch_norm", "group_norm", "instance_norm"]


def _moments(x: Tensor, axes: Sequence[int], *, keepdims: bool) -> tuple[Tensor, Tensor]:
    """The mean along axes, and the mean of squared distances from it."""
    mean = reduction.mean(x, axes, keepdims=True)
    centered = subtract(x, mean)
    spread = reduction.mean(multiply(centered, centered), axes, keepdims=keepdims)
    return mean if keepdims else reduction.mean(x, axes, keepdims=False), spread


def _scaled(value: PrimExpr, gamma: PrimExpr | None, beta: PrimExpr | None) -> PrimExpr:
    if gamma is not None:
        value = ops.mul(value, ops.cast_to(gamma, value.dtype))
    return value if beta is None else ops.add(value, ops.cast_to(beta, value.dtype))


def _normalized(
    x: Tensor,
    axes: Sequence[int],
    epsilon: float,
    params: tuple[Tensor | None, Tensor | None],
    param_index: Callable[[Sequence[PrimExpr]], PrimExpr],
    dtype: DataType,
    name: str,
) -> Tensor:
    """x normalised by its moments along axes, then scaled and shifted by the parameters."""
    mean, variance = _moments(x, axes, keepdims=True)

    def element(*index: PrimExpr) -> PrimExpr:
        moment_index = [ops.const(0, i.dtype) if a in axes else i for a, i in enumerate(index)]
        inverse = intrin.rsqrt(ops.add(variance(*moment_index), ops.const(epsilon, x.dtype)))
        value = ops.mul(ops.sub(x(*index), mean(*moment_index)), inverse)
        channel = param_index(index)
        gamma, beta = (None if param is None else param(channel) for param in params)
        return ops.cast_to(_scaled(value, gamma, beta), dtype)

    return computed(x.shape, element, name, "broadcast")


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    training: bool = False,
    momentum: float = 0.1,
) -> list[Tensor]:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta along a channel axis.

    In training, the moments are those of the batch, and the moving moments approach them by
    `momentum`; otherwise the moving moments are used and returned unchanged. float16 is
    computed in float32.
    """
    axis = normal_axis(axis, data.ndim)
    wide = accumulator(data.dtype)
    x = as_dtype(data, wide)
    if training:
        mean, variance = _moments(x, [a for a in range(data.ndim) if a != axis], keepdims=False)
    else:
        mean, variance = as_dtype(moving_mean, wide), as_dtype(moving_var, wide)

    def element(*index: PrimExpr) -> PrimExpr:
        channel = index[axis]
        inverse = intrin.rsqrt(ops.add(variance(channel), ops.const(epsilon, wide)))
        # One factor for each channel: that is one product for each element.
        factor = _scaled(inverse, gamma(channel) if scale else None, None)
        value = ops.mul(ops.sub(x(*index), mean(channel)), factor)
        return ops.cast_to(_scaled(value, None, beta(channel) if center else None), data.dtype)

    def moved(moving: Tensor, current: Tensor) -> Tensor:
        def element(channel: PrimExpr) -> PrimExpr:
            if not training:
                return moving(channel)
            previous = ops.mul(ops.cast_to(moving(channel), wide), ops.const(1 - momentum, wide))
            new = ops.mul(current(channel), ops.const(momentum, wide))
            return ops.cast_to(ops.add(previous, new), moving.dtype)

        return computed(moving.shape, element, "moving")

    out = computed(data.shape, element, "T_batch_norm", "broadcast")
    return [out, moved(moving_mean, mean), moved(moving_var, variance)]


def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    channel_axis: int,
    axis: Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, with the moments along the axes.

    gamma and beta belong to the channel axis. float16 is computed in float32.
    """
    channel = normal_axis(channel_axis, data.ndim)
    axes = [normal_axis(a, data.ndim) for a in axis]
    x = as_dtype(data, accumulator(data.dtype))
    params = gamma if scale else None, beta if center else None
    return _normalized(
        x, axes, epsilon, params, lambda index: index[channel], data.dtype, "T_instance_norm"
    )


def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, with the moments of groups of channels.

    The moments are taken along the axes and within each group. float16 is computed in float32.
    """
    channel = normal_axis(channel_axis, data.ndim)
    size = data.shape[channel]
    groups = ops.const(num_groups, size.dtype)
    width = ops.floordiv(size, groups)
    split = (*data.shape[:channel], groups, width, *data.shape[channel + 1 :])
    split_axes = [a + (a > channel) for a in (normal_axis(a, data.ndim) for a in axes)]
    reduced = [*split_axes, channel + 1]
    x = reshape(as_dtype(data, accumulator(data.dtype)), split)
    params = gamma if scale else None, beta if center else None

    def param_index(index: Sequence[PrimExpr]) -> PrimExpr:
        return ops.add(ops.mul(index[channel], width), index[channel + 1])

    result = _normalized(x, reduced, epsilon, params, param_index, data.dtype, "T_group_norm")
    return reshape(result, data.shape)
