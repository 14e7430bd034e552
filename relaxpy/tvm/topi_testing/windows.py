"""Convolutions and pools, from views of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import Array

Sizes: TypeAlias = int | Sequence[int]
Padding: TypeAlias = int | Sequence[int] | str
Pads: TypeAlias = list[tuple[int, int]]


def each_of(size: Sizes, count: int) -> list[int]:
    """A number for each axis."""
    sizes = [size] if isinstance(size, int) else list(size)
    return sizes * count if len(sizes) == 1 else sizes


def _pads(padding: Padding, window: Sequence[int]) -> Pads:
    """The padding before and after each axis: "SAME", "VALID", or one or two numbers for each."""
    if padding == "VALID":
        padding = 0
    if padding == "SAME":
        return [(size // 2, (size - 1) // 2) for size in window]
    if isinstance(padding, str):
        raise MisuseError(f'padding is numbers, "SAME" or "VALID", found {padding!r:.60}')
    numbers = each_of(padding, len(window))
    if len(numbers) not in (len(window), 2 * len(window)):
        raise MisuseError(f"{len(window)} axes have as many or twice as many pads, found {padding}")
    half = len(window)
    return list(zip(numbers[:half], numbers[-half:], strict=True))


def _padded(array: Array, pads: Pads, value: float = 0) -> Array:
    """The array with pads around its last axes; negative ones remove elements."""
    added = [(0, 0), (0, 0), *((max(a, 0), max(b, 0)) for a, b in pads)]
    whole = np.pad(array, added, constant_values=value)
    cuts = [
        slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pads, whole.shape[2:], strict=True)
    ]
    return whole[(slice(None), slice(None), *cuts)]


def _windows(array: Array, window: Sequence[int], strides: Sizes, dilation: Sizes) -> Array:
    """A view of shape (batch, channels, positions..., window...)."""
    count = len(window)
    steps, gaps = each_of(strides, count), each_of(dilation, count)
    spans = [(size - 1) * gap + 1 for size, gap in zip(window, gaps, strict=True)]
    view = sliding_window_view(array, spans, tuple(range(2, 2 + count)))
    every = [slice(None, None, step) for step in (*steps, *gaps)]
    return view[(slice(None), slice(None), *every)]


def _convolution(
    a: Array, w: Array, stride: Sizes, pads: Pads, dilation: Sizes = 1, groups: int = 1
) -> Array:
    """The convolution of (batch, channels, ...) with (outputs, channels / groups, ...)."""
    count = w.ndim - 2
    views = _windows(_padded(a, pads), w.shape[2:], stride, dilation)
    axes = [1, *range(2 + count, 2 + 2 * count)], [1, *range(2, 2 + count)]
    split = zip(np.split(views, groups, 1), np.split(w, groups, 0), strict=True)
    return np.concatenate([np.moveaxis(np.tensordot(*pair, axes), -1, 1) for pair in split], 1)


def dilate_python(
    input_np: Array, strides: Sequence[int], dilation_value: float = 0.0, out_dtype: Any = None
) -> Array:
    """The array with `strides - 1` values between neighbours along each axis."""
    shape = [(n - 1) * step + 1 for n, step in zip(input_np.shape, strides, strict=True)]
    result = np.full(shape, dilation_value, out_dtype or input_np.dtype)
    result[tuple(slice(None, None, step) for step in strides)] = input_np
    return result


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int = 1
) -> Array:
    """The convolution of (batch, channels, width) with (outputs, channels / groups, window)."""
    span = (w_np.shape[2] - 1) * each_of(dilation, 1)[0] + 1
    return _convolution(a_np, w_np, stride, _pads(padding, [span]), dilation, groups)


def conv2d_nchw_python(
    a_np: Array, w_np: Array, stride: Sizes, padding: Padding, groups: int = 1
) -> Array:
    """The convolution of (batch, channels, ...) with (outputs, channels / groups, ...)."""
    return _convolution(a_np, w_np, stride, _pads(padding, w_np.shape[2:]), 1, groups)


def conv2d_nhwc_python(
    a_np: Array, w_np: Array, stride: Sizes, padding: Padding, groups: int = 1
) -> Array:
    """The convolution of (batch, ..., channels) with (..., channels / groups, outputs)."""
    data, weight = np.moveaxis(a_np, -1, 1), np.moveaxis(w_np, (-1, -2), (0, 1))
    return np.moveaxis(conv2d_nchw_python(data, weight, stride, padding, groups), 1, -1)


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Sizes, padding: Padding) -> Array:
    """The convolution of (h, w, channels, batch) with (h, w, channels, outputs)."""
    data, weight = a_np.transpose(3, 2, 0, 1), w_np.transpose(3, 2, 0, 1)
    return conv2d_nchw_python(data, weight, stride, padding).transpose(2, 3, 1, 0)


def conv2d_transpose_nchw_python(
    a_np: Array,
    w_np: Array,
    stride: Sizes,
    padding: Padding,
    output_padding: Sizes,
    groups: int = 1,
) -> Array:
    """The transposed convolution of (batch, channels, ...) with (channels, outputs, ...)."""
    count = w_np.ndim - 2
    window, extra = w_np.shape[2:], each_of(output_padding, count)
    pads = [
        (size - 1 - before, size - 1 - after + more)
        for size, (before, after), more in zip(window, _pads(padding, window), extra, strict=True)
    ]
    apart = dilate_python(a_np, [1, 1, *each_of(stride, count)])
    flipped = np.flip(w_np, tuple(range(2, w_np.ndim)))
    weights = np.concatenate([np.swapaxes(g, 0, 1) for g in np.split(flipped, groups, 0)], 0)
    return _convolution(apart, weights, 1, pads, 1, groups)


def conv2d_transpose_nhwc_python(
    a_nhwc: Array,
    weight: Array,
    weight_format: Literal["HWIO", "HWOI", "OIHW", "IOHW"],
    stride: Sizes,
    padding: Padding,
    output_padding: Sizes = (0, 0),
) -> Array:
    """The transposed convolution of (batch, h, w, channels), with a weight in some layout."""
    if sorted(weight_format) != sorted("IOHW"):
        raise unexpected(weight_format, "a layout of weights has the axes I, O, H and W")
    iohw = weight.transpose([weight_format.index(axis) for axis in "IOHW"])
    data = np.moveaxis(a_nhwc, -1, 1)
    return np.moveaxis(
        conv2d_transpose_nchw_python(data, iohw, stride, padding, output_padding), 1, -1
    )


conv1d_ncw_python = group_conv1d_ncw_python
conv3d_ncdhw_python, conv3d_ndhwc_python = conv2d_nchw_python, conv2d_nhwc_python
conv1d_transpose_ncw_python = group_conv1d_transpose_ncw_python = conv2d_transpose_nchw_python
conv3d_transpose_ncdhw_python = conv2d_transpose_nchw_python


def depthwise_conv2d_python_nchw(
    input_np: Array, filter_np: Array, stride: Sizes, padding: Padding
) -> Array:
    """The convolution of each channel of (batch, channels, h, w) with (channels, outputs, h, w)."""
    channels, outputs, *window = filter_np.shape
    weight = filter_np.reshape(channels * outputs, 1, *window)
    return conv2d_nchw_python(input_np, weight, stride, padding, channels)


def depthwise_conv2d_python_nhwc(
    input_np: Array, filter_np: Array, stride: Sizes, padding: Padding
) -> Array:
    """The convolution of each channel of (batch, h, w, channels) with (h, w, channels, outputs)."""
    data, weight = np.moveaxis(input_np, -1, 1), filter_np.transpose(2, 3, 0, 1)
    return np.moveaxis(depthwise_conv2d_python_nchw(data, weight, stride, padding), 1, -1)


def poolnd_python(
    np_data: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_before: Sequence[int],
    padding_after: Sequence[int],
    pool_type: Literal["max", "avg"],
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    dtype: str = "float32",
    layout: str | None = None,
) -> Array:
    """The maximum or the mean of windows.

    With `count_include_pad`, pads are zeros that count as elements of both. With `ceil_mode`, the
    last window may exceed the pads; elements outside of them do not count.
    """
    names = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[np_data.ndim - 2]
    order = [(layout or names).index(axis) for axis in names]
    data = np_data.transpose(order).astype(dtype)
    options = zip(
        data.shape[2:], kernel, strides, dilation, padding_before, padding_after, strict=True
    )
    pads, rests = [], []
    for size, width, step, gap, before, after in options:
        free = size - (width - 1) * gap - 1 + before + after
        last = math.ceil(free / step) if ceil_mode else free // step
        pads.append((before, after))
        rests.append((0, max(last * step - free, 0)))
    axes = tuple(range(data.ndim, 2 * data.ndim - 2))
    least = float(np.finfo(dtype).min) if pool_type == "max" else 0.0
    around = _padded(data, pads, 0 if count_include_pad else least)
    view = _windows(_padded(around, rests, least), kernel, strides, dilation)
    result: Array
    if pool_type == "max":
        result = view.max(axes)
    else:
        counted = _padded(np.ones_like(data), pads, float(count_include_pad))
        counts = _windows(_padded(counted, rests), kernel, strides, dilation).sum(axes)
        result = (view.sum(axes) / np.maximum(counts, 1)).astype(dtype)
    return result.transpose([names.index(axis) for axis in layout or names])


def adaptive_pool(
    np_data: Array, out_size: Sizes, pool_type: Literal["max", "avg"], layout: str
) -> Array:
    """Adaptive pooling: the maximum or the mean of this many windows along each axis."""
    sizes = each_of(out_size, 1)
    axes = [i for i, axis in enumerate(layout) if axis not in "NC"]
    shape = list(np_data.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    result = np.zeros(shape, np_data.dtype)
    for position in product(*map(range, sizes)):
        target: list[Any] = [slice(None)] * np_data.ndim
        source: list[Any] = list(target)
        for axis, index, size in zip(axes, position, sizes, strict=True):
            extent = np_data.shape[axis]
            target[axis] = index
            source[axis] = slice(index * extent // size, -(-(index + 1) * extent // size))
        window = np_data[tuple(source)]
        result[tuple(target)] = (np.mean if pool_type == "avg" else np.max)(window, tuple(axes))
    return result
