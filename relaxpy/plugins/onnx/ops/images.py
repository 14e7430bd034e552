"""Images: decoded files, and at other positions: grids, affine maps, blocks of columns, crops.

Those of the domain com.microsoft have channels last, some of them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import Unpack

from relaxpy.errors import MisuseError
from relaxpy.exec.runtime.registry import register_func
from relaxpy.exec.runtime.values import Array
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Expr, TensorStructInfo
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import image
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.te.topi.shapes import as_sizes
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.strings import PREFIX
from relaxpy.plugins.importing.tensors import rank_of, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import FilterAttributes, WindowAttributes, simple, whole
from relaxpy.plugins.onnx.context import Context, call
from relaxpy.plugins.onnx.ops.microsoft import DOMAIN
from relaxpy.plugins.onnx.ops.pool import max_pool
from relaxpy.plugins.onnx.ops.quantized import qlinear_conv
from relaxpy.plugins.onnx.registry import Value, converter

#: By pixel format, the mode in which an image is read, and the order of its channels.
FORMATS = {"RGB": ("RGB", 1), "BGR": ("RGB", -1), "Grayscale": ("L", 1)}


def decode_image(encoded: Any, pixel_format: str) -> Array:
    """The pixels of a file of an image, as (height, width, channels).

    Errors:
        MisuseError: Pillow is not installed, or it cannot read the bytes as an image.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError:
        raise MisuseError("decoding images needs Pillow: pip install pillow") from None
    mode, order = FORMATS[pixel_format]
    data = np.asarray(encoded, np.uint8).tobytes()
    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = np.asarray(image.convert(mode))
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError) as error:
        raise MisuseError(f"these {len(data)} bytes cannot be decoded as an image") from error
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1)[:, :, ::order])


register_func(PREFIX + "decode_image", decode_image, override=True)


_METHODS = {
    "nearest": "nearest",
    "bilinear": "bilinear",
    "linear": "bilinear",
    "bicubic": "bicubic",
    "cubic": "bicubic",
}


_SAMPLES = {"mode": _METHODS, "padding_mode": ("zeros", "border", "reflection")}


@converter("GridSample", domain="com.microsoft", admitted=_SAMPLES)
@converter("GridSample", admitted=_SAMPLES)
def grid_sample(
    cx: Context,
    x: Expr,
    grid: Expr,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Expr:
    rank = tensors.rank_of(x)
    if rank not in (4, 5):
        raise UnsupportedError(f"expected images of rank 4 or 5, found rank {rank}")
    first = R.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)])
    layout = "NCHW" if rank == 4 else "NCDHW"
    aligned = bool(align_corners)
    return R.image.grid_sample(x, cx.emit(first), _METHODS[mode], layout, padding_mode, aligned)


@converter("AffineGrid")
def affine_grid(cx: Context, theta: Expr, size: Value, *, align_corners: int = 0) -> Expr:
    rows = tensors.shape_of(theta)[1]
    if rows not in (2, 3):
        raise UnsupportedError(f"affine maps of {rows} axes")
    count = whole(rows)
    sizes = cx.sizes(size, "size")
    spatial, aligned = sizes[2:], bool(align_corners)
    tensors.require_count("size", sizes, count + 2)
    theta = cx.shaped(theta, "theta", [sizes[0], count, count + 1])
    if count == 2:
        grid = R.image.affine_grid(theta, tuple(spatial), aligned)
    else:
        grid = cx.te(
            lambda maps: image.affine_grid(maps, as_sizes(spatial), aligned),
            theta,
            name="affine_grid",
        )
    return R.permute_dims(cx.emit(grid), [0, *range(2, count + 2), 1])


