"""Operators of signals and images: Fourier transforms, sampling at positions, displacements."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import Args, define, dtype_of, known_shape, listed, number
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError


def sliced(data: rx.Expr, axes: list[int], begin: list[int], sizes: list[int], step: int) -> Any:
    """Return a slice of so many elements at a distance of `step` on some axes."""
    end = [first + (size - 1) * step + 1 for first, size in zip(begin, sizes, strict=True)]
    return R.strided_slice(data, axes, begin, end, [step] * len(axes))


# Fourier transforms, as products with matrices of sines and cosines


def _waves(size: int, count: int, dtype: str) -> tuple[rx.Expr, rx.Expr]:
    """Return the cosines and sines of `count` frequencies at `size` times."""
    angles = 2 * np.pi * (np.outer(np.arange(size), np.arange(count)) % size) / size
    return rx.Constant(np.cos(angles).astype(dtype)), rx.Constant(np.sin(angles).astype(dtype))


def _dft(args: Args, attrs: Any) -> rx.Expr:
    re, im = args
    size, dtype = known_shape(re)[-1], dtype_of(re)
    cos, sin = _waves(size, size, dtype)
    sign = -1 if attrs["inverse"] else 1
    turned = R.multiply(R.matmul(im, sin), number(sign, dtype))
    real = R.add(R.matmul(re, cos), turned)
    turned = R.multiply(R.matmul(re, sin), number(sign, dtype))
    imaginary = R.subtract(R.matmul(im, cos), turned)
    if attrs["inverse"]:
        real, imaginary = (R.divide(part, number(size, dtype)) for part in (real, imaginary))
    return rx.Tuple((real, imaginary))


define("dft", "re_data im_data", _dft, {"inverse": False}, results=2)


def _stft(args: Args, attrs: Any) -> rx.Expr:
    data, window = args
    length, size = known_shape(data)[-1], int(attrs["n_fft"])
    hop, dtype = int(attrs["hop_length"]), dtype_of(data)
    if known_shape(window) != [size]:
        raise RelationError(f"the window has {size} elements, found {window.struct_info}")
    count = 1 + (length - size) // hop
    if count < 1:
        raise RelationError(f"a signal of {length} elements is shorter than n_fft, {size}")
    times = np.arange(count)[:, None] * hop + np.arange(size)
    frames = R.multiply(R.take(data, rx.Constant(times), 1), window)
    cos, sin = _waves(size, size // 2 + 1 if attrs["onesided"] else size, dtype)
    scale = number(size**-0.5 if attrs["normalized"] else 1, dtype)
    parts = [R.matmul(frames, cos), R.negative(R.matmul(frames, sin))]
    spectrum = R.stack([R.multiply(part, scale) for part in parts], -1)
    return R.permute_dims(spectrum, [0, 2, 1, 3])


define(
    "stft",
    "data window",
    _stft,
    {
        "n_fft": REQUIRED,
        "hop_length": REQUIRED,
        "win_length": None,
        "normalized": False,
        "onesided": True,
    },
)


# Sampling at positions


def sampled(data: rx.Expr, y: rx.Expr, x: rx.Expr, method: str = "bilinear") -> rx.Expr:
    """Return images of the layout NCHW at positions (N, height, width), at the border beyond it."""
    dtype = dtype_of(data)
    height, width = known_shape(data)[2:]

    def relative(position: rx.Expr, size: int) -> rx.Expr:
        twice = R.multiply(position, number(2 / size, dtype))
        return R.add(twice, number(1 / size - 1, dtype))

    grid = R.stack([relative(x, width), relative(y, height)], 1)
    return R.image.grid_sample(data, grid, method, "NCHW", "border", False)


def inside(position: rx.Expr, low: float, high: float) -> rx.Expr:
    """Return where positions are between two numbers, these included."""
    dtype = dtype_of(position)
    above = R.greater_equal(position, number(low, dtype))
    return R.logical_and(above, R.less_equal(position, number(high, dtype)))


def column(data: rx.Expr, index: int) -> rx.Expr:
    """Return column `index` of a matrix, of shape (rows, 1)."""
    return R.strided_slice(data, [1], [index], [index + 1], [1])


def grid_of(y: rx.Expr, x: rx.Expr) -> tuple[rx.Expr, rx.Expr]:
    """Return the rows (N, height) and columns (N, width) of grids as positions of all points."""
    (batch, height), width = known_shape(y), known_shape(x)[1]
    shape = (batch, height, width)
    rows = R.broadcast_to(R.expand_dims(y, 2), shape)
    return rows, R.broadcast_to(R.expand_dims(x, 1), shape)


_SAMPLING: Final = {"bilinear": "bilinear", "nearest_neighbor": "nearest"}


def _crop_and_resize(args: Args, attrs: Any) -> rx.Expr:
    data, boxes, box_indices = args
    if attrs["method"] not in _SAMPLING:
        raise RelationError(f"the method is {' or '.join(_SAMPLING)}, found {attrs['method']!r}")
    channels_last = attrs["layout"] == "NHWC"
    if channels_last:
        data = R.permute_dims(data, [0, 3, 1, 2])
    dtype, positions, masks = dtype_of(data), [], []
    for axis, size in enumerate(listed(attrs["crop_size"])):
        last = known_shape(data)[2 + axis] - 1
        first, end = column(boxes, axis), column(boxes, 2 + axis)
        steps = np.linspace(0, 1, size) if size > 1 else np.array([0.5])
        span = R.multiply(R.subtract(end, first), rx.Constant(steps.astype(dtype)[None]))
        position = R.multiply(R.add(first, span), number(last, dtype))
        positions.append(position)
        masks.append(inside(position, 0, last))
    images = R.take(data, box_indices, 0, mode="clip")
    crops = sampled(images, *grid_of(*positions), method=_SAMPLING[attrs["method"]])
    mask = R.expand_dims(R.logical_and(*grid_of(*masks)), 1)
    crops = R.where(mask, crops, number(attrs["extrapolation_value"], dtype))
    if channels_last:
        crops = R.permute_dims(crops, [0, 2, 3, 1])
    return R.astype(crops, attrs["out_dtype"] or dtype)


define(
    "image.crop_and_resize",
    "data boxes box_indices",
    _crop_and_resize,
    {
        "crop_size": REQUIRED,
        "layout": "NCHW",
        "method": "bilinear",
        "extrapolation_value": 0.0,
        "out_dtype": "",
    },
)


def _two(value: Any) -> list[int]:
    sizes = [int(size) for size in listed(value)]
    return sizes * 2 if len(sizes) == 1 else sizes


def _four(value: Any) -> list[int]:
    """Return the padding at the top, at the left, at the bottom and at the right."""
    sizes = _two(value)
    return sizes * 2 if len(sizes) == 2 else sizes


def _taps(sizes: list[int]) -> list[tuple[int, int]]:
    return [(dy, dx) for dy in range(sizes[0]) for dx in range(sizes[1])]


def _deformable_conv2d(args: Args, attrs: Any) -> rx.Expr:
    data, offset, weight = args
    layouts = attrs["data_layout"], attrs["kernel_layout"]
    if layouts == ("NHWC", "HWIO"):
        data, offset = (R.permute_dims(arg, [0, 3, 1, 2]) for arg in (data, offset))
        weight = R.permute_dims(weight, [3, 2, 0, 1])
    elif layouts != ("NCHW", "OIHW"):
        raise RelationError(
            f"the layouts are NCHW and OIHW, or NHWC and HWIO, found {' and '.join(layouts)}"
        )
    dtype, (batch, channels, height, width) = dtype_of(data), known_shape(data)
    out, _, *kernel = known_shape(weight)
    strides, dilation = _two(attrs["strides"]), _two(attrs["dilation"])
    top, left, *_ = _four(attrs["padding"])
    parts, taps = int(attrs["deformable_groups"]), _taps(kernel)
    rows, columns = known_shape(offset)[2:]
    groups = [
        sliced(data, [1], [part * channels // parts], [channels // parts], 1)
        for part in range(parts)
    ]
    samples = []
    for tap, (dy, dx) in enumerate(taps):
        pieces = []
        for part, group in enumerate(groups):
            first = 2 * (part * len(taps) + tap)
            y, x = (
                R.squeeze(sliced(offset, [1], [first + axis], [1], 1), [1]) for axis in range(2)
            )
            base_y = np.arange(rows) * strides[0] - top + dy * dilation[0]
            base_x = np.arange(columns) * strides[1] - left + dx * dilation[1]
            y = R.add(y, rx.Constant(base_y.astype(dtype)[:, None]))
            x = R.add(x, rx.Constant(base_x.astype(dtype)))
            # TVM takes nothing beyond the last row, but interpolates with it at the border.
            mask = R.logical_and(inside(y, 0, height), inside(x, 0, width))
            for position, size in ((y, height), (x, width)):
                mask = R.logical_and(mask, R.less(position, number(size, dtype)))
            value = sampled(group, y, x)
            pieces.append(R.where(R.expand_dims(mask, 1), value, number(0, dtype)))
        samples.append(pieces[0] if len(pieces) == 1 else R.concat(pieces, 1))
    stacked = R.reshape(R.stack(samples, 2), (batch, channels * len(taps), rows, columns))
    flat = R.reshape(weight, (out, -1, 1, 1))
    out_dtype = attrs["out_dtype"] or None
    result: rx.Expr = R.nn.conv2d(stacked, flat, groups=attrs["groups"], out_dtype=out_dtype)
    return R.permute_dims(result, [0, 2, 3, 1]) if layouts[0] == "NHWC" else result


define(
    "nn.deformable_conv2d",
    "data offset weight",
    _deformable_conv2d,
    {
        "strides": (1, 1),
        "padding": (0, 0),
        "dilation": (1, 1),
        "deformable_groups": 1,
        "groups": 1,
        "channels": None,
        "kernel_size": None,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "out_layout": "",
        "out_dtype": "",
    },
)


# Displacements


def _dilation2d(args: Args, attrs: Any) -> rx.Expr:
    data, weight = args
    layouts = attrs["data_layout"], attrs["kernel_layout"]
    if layouts == ("NHWC", "HWI"):
        data, weight = R.permute_dims(data, [0, 3, 1, 2]), R.permute_dims(weight, [2, 0, 1])
    elif layouts != ("NCHW", "IHW"):
        raise RelationError(f"the layouts are NCHW and IHW, or NHWC and HWI, found {layouts}")
    dtype, strides, dilation = dtype_of(data), _two(attrs["strides"]), _two(attrs["dilations"])
    top, left, bottom, right = _four(attrs["padding"])
    lowest = float(np.finfo(dtype).min)
    padded = R.nn.pad(data, [0, 0, 0, 0, top, bottom, left, right], "constant", lowest)
    channels, *kernel = known_shape(weight)
    sizes = [
        (size - (k - 1) * d - 1) // s + 1
        for size, k, d, s in zip(known_shape(padded)[2:], kernel, dilation, strides, strict=True)
    ]
    result: Any = None
    for dy, dx in _taps(kernel):
        rows = sliced(padded, [2], [dy * dilation[0]], [sizes[0]], strides[0])
        part = sliced(rows, [3], [dx * dilation[1]], [sizes[1]], strides[1])
        tap = R.reshape(sliced(weight, [1, 2], [dy, dx], [1, 1], 1), (channels, 1, 1))
        shifted = R.add(part, tap)
        result = shifted if result is None else R.maximum(result, shifted)
    return R.permute_dims(result, [0, 2, 3, 1]) if layouts[0] == "NHWC" else result


define(
    "image.dilation2d",
    "data weight",
    _dilation2d,
    {
        "strides": (1, 1),
        "padding": (0, 0),
        "dilations": (1, 1),
        "data_layout": "NCHW",
        "kernel_layout": "IHW",
        "out_dtype": "",
    },
)


def _correlation(args: Args, attrs: Any) -> rx.Expr:
    """The mean product, or distance, of patches of one image and of displaced ones of another."""
    if attrs["layout"] != "NCHW":
        raise RelationError(f"the layout is NCHW, found {attrs['layout']!r}")
    size, reach = int(attrs["kernel_size"]), int(attrs["max_displacement"])
    stride, step = int(attrs["stride1"]), int(attrs["stride2"])
    top, left, bottom, right = _four(attrs["padding"])
    one, other = (
        R.nn.pad(arg, [0, 0, 0, 0, top, bottom, left, right], "constant", 0.0) for arg in args
    )
    _, channels, height, width = known_shape(one)
    border = reach + (size - 1) // 2
    sizes = [-((2 * border - extent) // stride) for extent in (height, width)]
    near = range(-(reach // step) * step, reach + 1, step)
    maps = []
    for dy in near:
        for dx in near:
            total: Any = None
            for ky, kx in _taps([size, size]):
                begin = [reach + ky, reach + kx]
                moved = [reach + ky + dy, reach + kx + dx]
                a = sliced(one, [2, 3], begin, sizes, stride)
                b = sliced(other, [2, 3], moved, sizes, stride)
                both = R.multiply(a, b) if attrs["is_multiply"] else R.abs(R.subtract(a, b))
                total = both if total is None else R.add(total, both)
            maps.append(R.sum(total, [1], True))
    count = number(size * size * channels, dtype_of(one))
    return R.divide(R.concat(maps, 1), count)


define(
    "nn.correlation",
    "data1 data2",
    _correlation,
    {
        "kernel_size": 1,
        "max_displacement": 1,
        "stride1": 1,
        "stride2": 1,
        "padding": (0, 0),
        "is_multiply": True,
        "layout": "NCHW",
    },
)
