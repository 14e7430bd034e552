"""Normalisation and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.tensors import (
    Size,
    as_dtype,
    dtype_of,
    product,
    rank_of,
    reshaped,
    scalar,
    shape_of,
    wide_dtype,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import Value, converter


@converter("_softmax", "softmax.int", "special_softmax", "_log_softmax", "log_softmax.int")
def softmax(
    cx: Context, x: Expr, axis: int, half_to_float: Value = None, *, dtype: Any = None
) -> Expr:
    y = cx.tensor(x, cx.result_dtype())
    is_log = "log_softmax" in str(cx.node.target)
    if not rank_of(x):
        return R.multiply(y, scalar(0.0, y)) if is_log else R.exp(R.multiply(y, scalar(0.0, y)))
    op = R.nn.log_softmax if is_log else R.nn.softmax
    return op(y, cx.axis(axis, x))


def _moments(x: Expr, axes: Sequence[int]) -> tuple[Expr, Expr]:
    """The mean and the variance, with their axes kept."""
    mean = R.mean(x, list(axes), True)
    centred = R.subtract(x, mean)
    return mean, R.mean(R.multiply(centred, centred), list(axes), True)


def _affine(
    x: Expr, sizes: Sequence[Size], weight: Expr | None, bias: Expr | None
) -> tuple[Expr, Expr, dict[str, bool]]:
    """Scale and bias of a normalisation, by default 1 and 0, and whether each is given."""
    gamma = weight if weight is not None else R.ones(tuple(sizes), dtype_of(x))
    beta = bias if bias is not None else R.zeros(tuple(sizes), dtype_of(x))
    return gamma, beta, {"center": bias is not None, "scale": weight is not None}


@converter("layer_norm")
def layer_norm(
    cx: Context,
    x: Expr,
    shape: Sequence[Size],
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
) -> Expr:
    axes = list(range(-len(shape), 0))
    sizes = shape_of(x)[axes[0] :]
    gamma, beta, options = _affine(x, sizes, weight, bias)
    return R.nn.layer_norm(x, gamma, beta, axes, eps, **options)


@converter("native_layer_norm", wide=True)
def native_layer_norm(
    cx: Context, x: Expr, shape: Sequence[Size], weight: Expr | None, bias: Expr | None, eps: float
) -> tuple[Expr, Expr, Expr]:
    axes = list(range(rank_of(x) - len(shape), rank_of(x)))
    mean, variance = _moments(x, axes)
    y = layer_norm(cx, x, shape, weight, bias, eps)
    return y, mean, R.rsqrt(R.add(variance, scalar(eps, variance)))


@converter("rms_norm", "_fused_rms_norm", wide=True)
def rms_norm(
    cx: Context,
    x: Expr,
    shape: Sequence[Size],
    weight: Expr | None = None,
    eps: float | None = None,
) -> Any:
    epsilon = torch.finfo(getattr(torch, dtype_of(x))).eps if eps is None else eps
    axes = list(range(rank_of(x) - len(shape), rank_of(x)))
    gamma, _, _ = _affine(x, shape_of(x)[axes[0] :], weight, None)
    y = R.nn.rms_norm(x, gamma, axes, epsilon)
    if "_fused" not in str(cx.node.target):
        return y
    squares = R.mean(R.multiply(x, x), axes, True)
    return y, R.rsqrt(R.add(squares, scalar(epsilon, squares)))


@converter("group_norm")
def group_norm(
    cx: Context,
    x: Expr,
    groups: int,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
) -> Expr:
    gamma, beta, options = _affine(x, [shape_of(x)[1]], weight, bias)
    axes = list(range(2, rank_of(x)))
    return R.nn.group_norm(x, gamma, beta, groups, 1, axes, eps, **options)


@converter("instance_norm", wide=True)
def instance_norm(
    cx: Context,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr | None,
    variance: Expr | None,
    of_input: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> Expr:
    """Normalisation of each channel of each image: of groups that are one channel."""
    channels = shape_of(x)[1]
    if not isinstance(channels, int) or (mean is not None and of_input):
        raise UnsupportedError("it changes statistics, or the number of channels is unknown")
    if not of_input and mean is not None and variance is not None:
        return inference_norm(x, weight, bias, mean, variance, eps)
    return group_norm(cx, x, channels, weight, bias, eps)


@converter("native_group_norm", wide=True)
def native_group_norm(
    cx: Context,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    batch: Size,
    channels: Size,
    spatial: Size,
    groups: int,
    eps: float,
) -> tuple[Expr, Expr, Expr]:
    apart = reshaped(x, [batch, groups, cx.simplify(product([channels, spatial]) // groups)])
    mean, variance = _moments(apart, [2])
    mean, variance = R.squeeze(mean, [2]), R.squeeze(variance, [2])
    y = group_norm(cx, x, groups, weight, bias, eps)
    return y, mean, R.rsqrt(R.add(variance, scalar(eps, variance)))


def _channels(x: Expr, vector: Expr) -> Expr:
    return R.reshape(vector, [1, -1, *[1] * (rank_of(x) - 2)])


def _by_statistics(
    x: Expr, mean: Expr, variance: Expr, weight: Expr | None, bias: Expr | None, eps: float
) -> Expr:
    """x normalised by a mean and a variance of its channels."""
    wide = wide_dtype(x)
    factor = R.rsqrt(R.add(R.astype(variance, wide), scalar(eps, R.zeros((), wide))))
    centred = R.subtract(R.astype(x, wide), _channels(x, R.astype(mean, wide)))
    y = R.multiply(centred, _channels(x, factor))
    if weight is not None:
        y = R.multiply(y, _channels(x, as_dtype(weight, dtype_of(y))))
    if bias is not None:
        y = R.add(y, _channels(x, as_dtype(bias, dtype_of(y))))
    return as_dtype(y, dtype_of(x))


@converter("batch_norm", wide=True)
def batch_norm(
    cx: Context,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr | None,
    variance: Expr | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> Expr:
    if rank_of(x) < 2:  # PyTorch admits it where there are no elements
        return R.multiply(x, scalar(1.0, x))
    if training or mean is None or variance is None:
        axes = [k for k in range(rank_of(x)) if k != 1]
        m, v = _moments(x, axes)
        return _by_statistics(x, R.squeeze(m, axes), R.squeeze(v, axes), weight, bias, eps)
    return inference_norm(x, weight, bias, mean, variance, eps)


def inference_norm(
    x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, variance: Expr, eps: float
) -> Expr:
    """Batch normalisation by given statistics."""
    gamma, beta, options = _affine(x, [shape_of(x)[1]], weight, bias)
    if len({dtype_of(item) for item in (x, gamma, beta, mean, variance)}) > 1:
        return _by_statistics(x, mean, variance, weight, bias, eps)
    result = R.nn.batch_norm(x, gamma, beta, mean, variance, 1, eps, training=False, **options)
    return result[0]


@converter("_native_batch_norm_legit_no_training", wide=True)
def batch_norm_inference(
    cx: Context,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr,
    variance: Expr,
    momentum: float,
    eps: float,
) -> tuple[Expr, Expr, Expr]:
    empty = R.zeros((0,), wide_dtype(x))
    return inference_norm(x, weight, bias, mean, variance, eps), empty, empty
