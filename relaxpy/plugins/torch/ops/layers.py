"""Normalisations, attention, recurrent layers: one matmul of all inputs, then a loop of states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr
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


@converter("scaled_dot_product_attention", wide=True)
def attention(
    cx: Context,
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    if dropout:
        raise UnsupportedError("it draws random numbers")
    rank = rank_of(query)
    if enable_gqa:
        key, value = (_repeated(cx, query, item) for item in (key, value))
    size = shape_of(query)[-1]
    if scale is None and isinstance(size, int):
        scale = 1 / math.sqrt(size)
    factor: Any = scalar(scale, query) if scale is not None else None
    if factor is None:
        factor = R.rsqrt(cx.tensor(size, dtype_of(query)))
    last = [*range(rank - 2), rank - 1, rank - 2]
    scores = R.matmul(query * factor, R.permute_dims(key, last))
    if causal:
        mask = _causal(cx, query, key)
    if mask is None:
        return R.matmul(R.nn.softmax(scores), value)
    least = scalar(-math.inf, query)
    is_bool = dtype_of(mask) == "bool"
    scores = cx.emit(R.where(mask, scores, least) if is_bool else scores + mask)
    weights = R.nn.softmax(scores)
    if not causal:
        # a row without any key gives zeros
        none = R.equal(R.max(scores, [rank_of(scores) - 1], True), least)
        weights = R.where(none, scalar(0.0, query), weights)
    return R.matmul(weights, value)


def _causal(cx: Context, query: Expr, key: Expr) -> Expr:
    rows, columns = shape_of(query)[-2], shape_of(key)[-2]
    at = R.expand_dims(R.arange(0, rows, 1, "int64"), 1)
    return R.expand_dims(R.arange(0, columns, 1, "int64"), 0) <= at


def _repeated(cx: Context, query: Expr, x: Expr) -> Expr:
    """Keys or values with each head as often as queries share it."""
    heads, own = shape_of(query)[-3], shape_of(x)[-3]
    if cx.importer.symbols.equal(heads, own):
        return x
    *outer, _, length, size = shape_of(x)
    times = cx.simplify(heads // own)
    wide = R.broadcast_to(R.expand_dims(x, rank_of(x) - 2), (*outer, own, times, length, size))
    return reshaped(wide, [*outer, heads, length, size])


def _joint_attention(
    cx: Context,
    x: Expr,
    heads: int,
    weight: Expr,
    bias: Expr,
    out_weight: Expr,
    out_bias: Expr,
    mask: Expr | None,
    mask_type: int | None,
) -> tuple[Expr, Expr]:
    """Self-attention by one product for queries, keys and values; and its weights by head."""
    batch, length, width = shape_of(x)
    size = cx.simplify(width // heads)
    joint = R.matmul(x, R.permute_dims(weight)) + bias
    apart = R.permute_dims(reshaped(joint, [batch, length, 3, heads, size]), [2, 0, 3, 1, 4])
    parts = cx.emit(R.split(apart, 3, 0))
    query, key, value = (R.squeeze(cx.emit(parts[k]), [0]) for k in range(3))
    factor = R.rsqrt(cx.tensor(size, dtype_of(x)))
    scores = R.matmul(query * factor, R.permute_dims(key, [0, 1, 3, 2]))
    if mask is not None:
        if mask_type == 1:
            mask = reshaped(mask, [batch, 1, 1, length])
        if dtype_of(mask) == "bool":
            scores = R.where(mask, scalar(-math.inf, x), scores)
        else:
            scores = scores + mask
    weights = cx.emit(R.nn.softmax(scores))
    mixed = R.permute_dims(R.matmul(weights, value), [0, 2, 1, 3])
    y = R.matmul(reshaped(mixed, [batch, length, width]), R.permute_dims(out_weight))
    return y + out_bias, weights


@converter("_native_multi_head_attention", wide=True)
def native_multi_head_attention(
    cx: Context,
    query: Expr,
    key: Expr,
    value: Expr,
    width: int,
    heads: int,
    weight: Expr,
    bias: Expr,
    out_weight: Expr,
    out_bias: Expr,
    mask: Expr | None = None,
    need_weights: bool = True,
    average: bool = True,
    mask_type: int | None = None,
) -> tuple[Expr, Expr]:
    if query is not key or key is not value:
        raise UnsupportedError("attention of several tensors by one product")
    y, weights = _joint_attention(
        cx, query, heads, weight, bias, out_weight, out_bias, mask, mask_type
    )
    if not need_weights:
        return y, R.zeros((0,), dtype_of(query))
    return y, R.mean(weights, [1]) if average else weights


@converter("_transformer_encoder_layer_fwd", wide=True)
def transformer_encoder_layer(
    cx: Context,
    x: Expr,
    width: int,
    heads: int,
    weight: Expr,
    bias: Expr,
    out_weight: Expr,
    out_bias: Expr,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    *rest: Any,
) -> Expr:
    first, second = rest[:2], rest[2:4]
    weight_1, bias_1, weight_2, bias_2 = rest[4:8]
    mask, mask_type = [*rest[8:], None, None][:2]

    def normalised(y: Expr, affine: Any) -> Expr:
        return R.nn.layer_norm(y, *affine, [rank_of(y) - 1], eps)

    def attended(y: Expr) -> Expr:
        return _joint_attention(cx, y, heads, weight, bias, out_weight, out_bias, mask, mask_type)[
            0
        ]

    def fed(y: Expr) -> Expr:
        hidden = R.matmul(y, R.permute_dims(weight_1)) + bias_1
        active = R.nn.gelu(hidden) if use_gelu else R.nn.relu(hidden)
        return R.matmul(active, R.permute_dims(weight_2)) + bias_2

    if norm_first:
        middle = cx.emit(x + attended(cx.emit(normalised(x, first))))
        return middle + fed(cx.emit(normalised(middle, second)))
    middle = cx.emit(normalised(x + attended(x), first))
    return normalised(middle + fed(middle), second)


@converter("_softmax", "softmax.int", "special_softmax", "_log_softmax", "log_softmax.int")
def softmax(
    cx: Context, x: Expr, axis: int, half_to_float: Value = None, *, dtype: Any = None
) -> Expr:
    y = cx.tensor(x, cx.result_dtype())
    is_log = "log_softmax" in str(cx.node.target)
    if not rank_of(x):
        return y * 0 if is_log else R.exp(y * 0)
    op = R.nn.log_softmax if is_log else R.nn.softmax
    return op(y, cx.axis(axis, x))


def _moments(x: Expr, axes: Sequence[int]) -> tuple[Expr, Expr]:
    """The mean and the variance, with their axes kept."""
    mean = R.mean(x, list(axes), True)
    centred = x - mean
    return mean, R.mean(centred * centred, list(axes), True)


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
    return y, mean, R.rsqrt(variance + scalar(eps, variance))


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
    squares = R.mean(x * x, axes, True)
    return y, R.rsqrt(squares + scalar(epsilon, squares))


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
    return y, mean, R.rsqrt(variance + scalar(eps, variance))


def _channels(x: Expr, vector: Expr) -> Expr:
    return R.reshape(vector, [1, -1, *[1] * (rank_of(x) - 2)])


def _by_statistics(
    x: Expr, mean: Expr, variance: Expr, weight: Expr | None, bias: Expr | None, eps: float
) -> Expr:
    """x normalised by a mean and a variance of its channels."""
    wide = wide_dtype(x)
    factor = R.rsqrt(R.astype(variance, wide) + scalar(eps, R.zeros((), wide)))
    centred = R.astype(x, wide) - _channels(x, R.astype(mean, wide))
    y = centred * _channels(x, factor)
    if weight is not None:
        y = y * _channels(x, as_dtype(weight, dtype_of(y)))
    if bias is not None:
        y = y + _channels(x, as_dtype(bias, dtype_of(y)))
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
        return x * 1
    if training or mean is None or variance is None:
        axes = [k for k in range(rank_of(x)) if k != 1]
        m, v = _moments(x, axes)
        return _by_statistics(x, R.squeeze(m, axes), R.squeeze(v, axes), weight, bias, eps)
    return inference_norm(x, weight, bias, mean, variance, eps, momentum)


def inference_norm(
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr,
    variance: Expr,
    eps: float,
    momentum: float = 0.1,
) -> Expr:
    """Batch normalisation by given statistics, whose momentum has no effect."""
    gamma, beta, options = _affine(x, [shape_of(x)[1]], weight, bias)
    if len({dtype_of(item) for item in (x, gamma, beta, mean, variance)}) > 1:
        return _by_statistics(x, mean, variance, weight, bias, eps)
    result = R.nn.batch_norm(
        x, gamma, beta, mean, variance, 1, eps, momentum=momentum, training=False, **options
    )
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
    return inference_norm(x, weight, bias, mean, variance, eps, momentum), empty, empty
