"""Images with other sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxpy.frontend.shared.tensors import dtype_of, rank_of, shape_of, sizes_known
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.registry import converter
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R

Array = np.ndarray[Any, np.dtype[Any]]


@converter("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
@converter("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def upsample_nearest(cx: Context, x: Expr, size: Any, *scales: Any) -> Expr:
    _check_scales(cx, x, scales)
    return _resized(cx, x, "nearest_neighbor", "asymmetric", "floor")


def _check_scales(cx: Context, x: Expr, scales: Sequence[Any]) -> None:
    """PyTorch samples by the given scales, also where they are not the ratios of the sizes."""
    given = scales[0] if len(scales) == 1 and isinstance(scales[0], (tuple, list)) else scales
    for old, new, scale in zip(shape_of(x)[2:], cx.result_shape()[2:], given or (), strict=False):
        exact = isinstance(old, int) and isinstance(new, int) and scale and old * scale == new
        if scale is not None and not exact and scale != int(scale):
            raise UnsupportedError(f"the scale {scale} of {old} elements that become {new}")


def _resized(cx: Context, x: Expr, method: str, coordinates: str, rounding: str = "") -> Expr:
    count = rank_of(x) - 2
    wanted = cx.result_shape()[2:]
    more = {"rounding_method": rounding} if rounding else {}
    data = x
    if count == 1:
        data, wanted = R.expand_dims(x, 2), [1, *wanted]
    op = R.image.resize3d if count == 3 else R.image.resize2d
    y = op(
        data,
        tuple(wanted),
        method=method,
        coordinate_transformation_mode=coordinates,
        **more,
    )
    return R.squeeze(y, [2]) if count == 1 else y


@converter("upsample_linear1d", "upsample_linear1d.vec")
@converter("upsample_bilinear2d", "upsample_bilinear2d.vec")
@converter("upsample_trilinear3d", "upsample_trilinear3d.vec")
def upsample_linear(cx: Context, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    if dtype_of(x) == "uint8" and rank_of(x) == 4:
        return _filtered(cx, x, align_corners, _scales(scales), "linear", widened=False)
    if not align_corners:
        _check_scales(cx, x, scales)
    return _resized(cx, x, "linear", "align_corners" if align_corners else "half_pixel")


@converter("upsample_bicubic2d", "upsample_bicubic2d.vec")
def upsample_bicubic(cx: Context, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    if dtype_of(x) == "uint8":
        return _filtered(cx, x, align_corners, _scales(scales), "cubic", widened=False)
    if not align_corners:
        _check_scales(cx, x, scales)
    return _resized(cx, x, "cubic", "align_corners" if align_corners else "half_pixel")


def _cubic(a: float) -> Callable[[Array], Array]:
    def weight(x: Array) -> Array:
        inner = ((a + 2) * x - (a + 3)) * x * x + 1
        outer = ((x - 5) * x + 8) * x * a - 4 * a
        return np.where(x < 1, inner, np.where(x < 2, outer, 0))

    return weight


def _linear(x: Array) -> Array:
    return np.maximum(1 - x, 0)


def _widened(old: int, new: int, step: float, method: str) -> Array:
    """How much of each old element is in each new one, where shrinking widens the filter."""
    width = max(step, 1.0)
    reach = (1 if method == "linear" else 2) * width
    centre = step * (np.arange(new)[:, None] + 0.5)
    begin = np.maximum(np.trunc(centre - reach + 0.5), 0)
    end = np.minimum(np.trunc(centre + reach + 0.5), old)
    places = np.arange(old)[None, :]
    distance = np.abs(places - centre + 0.5) / width
    found = (_linear if method == "linear" else _cubic(-0.5))(distance)
    found = np.where((places >= begin) & (places < end), found, 0)
    return found / found.sum(1, keepdims=True)


def _between(old: int, new: int, step: float, method: str, *, align_corners: bool) -> Array:
    """How much of each old element is in each new one; those on the edges stand for more."""
    numbers = np.arange(new)
    centre = step * numbers if align_corners else step * (numbers + 0.5) - 0.5
    if method == "linear":
        centre = np.maximum(centre, 0)
    reach = 1 if method == "linear" else 2
    found = np.zeros((new, old))
    for offset in range(1 - reach, reach + 1):
        place = np.floor(centre) + offset
        weight = (_linear if method == "linear" else _cubic(-0.75))(np.abs(place - centre))
        np.add.at(found, (numbers, np.clip(place, 0, old - 1).astype(int)), weight)
    return found


def _filtered(
    cx: Context,
    x: Expr,
    align_corners: bool,
    scales: Sequence[float | None],
    method: str,
    *,
    widened: bool,
) -> Expr:
    """The columns and then the rows as weighted sums, each rounded where the elements are bytes."""
    y, is_bytes = x, dtype_of(x) == "uint8"
    for axis in (3, 2):
        old, new = sizes_known(x)[axis], cx.result_shape()[axis]
        if not isinstance(new, int):
            raise UnsupportedError("the size of the result has to be a number")
        scale = scales[axis - 2]
        step = old / new if scale is None else 1 / scale
        if align_corners:
            step = (old - 1) / (new - 1) if new > 1 else 0.0
        if widened:
            weights = _widened(old, new, step, method)
        else:
            weights = _between(old, new, step, method, align_corners=align_corners)
        digits = 0
        if is_bytes:
            most = weights.max(initial=0.5)
            digits = next(k for k in range(22, 0, -1) if int(most * 2**k + 0.5) < 2**15)
            weights = np.trunc(weights * 2**digits + np.copysign(0.5, weights))
        kind = "int32" if is_bytes else "float32" if "16" in dtype_of(x) else dtype_of(x)
        order = [0, 1, 5 - axis, axis]
        data = R.permute_dims(cx.tensor(y, kind), order)
        y = R.matmul(data, const(weights.T.astype(kind), kind))
        if is_bytes:
            half, zero, top = (const(value, kind) for value in (1 << (digits - 1), 0, 255))
            shifted = R.right_shift(R.add(y, half), const(digits, kind))
            y = R.minimum(R.maximum(shifted, zero), top)
        y = cx.emit(R.permute_dims(y, order))
    return y


def _scales(scales: Sequence[Any]) -> Sequence[float | None]:
    """The scales of rows and columns, which are one argument of some operators."""
    given = scales[0] if len(scales) == 1 else scales
    return given or (None, None)


@converter("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def upsample_filtered(cx: Context, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    method = "linear" if "linear" in str(cx.node.target) else "cubic"
    return _filtered(cx, x, align_corners, _scales(scales), method, widened=True)