@converter("Col2Im")
def col2im(
    cx: Context,
    x: Expr,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    image, block = cx.sizes(image_shape, "size"), cx.sizes(block_shape, "size")
    count = len(image)
    steps, holes = list(strides or [1] * count), list(dilations or [1] * count)
    widths = list(pads or [0] * 2 * count)
    tensors.shape_of(x, 3)
    tensors.require_count("block_shape", block, count)
    tensors.require_count("strides", steps, count)
    tensors.require_count("dilations", holes, count)
    tensors.require_count("pads", widths, 2 * count)

    def kernel(columns: Tensor) -> Tensor:
        lengths, members = as_sizes(image), as_sizes(block)
        each = ops.const(1, "int64")
        for size in members:
            each = ops.mul(each, size)
        windows = []
        for k in range(count):
            span = (members[k] - 1) * holes[k] + 1
            room = lengths[k] + widths[k] + widths[k + count] - span
            windows.append(ops.floordiv(room, ops.const(steps[k], "int64")) + 1)

        def element(n: PrimExpr, c: PrimExpr, *at: PrimExpr) -> PrimExpr:
            inside, member, window = [], ops.const(0, "int64"), ops.const(0, "int64")
            axes = []
            for k, size in enumerate(members):
                # Of adjacent members, one in so many is in a window that begins at its step.
                every = ops.const(steps[k] if holes[k] == 1 else 1, "int64")
                axis = te.reduce_axis((ops.const(0, "int64"), ops.ceildiv(size, every)), "k")
                axes.append(axis)
                own = ops.floormod(at[k] + widths[k], every) + axis.var * every
                offset = at[k] + widths[k] - own * holes[k]
                index = ops.floordiv(offset, ops.const(steps[k], "int64"))
                rest = ops.floormod(offset, ops.const(steps[k], "int64"))
                inside += [ops.compare(tir.EQ, rest, ops.const(0, "int64"))]
                inside += [own < size, index >= 0, index < windows[k]]
                bounded = ops.maximum(ops.minimum(index, windows[k] - 1), ops.const(0, "int64"))
                member = member * size + ops.minimum(own, size - 1)
                window = window * windows[k] + bounded
            value = columns(n, c * each + member, window)
            return reduce.sum(
                tir.Select(ops.all_of(*inside), value, ops.const(0, columns.dtype)), axis=axes
            )

        channels = ops.floordiv(columns.shape[1], each)
        return computed([columns.shape[0], channels, *lengths], element, "col2im")

    return cx.te(kernel, x, name="col2im")


@converter("CenterCropPad", strings=True)
def center_crop_pad(
    cx: Context, x: Expr, shape: Value, *, axes: Sequence[int] | None = None
) -> Expr:
    sizes = tensors.shape_of(x)
    chosen = tensors.normal_axes(axes, len(sizes))
    wanted = cx.sizes(shape, "size", len(chosen))
    tensors.require_count("shape", wanted, len(chosen))
    before: list[tensors.Size] = [0] * len(sizes)
    after: list[tensors.Size] = [0] * len(sizes)
    for axis, new in zip(chosen, wanted, strict=True):
        change = simple(new - sizes[axis])
        if isinstance(change, int):
            before[axis] = math.trunc(change / 2)
        else:
            before[axis] = simple(tir.Div(change, ops.const(2, "int64")))
        after[axis] = simple(change - before[axis])
    return cx.te(lambda t: pad(t, before, after, 0), x, name="center_crop_pad")


@converter("Det")
def det(cx: Context, x: Expr) -> Expr:
    *batch, _, _ = tensors.shape_of(x)
    dtype = tensors.dtype_of(x)
    wide = R.astype(x, "float32") if dtype == "float16" else x
    return tensors.call("linalg_det", [wide], [(0, batch, dtype, False)], factors=False)


@converter("ImageDecoder", admitted={"pixel_format": FORMATS})
def image_decoder(cx: Context, encoded: Expr, *, pixel_format: str = "RGB") -> Expr:
    info = TensorStructInfo(ndim=3, dtype=DataType("uint8"))
    return call("decode_image", info, encoded, pixel_format)


def with_channels_first(cx: Context, x: Expr, op: Callable[[Expr], Expr]) -> Expr:
    """The result of `op`, which takes channels first, on a tensor that has them last."""
    rank = rank_of(x)
    moved = cx.emit(R.permute_dims(x, [0, rank - 1, *range(1, rank - 1)]))
    return R.permute_dims(cx.emit(op(moved)), [0, *range(2, rank), 1])


@converter("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(
    cx: Context,
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    ceil_mode: int = 0,
    **spans: Unpack[WindowAttributes],
) -> Expr:
    def pooled(images: Expr) -> Expr:
        (y,) = max_pool(cx, images, kernel_shape=kernel_shape, ceil_mode=ceil_mode, **spans)
        return y

    return with_channels_first(cx, x, pooled)


@converter("QLinearConv", domain=DOMAIN)
def qlinear_conv_of_layout(
    cx: Context,
    x: Expr,
    x_scale: Expr,
    x_zero_point: Expr,
    w: Expr,
    w_scale: Expr,
    w_zero_point: Expr,
    y_scale: Expr,
    y_zero_point: Expr,
    B: Expr | None = None,  # noqa: N803
    *,
    channels_last: int = 0,
    **filters: Unpack[FilterAttributes],
) -> Expr:
    def convolved(images: Expr) -> Expr:
        return qlinear_conv(
            *(cx, images, x_scale, x_zero_point, w, w_scale, w_zero_point),
            *(y_scale, y_zero_point, B),
            **filters,
        )

    return with_channels_first(cx, x, convolved) if channels_last else convolved(x)


@converter("CropAndResize", domain=DOMAIN, admitted={"mode": ("bilinear", "nearest")})
def crop_and_resize(
    cx: Context,
    x: Expr,
    rois: Expr,
    batch_indices: Expr,
    crop_size: Value,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Expr:
    """Regions of images, sampled so that corners are corners of the region."""
    counts = cx.sizes(crop_size, "size", 2)
    count, channels = shape_of(rois, 2)[0], shape_of(x, 4)[1]

    def kernel(data: Tensor, regions: Tensor, batches: Tensor) -> Tensor:
        rows_and_columns = as_sizes(counts)

        def at(r: PrimExpr, k: int, step: PrimExpr) -> PrimExpr:
            """The position of a sample along the rows (0) or columns (1)."""
            last = ops.cast_to(data.shape[2 + k] - 1, "float32")
            low, high = (regions(r, ops.const(j, "int64")) for j in (k, k + 2))
            number = rows_and_columns[k]
            width = (high - low) * last / ops.cast_to(ops.maximum(number - 1, 1), "float32")
            middle = (low + high) * last * 0.5
            return if_then_else(
                number > 1, low * last + ops.cast_to(step, "float32") * width, middle
            )

        def element(r: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
            image = ops.cast_to(batches(r), "int64")
            places, bounds = [at(r, 0, i), at(r, 1, j)], []
            for k, place in enumerate(places):
                last = ops.cast_to(data.shape[2 + k] - 1, "float32")
                bounds += [place >= 0.0, place <= last]

            def sample(y: PrimExpr, x: PrimExpr) -> PrimExpr:
                return data(image, c, ops.cast_to(y, "int64"), ops.cast_to(x, "int64"))

            if mode == "nearest":
                value = sample(*(intrin.floor(place + 0.5) for place in places))
            else:
                (top, low), (left, near) = (
                    (intrin.floor(place), place - intrin.floor(place)) for place in places
                )
                bottom, right = (intrin.ceil(place) for place in places)
                above = sample(top, left) + (sample(top, right) - sample(top, left)) * near
                below = sample(bottom, left) + (sample(bottom, right) - sample(bottom, left)) * near
                value = above + (below - above) * low
            nothing = ops.const(extrapolation_value, data.dtype)
            return if_then_else(ops.all_of(*bounds), value, nothing)

        return computed(as_sizes([count, channels, *counts]), element, "crop_and_resize")

    return cx.te(kernel, x, rois, batch_indices, name="crop_and_resize")
