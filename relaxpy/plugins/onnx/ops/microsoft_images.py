"""Operators of the domain com.microsoft on images, some of which have channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing_extensions import Unpack

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import as_sizes
from relaxpy.ir.tir import intrin, ops
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import rank_of, shape_of
from relaxpy.plugins.importing.windows import FilterAttributes, WindowAttributes
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.ops.microsoft import DOMAIN
from relaxpy.plugins.onnx.ops.pool import max_pool
from relaxpy.plugins.onnx.ops.quantized import qlinear_conv
from relaxpy.plugins.onnx.registry import Value, converter


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
