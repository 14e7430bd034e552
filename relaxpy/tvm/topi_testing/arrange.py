"""Functions that rearrange elements; matmuls, normalisations, attention and a loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from relaxpy.ir.core.dtype import Array


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """The elements at indices along an axis, at their positions along the other axes."""
    return np.take_along_axis(data, indices.astype(np.int64), axis)


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """The slices at indices whose first axis has the components."""
    return a_np[tuple(indices_np.astype(np.int64))]  # type: ignore[no-any-return]


def _slices(
    ndim: int, begin: Sequence[int], end: Sequence[int], strides: Sequence[int], axes: Sequence[int]
) -> tuple[slice, ...]:
    """The slices along some axes; a missing slice is the whole axis."""
    result = [slice(None)] * ndim
    for i, axis in enumerate(axes):
        first, last, step = (part[i] if i < len(part) else None for part in (begin, end, strides))
        result[axis] = slice(first, last, step)
    return tuple(result)


def strided_slice_python(
    data: Array,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None,
    slice_mode: Literal["end", "size"] = "end",
    axes: Sequence[int] | None = None,
) -> Array:
    """Slices along some axes, or the first ones.

    In mode "size", `end` has the numbers of elements, -1 for all, and strides do not count.
    """
    steps: Sequence[Any] = strides or ()
    last: Sequence[Any] = end
    if slice_mode == "size":
        pairs = zip(begin, end, strict=True)
        steps, last = (), [None if size < 0 else first + size for first, size in pairs]
    chosen = range(data.ndim) if axes is None else axes
    return data[_slices(data.ndim, begin, last, steps, chosen)]


def strided_set_python(
    data: Array, v: Array, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None
) -> Array:
    """A copy of the array with other elements in slices along the first axes."""
    result = data.copy()
    result[_slices(data.ndim, begin, end, strides or (), range(data.ndim))] = v
    return result


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """A slice along one axis; an `end` of 0 is that of the axis."""
    return data[_slices(data.ndim, [begin], [end or data.shape[axis]], (), [axis])]


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """The array with another value after the first elements of each sequence along axis 0 or 1."""
    positions = np.arange(data.shape[axis])
    mask = positions >= valid_length[:, None]
    mask = mask if axis == 1 else mask.T
    return np.where(mask.reshape(*mask.shape, *(1,) * (data.ndim - 2)), mask_value, data)


def one_hot(
    indices: Array, on_value: float, off_value: float, depth: int, axis: int, dtype: Any
) -> Array:
    """One-hot: one value where a new axis of size `depth` has the index, another one elsewhere."""
    place = indices.ndim if axis == -1 else axis
    classes = np.arange(depth).reshape([-1 if i == place else 1 for i in range(indices.ndim + 1)])
    hot = np.expand_dims(indices, place) == classes
    return np.where(hot, on_value, off_value).astype(dtype)


def depth_to_space_python(
    data: Array, block_size: int, mode: Literal["DCR", "CRD"] = "DCR"
) -> Array:
    """Channels as blocks of pixels: the position in a block varies first or last in channels."""
    n, channels, height, width = data.shape
    outputs, blocks = channels // block_size**2, (block_size, block_size)
    if mode == "DCR":
        split = data.reshape(n, *blocks, outputs, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = data.reshape(n, outputs, *blocks, height, width).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(n, outputs, height * block_size, width * block_size)


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Blocks of pixels as channels."""
    n, channels, height, width = data.shape
    rows, columns = height // block_size, width // block_size
    split = data.reshape(n, channels, rows, block_size, columns, block_size)
    moved = split.transpose(0, 3, 5, 1, 2, 4)
    return moved.reshape(n, channels * block_size**2, rows, columns)


def space_to_batch_nd_python(
    data: Array,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0,
) -> Array:
    """Blocks along the axes after the first one, as items of the batch."""
    count = len(block_shape)
    pads = [(0, 0), *zip(pad_before, pad_after, strict=True), *[(0, 0)] * (data.ndim - 1 - count)]
    padded = np.pad(data, pads, constant_values=pad_value)
    batch, *sizes = padded.shape
    pairs = [(size // b, b) for size, b in zip(sizes, block_shape, strict=False)]
    split = padded.reshape(batch, *(n for pair in pairs for n in pair), *sizes[count:])
    blocks, positions = range(2, 2 * count + 1, 2), range(1, 2 * count, 2)
    moved = split.transpose(*blocks, 0, *positions, *range(2 * count + 1, split.ndim))
    return moved.reshape(batch * math.prod(block_shape), *moved.shape[count + 1 :])


def batch_to_space_nd_python(
    data: Array,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> Array:
    """Items of the batch as blocks along the axes after the first one, which are then cropped."""
    count = len(block_shape)
    batch = data.shape[0] // math.prod(block_shape)
    split = data.reshape(*block_shape, batch, *data.shape[1:])
    order = [axis for i in range(count) for axis in (count + 1 + i, i)]
    moved = split.transpose(count, *order, *range(2 * count + 1, split.ndim))
    sizes = [size * b for size, b in zip(data.shape[1:], block_shape, strict=False)]
    joined = moved.reshape(batch, *sizes, *data.shape[count + 1 :])
    ends = [size - cut for size, cut in zip(sizes, crop_end_list, strict=True)]
    return joined[_slices(joined.ndim, crop_begin_list, ends, (), range(1, count + 1))]


def matrix_set_diag(
    input_np: Array, diagonal: Array, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> Array:
    """Matrices with other elements on a diagonal, or on all diagonals between two.

    `align` is the side of `diagonal` at which shorter ones above and below the main one are.
    """
    first, last = (k, k) if isinstance(k, int) else (k[0], k[-1])
    values = diagonal if first != last else np.expand_dims(diagonal, -2)
    above, below = align.split("_")
    result = input_np.copy()
    rows, columns = result.shape[-2:]
    for number in range(first, last + 1):
        length = min(columns - max(number, 0), rows + min(number, 0))
        side = above if number >= 0 else below
        start = values.shape[-1] - length if side == "RIGHT" else 0
        i = np.arange(length)
        result[..., i + max(-number, 0), i + max(number, 0)] = values[
            ..., last - number, start : start + length
        ]
    return result


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: Any) -> Array:
    """The positions at which values keep sequences sorted; there may be a sequence for each row."""
    rows = values.reshape(-1, values.shape[-1])
    sequences = np.broadcast_to(
        sorted_sequence.reshape(-1, sorted_sequence.shape[-1]),
        (len(rows), sorted_sequence.shape[-1]),
    )
    side: Literal["left", "right"] = "right" if right else "left"
    found = [np.searchsorted(s, row, side) for s, row in zip(sequences, rows, strict=True)]
    return np.array(found, out_dtype).reshape(values.shape)


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
    return result.transpose(["BNSH".index(axis) for axis in layout]).astype(scores.dtype)


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
