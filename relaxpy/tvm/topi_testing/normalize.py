"""Matmuls, normalisations, attention and a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Axes: TypeAlias = int | Sequence[int]


def _tuple(axes: Axes | None) -> tuple[int, ...] | None:
    return (axes,) if isinstance(axes, int) else None if axes is None else tuple(axes)


def dense(
    x: Array,
    y: Array,
    bias: Array | None,
    use_bias: bool = False,
    use_relu: bool = False,
    out_dtype: Any = None,
) -> Array:
    """x @ y^T, optionally with a bias and a ReLU."""
    dtype = out_dtype or x.dtype
    result = x.astype(dtype) @ y.astype(dtype).T
    if use_bias:
        result = result + bias
    return np.maximum(result, 0) if use_relu else result  # type: ignore[no-any-return]


def batch_matmul(
    x: Array, y: Array, out_dtype: Any = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """Batched matmul with optional transposes; a batch of one is broadcast."""
    dtype = out_dtype or x.dtype
    lhs = np.swapaxes(x, 1, 2) if trans_x else x
    rhs = np.swapaxes(y, 1, 2) if trans_y else y
    return lhs.astype(dtype) @ rhs.astype(dtype)  # type: ignore[no-any-return]


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """exp(a), divided by its sum along an axis."""
    powers = np.exp(a_np - a_np.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)  # type: ignore[no-any-return]


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """The logarithm of softmax."""
    shifted = a_np - a_np.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))  # type: ignore[no-any-return]


def _standardised(data: Array, axes: tuple[int, ...] | None, epsilon: float) -> Array:
    """Mean 0 and variance 1 along some axes."""
    mean, variance = data.mean(axes, keepdims=True), data.var(axes, keepdims=True)
    return (data - mean) / np.sqrt(variance + epsilon)  # type: ignore[no-any-return]


def layer_norm_python(
    data: Array, gamma: Array, beta: Array | None, axis: Axes, epsilon: float = 1e-5
) -> Array:
    """Mean 0 and variance 1 along some axes, in float32, times gamma, plus beta."""
    result = _standardised(data.astype("float32"), _tuple(axis), epsilon).astype(data.dtype) * gamma
    return result if beta is None else result + beta


def instance_norm_python(
    data: Array, gamma: Array, beta: Array | None, axis: Axes, epsilon: float = 1e-5
) -> Array:
    """Mean 0 and variance 1 along some axes, times gamma, plus beta."""
    result = _standardised(data, _tuple(axis), epsilon) * gamma
    return result if beta is None else result + beta


def group_norm_python(
    data: Array,
    gamma: Array,
    beta: Array | None,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Array:
    """Mean 0 and variance 1 along some axes in groups of channels, times gamma, plus beta."""
    shape, channels = data.shape, data.shape[channel_axis]
    split = (num_groups, channels // num_groups)
    grouped = data.astype("float32").reshape(
        *shape[:channel_axis], *split, *shape[channel_axis + 1 :]
    )
    inner = [axis if axis < channel_axis else axis + 1 for axis in axes]
    standard = _standardised(grouped, (channel_axis + 1, *inner), epsilon)
    along = [channels if axis == channel_axis else 1 for axis in range(data.ndim)]
    result = standard.reshape(shape).astype(data.dtype) * gamma.reshape(along)
    return result if beta is None else result + beta.reshape(along)


def rms_norm_python(data: Array, weight: Array, axis: Axes, epsilon: float = 1e-5) -> Array:
    """The array times a weight, divided by the root of the mean of squares, in float32."""
    wide = data.astype("float32")
    squares = np.square(wide).mean(_tuple(axis), keepdims=True)
    return (wide * weight.astype("float32") / np.sqrt(squares + epsilon)).astype(data.dtype)  # type: ignore[no-any-return]


def l2_normalize_python(a_np: Array, eps: float, axis: Axes | None = None) -> Array:
    """The array, divided by the root of the sum of squares, which is at least `eps`."""
    squares = np.square(a_np).sum(_tuple(axis), keepdims=True)
    return a_np / np.sqrt(np.maximum(squares, eps))  # type: ignore[no-any-return]


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """a / (bias + alpha / size * s)**beta, with s the sum of squares of `size` neighbours."""
    radius, extent = size // 2, a_np.shape[axis]
    squares = np.moveaxis(np.square(a_np), axis, 0)
    sums = [squares[max(i - radius, 0) : i + radius + 1].sum(0) for i in range(extent)]
    total = np.moveaxis(np.array(sums), 0, axis)
    return a_np / np.power(bias + alpha * total / size, beta)


def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    moving_mean: Array,
    moving_var: Array,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    training: bool,
    momentum: float,
) -> list[Array]:
    """The normalised array, and the moving mean and variance.

    In training the moments are those of the batch, and the moving ones approach them.
    """
    along = [x.shape[axis] if i == axis % x.ndim else 1 for i in range(x.ndim)]
    mean, variance = moving_mean, moving_var
    if training:
        others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
        mean, variance = x.mean(others), x.var(others)
    result = (x - mean.reshape(along)) / np.sqrt(variance.reshape(along) + epsilon)
    if scale:
        result = result * gamma.reshape(along)
    if center:
        result = result + beta.reshape(along)
    if training:
        moving_mean = (1 - momentum) * moving_mean + momentum * mean
        moving_var = (1 - momentum) * moving_var + momentum * variance
    return [result, moving_mean, moving_var]


def attention_python(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None,
    qk_scale: float | Literal["none"],
    causal: Literal["none", "TopLeft", "BottomRight"],
    window_size: int | None = None,
    layout: str = "BSNH",
) -> Array:
    """softmax(q @ k^T * scale + bias) @ v for each head, where positions may see earlier ones only.

    With `window_size`, they see only positions less than that many before their own.
    """
    order = [layout.index(axis) for axis in "BNSH"]
    query, key, value = (array.transpose(order) for array in (q, k, v))
    repeats = query.shape[1] // key.shape[1]
    key, value = np.repeat(key, repeats, 1), np.repeat(value, repeats, 1)
    scale = 1 / np.sqrt(q.shape[-1]) if isinstance(qk_scale, str) else qk_scale
    scores = query @ np.swapaxes(key, 2, 3) * scale
    if bias is not None:
        scores = scores + bias
    if causal != "none":
        rows, columns = scores.shape[2:]
        offset = abs(rows - columns) if causal == "BottomRight" else 0
        distance = np.arange(columns) - np.arange(rows)[:, None]
        visible = distance <= offset
        if window_size:
            visible &= distance > -window_size
        scores = np.where(visible, scores, -np.inf)
    result = softmax_python(scores, -1) @ value
    return result.transpose(["BNSH".index(axis) for axis in layout]).astype(scores.dtype)  # type: ignore[no-any-return]


def nll_loss(
    predictions: Array,
    targets: Array,
    weights: Array,
    reduction: Literal["mean", "sum", "none"] = "mean",
    ignore_index: int = -100,
) -> Any:
    """The negative predictions of the targets, times the weights of their classes.

    Shapes:
        predictions  (batch, classes, ...)
        targets      (batch, ...), where `ignore_index` counts as 0
    """
    counts = targets != ignore_index
    classes = np.where(counts, targets, 0)
    chosen = np.take_along_axis(predictions, np.expand_dims(classes, 1), 1).squeeze(1)
    factors = np.where(counts, weights[classes], 0)
    losses = -chosen * factors
    if reduction == "mean":
        return losses.sum() / factors.sum()
    return losses.sum() if reduction == "sum" else losses
