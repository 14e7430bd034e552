"""Images: decoded files, and at other positions: grids, affine maps, blocks of columns, crops."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.exec.runtime.onnx_strings import PREFIX
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
from relaxpy.ir.tir import expr as tir, ops, reduce
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing import matrices, tensors
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import simple, whole
from relaxpy.plugins.onnx.context import Context, call
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
            axes = [te.reduce_axis((ops.const(0, "int64"), size), "k") for size in members]
            inside, member, window = [], ops.const(0, "int64"), ops.const(0, "int64")
            for k, axis in enumerate(axes):
                offset = at[k] + widths[k] - axis.var * holes[k]
                index = ops.floordiv(offset, ops.const(steps[k], "int64"))
                rest = ops.floormod(offset, ops.const(steps[k], "int64"))
                inside += [ops.compare(tir.EQ, rest, ops.const(0, "int64"))]
                inside += [index >= 0, index < windows[k]]
                bounded = ops.maximum(ops.minimum(index, windows[k] - 1), ops.const(0, "int64"))
                member = member * members[k] + axis.var
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
    return matrices.call("linalg_det", [wide], [(0, batch, dtype, False)], factors=False)


@converter("ImageDecoder", admitted={"pixel_format": FORMATS})
def image_decoder(cx: Context, encoded: Expr, *, pixel_format: str = "RGB") -> Expr:
    info = TensorStructInfo(ndim=3, dtype=DataType("uint8"))
    return call("decode_image", info, encoded, pixel_format)
