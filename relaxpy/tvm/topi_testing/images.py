"""Images, windows and regions, element by element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import Array
from relaxpy.support.entry import found_at

Sizes: TypeAlias = int | Sequence[int]
Padding: TypeAlias = int | Sequence[int] | str
Pads: TypeAlias = list[tuple[int, int]]


def _each(size: Sizes, count: int) -> list[int]:
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
    numbers = _each(padding, len(window))
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
    steps, gaps = _each(strides, count), _each(dilation, count)
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
    span = (w_np.shape[2] - 1) * _each(dilation, 1)[0] + 1
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
    window, extra = w_np.shape[2:], _each(output_padding, count)
    pads = [
        (size - 1 - before, size - 1 - after + more)
        for size, (before, after), more in zip(window, _pads(padding, window), extra, strict=True)
    ]
    apart = dilate_python(a_np, [1, 1, *_each(stride, count)])
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
    sizes = _each(out_size, 1)
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


CROP = "tf_crop_and_resize"
_ATTRS: dict[str, Any] = {
    "method": "linear",
    "coordinate_transformation_mode": "half_pixel",
    "rounding_method": "round",
    "cubic_alpha": -0.75,
    "cubic_exclude": 0,
    "extrapolation_value": 0.0,
}


def _coordinate(x: int, old: int, new: int, mode: str, region: tuple[float, float]) -> Any:
    """ONNX, Resize: the coordinate of element x in the original axis, exactly."""
    scale, half = Fraction(new, old), Fraction(1, 2)
    start, end = map(Fraction, region)
    match mode:
        case "half_pixel":
            return (x + half) / scale - half
        case "pytorch_half_pixel":
            return (x + half) / scale - half if new > 1 else Fraction(0)
        case "align_corners":
            return Fraction(x * (old - 1), new - 1) if new > 1 else Fraction(0)
        case "asymmetric":
            return x / scale
        case "tf_half_pixel_for_nn":
            return (x + half) / scale
        case "tf_crop_and_resize":
            if new == 1:
                return (start + end) * (old - 1) * half
            return start * (old - 1) + x * (end - start) * (old - 1) / (new - 1)
        case _:
            raise unexpected(mode, "coordinate_transformation_mode is one of ONNX's Resize")


def _nearest(at: Fraction, rounding: str) -> int:
    half = Fraction(1, 2)
    match rounding:
        case "round":
            return round(at)
        case "round_prefer_floor" | "ceil":
            return math.ceil(at - half if rounding == "round_prefer_floor" else at)
        case "round_prefer_ceil" | "floor":
            return math.floor(at + half if rounding == "round_prefer_ceil" else at)
        case _:
            raise unexpected(rounding, "rounding_method is one of topi.image.resize2d")


def _weights(at: Fraction, old: int, attrs: dict[str, Any]) -> dict[int, float]:
    """The weight of each element of an axis at a coordinate."""
    if attrs["method"] == "nearest_neighbor":
        near = {_nearest(at, attrs["rounding_method"]): 1.0}
    else:
        near = _around(at, attrs["method"], attrs["cubic_alpha"])
        if attrs["method"] == "cubic" and attrs["cubic_exclude"]:
            near = {k: w for k, w in near.items() if 0 <= k < old}
            total = sum(near.values())
            near = {k: w / total for k, w in near.items()}
    weights: dict[int, float] = {}
    for k, weight in near.items():
        border = min(max(k, 0), old - 1)
        weights[border] = weights.get(border, 0.0) + weight
    return weights


def _around(at: Any, method: str, alpha: float) -> dict[int, float]:
    """The weights of the two elements, or by cubics the four, around a coordinate."""
    base = math.floor(at)
    if method in ("linear", "bilinear"):
        return {base: float(1 - (at - base)), base + 1: float(at - base)}
    if method not in ("cubic", "bicubic"):
        raise unexpected(method, "method takes the nearest element, or is linear or cubic")
    return {base + k: _cubic(float(abs(at - base - k)), alpha) for k in (-1, 0, 1, 2)}


def _cubic(distance: float, a: float) -> float:
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a


def resized(
    x: Array, size: Sequence[int], layout: str, roi: Sequence[float] | None = None, **given: Any
) -> Array:
    """ONNX, Resize, one element after the other."""
    region = (0.0,) * (2 * len(size)) if roi is None else tuple(roi)
    attrs = {**_ATTRS, **given}
    shape = list(x.shape)
    for letter, new in zip([v for v in "DHW" if v in layout], size, strict=True):
        shape[layout.index(letter)] = new
    out = np.full(shape, float(attrs["extrapolation_value"]))
    for index, terms in _sources(x.shape, tuple(shape), layout, region, tuple(attrs.items())):
        out[index] = sum(x[source] * weight for source, weight in terms)
    return out


@lru_cache(maxsize=64)
def _sources(
    old_shape: tuple[int, ...],
    shape: tuple[int, ...],
    layout: str,
    region: tuple[float, ...],
    items: tuple[tuple[str, Any], ...],
) -> list[tuple[tuple[int, ...], list[tuple[tuple[int, ...], float]]]]:
    """For each element of the result, the elements that it is a sum of, and their weights.

    Elements outside the region are left out.
    """
    attrs = dict(items)
    axes = [layout.index(letter) for letter in "DHW" if letter in layout]
    count = len(axes)
    mode = attrs["coordinate_transformation_mode"]
    sources = []
    for index in np.ndindex(*shape):
        ats = [
            _coordinate(
                index[axis], old_shape[axis], shape[axis], mode, (region[k], region[k + count])
            )
            for k, axis in enumerate(axes)
        ]
        if mode == CROP and any(
            not 0 <= at <= old_shape[axis] - 1 for at, axis in zip(ats, axes, strict=True)
        ):
            continue
        near = [_weights(at, old_shape[axis], attrs) for at, axis in zip(ats, axes, strict=True)]
        terms = []
        for chosen in itertools.product(*(weights.items() for weights in near)):
            source = list(index)
            for axis, (k, _) in zip(axes, chosen, strict=True):
                source[axis] = k
            terms.append((tuple(source), math.prod(weight for _, weight in chosen)))
        sources.append((index, terms))
    return sources


def _resize(default: str) -> Any:
    def resize(
        data: Array,
        scale: Sequence[float],
        layout: str = default,
        method: str = "nearest_neighbor",
        coordinate_transformation_mode: str = "align_corners",
        rounding_method: str = "",
    ) -> Array:
        """The array with its axes of space `scale` times as long."""
        corners = coordinate_transformation_mode == "align_corners"
        sizes = [data.shape[layout.index(v)] for v in "DHW" if v in layout]
        result = resized(
            data,
            [round(n * s) for n, s in zip(sizes, scale, strict=True)],
            layout,
            method=method,
            coordinate_transformation_mode=coordinate_transformation_mode,
            rounding_method=rounding_method or ("round" if corners else "floor"),
            cubic_alpha=-0.5,
        )
        return result.astype(data.dtype)

    resize.__name__ = f"resize{len(default) - 2}d_python"
    return found_at(__name__, resize)


resize1d_python, resize2d_python, resize3d_python = map(_resize, ("NCW", "NCHW", "NCDHW"))


def crop_and_resize_python(
    image: Array,
    boxes: Array,
    box_indices: Array,
    crop_size: Sequence[int],
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
) -> Array:
    """Regions of images, given by the ratios of their upper left and lower right corners."""
    options = {
        "method": "linear" if method == "bilinear" else method,
        "coordinate_transformation_mode": CROP,
        "extrapolation_value": extrapolation_value,
    }
    parts = [
        resized(image[int(k)][None], crop_size, layout, box.tolist(), **options)
        for k, box in zip(box_indices, boxes, strict=True)
    ]
    return np.concatenate(parts)


def _reflected(index: int, low: float, high: float) -> int:
    """An index, reflected at two ends until it lies between them."""
    at = float(index)
    while not low <= at <= high and high > low:
        at = 2 * low - at if at < low else 2 * high - at
    return int(at) if high > low else 0


def _element(x: Array, index: tuple[int, ...], padding: str, *, corners: bool) -> float:
    found = []
    for k, size in zip(index, x.shape, strict=True):
        if padding == "zeros" and not 0 <= k < size:
            return 0.0
        if padding == "reflection":
            k = _reflected(k, 0, size - 1) if corners else _reflected(k, -0.5, size - 0.5)
        found.append(min(max(k, 0), size - 1))
    return float(x[tuple(found)])


def grid_sample_python(
    data: Array,
    grid: Array,
    method: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
    layout: str = "NCHW",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool = True,
) -> Array:
    """Images or volumes with channels first at positions of which -1 and 1 are the borders."""
    if not all(data.shape[2:]):
        raise ValueError("an empty image has no elements at positions")
    out = np.zeros((*data.shape[:2], *grid.shape[2:]))
    for index in np.ndindex(*out.shape):
        n, c, *where = index
        near = []
        places = grid[(n, slice(None), *where)][::-1]
        for coordinate, size in zip(places, data.shape[2:], strict=True):
            at = (float(coordinate) + 1) * (size - 1 if align_corners else size) / 2
            at = at if align_corners else at - 0.5
            near.append({round(at): 1.0} if method == "nearest" else _around(at, method, -0.75))
        for chosen in itertools.product(*(weights.items() for weights in near)):
            place = tuple(k for k, _ in chosen)
            value = _element(data[n, c], place, padding_mode, corners=align_corners)
            out[index] += value * math.prod(weight for _, weight in chosen)
    return out


def affine_grid_python(
    data: Array, target_shape: Sequence[int], align_corners: bool = True
) -> Array:
    """The positions of the pixels of an image, multiplied by a matrix for each image."""
    height, width = target_shape

    def at(k: int, size: int) -> float:
        if align_corners:
            return 2 * k / (size - 1) - 1 if size > 1 else 0.0
        return (2 * k + 1) / size - 1

    out = np.zeros((len(data), 2, height, width))
    for n, i, y, x in np.ndindex(*out.shape):
        out[n, i, y, x] = data[n, i] @ np.array([at(x, width), at(y, height), 1])
    return out


Mode: TypeAlias = Literal["avg", "max", b"avg", b"max", 0, 1]


def _between(image: Array, y: float, x: float) -> float:
    """The bilinear value at a point of an image whose borders are extended by one pixel."""
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    p, q = y - top, x - left
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper, lower = ((1 - q) * image[k, left] + q * image[k, right] for k in (top, bottom))
    return float((1 - p) * upper + p * lower)


def roi_align_nchw_python(
    a_np: Array,
    rois_np: Array,
    pooled_size: Sizes,
    spatial_scale: float,
    sample_ratio: int,
    mode: Mode = b"avg",
    aligned: bool = False,
) -> Array:
    """ROI align: the mean or maximum of interpolated values in each bin of regions."""
    bins = _each(pooled_size, 2)
    found = np.zeros((len(rois_np), a_np.shape[1], *bins), a_np.dtype)
    for r, c, i, j in np.ndindex(*found.shape):
        left, top, right, bottom = (rois_np[r, 1:].astype("float64") * spatial_scale).tolist()
        sides = [bottom - top, right - left]
        steps = [(s if aligned else max(s, 1)) / n for s, n in zip(sides, bins, strict=True)]
        points = [sample_ratio if sample_ratio > 0 else math.ceil(s) for s in steps]
        values = [
            _between(
                a_np[int(rois_np[r, 0]), c],
                top + (i + (a + 0.5) / points[0]) * steps[0],
                left + (j + (b + 0.5) / points[1]) * steps[1],
            )
            for a, b in np.ndindex(*points)
        ]
        total = max if mode in (b"max", "max", 1) else sum
        found[r, c, i, j] = total(values) / (1 if total is max else len(values))
    return found


def roi_align_nhwc_python(a_np: Array, *args: Any, **kwargs: Any) -> Array:
    """`roi_align_nchw_python` of images whose channels are last."""
    return np.moveaxis(roi_align_nchw_python(np.moveaxis(a_np, -1, 1), *args, **kwargs), 1, -1)


def roi_pool_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Sizes, spatial_scale: float
) -> Array:
    """ROI pooling: the maximum of each bin of regions with rounded borders, or 0 if it is empty."""
    bins = _each(pooled_size, 2)
    found = np.zeros((len(rois_np), a_np.shape[1], *bins), a_np.dtype)
    for r, c, i, j in np.ndindex(*found.shape):
        left, top, right, bottom = np.floor(rois_np[r, 1:] * spatial_scale + 0.5).astype(int)
        spans = []
        for first, last, n, k, size in (
            (top, bottom, bins[0], i, a_np.shape[2]),
            (left, right, bins[1], j, a_np.shape[3]),
        ):
            step = max(last - first + 1, 1) / n
            ends = first + math.floor(k * step), first + math.ceil((k + 1) * step)
            spans.append(slice(*(min(max(end, 0), size) for end in ends)))
        part = a_np[int(rois_np[r, 0]), c, spans[0], spans[1]]
        found[r, c, i, j] = part.max() if part.size else 0.0
    return found


def get_valid_counts_python(
    data: Array, score_threshold: float = 0, id_index: int = 0, score_index: int = 1
) -> tuple[Array, Array, Array]:
    """The number of boxes with a class and a score above a threshold, the boxes, their indices."""
    totals = np.zeros(len(data), "int32")
    boxes, indices = np.full_like(data, -1), np.full(data.shape[:2], -1, "int32")
    for b, k in np.ndindex(*data.shape[:2]):
        if data[b, k, score_index] > score_threshold and (
            id_index < 0 or data[b, k, id_index] >= 0
        ):
            boxes[b, totals[b]], indices[b, totals[b]] = data[b, k], k
            totals[b] += 1
    return totals, boxes, indices


def _area(top: float, left: float, bottom: float, right: float) -> float:
    return max(bottom - top, 0.0) * max(right - left, 0.0)


def overlap(first: Sequence[float], second: Sequence[float]) -> float:
    """The intersection over union (IoU) of two boxes, by their corners."""
    a, b = (
        (min(y1, y2), min(x1, x2), max(y1, y2), max(x1, x2)) for y1, x1, y2, x2 in (first, second)
    )
    shared = _area(*map(max, a[:2], b[:2]), *map(min, a[2:], b[2:]))
    union = _area(*a) + _area(*b) - shared
    return shared / union if union > 0 else 0.0


def non_max_suppression_python(
    data: Array,
    valid_count: Array,
    indices: Array,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> Array | tuple[Array, ...]:
    """Non-maximum suppression of the boxes of each image."""
    decays = soft_nms_sigma > 0
    least = score_threshold if decays else 0.0
    boxes, places = np.full_like(data, -1), np.full(data.shape[:2], -1, "int32")
    totals = np.zeros((len(data), 1), "int32")
    corners = slice(coord_start, coord_start + 4)
    for b in range(len(data)):
        count = min(max(int(valid_count[b]), 0), data.shape[1])
        ranked = sorted(range(count), key=lambda k: -data[b, k, score_index])
        ranked = ranked[:top_k] if top_k > 0 else ranked
        left = [(k, data[b, k].astype("float64")) for k in ranked]
        left = [(k, row) for k, row in left if row[score_index] > least]
        chosen: list[tuple[int, Array]] = []
        while left and not 0 < max_output_size <= len(chosen):
            best = max(range(len(left)), key=lambda n: (left[n][1][score_index], -n))
            chosen.append(left.pop(best))
            row, rest = chosen[-1][1], []
            for k, other in left:
                if force_suppress or id_index < 0 or row[id_index] == other[id_index]:
                    ratio = overlap(row[corners].tolist(), other[corners].tolist())
                    if ratio >= iou_threshold:
                        continue
                    if decays:
                        other[score_index] *= math.exp(-(ratio**2) / (2 * soft_nms_sigma))
                if other[score_index] > least:
                    rest.append((k, other))
            left = rest
        totals[b] = len(chosen)
        for n, (k, row) in enumerate(chosen):
            at = n if decays or invalid_to_bottom or return_indices else ranked.index(k)
            boxes[b, at], places[b, n] = row, indices[b, k]
    if return_indices:
        return (boxes, places, totals) if decays else (places, totals)
    return boxes
