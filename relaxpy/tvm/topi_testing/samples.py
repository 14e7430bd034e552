"""Images at other sizes and positions: weighted sums of the elements around a position."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from relaxpy.errors import unexpected
from relaxpy.ir.core.dtype import Array
from relaxpy.support.entry import found_at

CROP: Final = "tf_crop_and_resize"
_EMPTY: Final = "an empty image has no elements at positions"


def _nearest(at: Fraction, rounding: str) -> int:
    half = Fraction(1, 2)
    match rounding:
        case "round":
            return round(at)
        case "round_prefer_floor":
            return math.ceil(at - half)
        case "round_prefer_ceil":
            return math.floor(at + half)
        case "ceil":
            return math.ceil(at)
        case "floor":
            return math.floor(at)
        case _:
            raise unexpected(rounding, "rounding_method is one of topi.image.resize2d")


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


def _coordinates(
    old: int, new: int, mode: str, start: Fraction, end: Fraction
) -> Callable[[int], Fraction]:
    """ONNX, Resize: the coordinate of an element in the original axis, exactly."""
    half, ratio = Fraction(1, 2), Fraction(old, max(new, 1))
    begin = start * (old - 1)
    match mode:
        case "pytorch_half_pixel" | "align_corners" if new == 1:
            return lambda x: Fraction(0)
        case "half_pixel" | "pytorch_half_pixel":
            return lambda x: (x + half) * ratio - half
        case "align_corners":
            return lambda x: Fraction(x * (old - 1), new - 1)
        case "asymmetric":
            return lambda x: x * ratio
        case "tf_half_pixel_for_nn":
            return lambda x: (x + half) * ratio
        case "tf_crop_and_resize" if new == 1:
            return lambda x: (start + end) * (old - 1) * half
        case "tf_crop_and_resize":
            return lambda x: begin + x * (end - start) * (old - 1) / (new - 1)
        case _:
            raise unexpected(mode, "coordinate_transformation_mode is one of ONNX's Resize")


@lru_cache(maxsize=256)
def _rows(
    old: int,
    new: int,
    region: tuple[float, float],
    method: str,
    mode: str,
    rounding: str,
    alpha: float,
    exclude: int,
) -> list[Mapping[int, float] | None]:
    """For each element of an axis, the weights of the elements that it is a sum of.

    None outside of the region.
    """
    found: list[Mapping[int, float] | None] = []
    coordinate = _coordinates(old, new, mode, *map(Fraction, region))
    for at in map(coordinate, range(new)):
        if mode == CROP and not 0 <= at <= old - 1:
            found.append(None)
            continue
        is_nearest = method == "nearest_neighbor"
        near = {_nearest(at, rounding): 1.0} if is_nearest else _around(at, method, alpha)
        if method == "cubic" and exclude:
            near = {k: weight for k, weight in near.items() if 0 <= k < old}
            near = {k: weight / sum(near.values()) for k, weight in near.items()}
        weights: dict[int, float] = {}
        for k, weight in near.items():
            border = min(max(k, 0), old - 1)
            weights[border] = weights.get(border, 0.0) + weight
        found.append(weights)
    return found


def resized(
    x: Array,
    size: Sequence[int],
    layout: str,
    roi: Sequence[float] | None = None,
    *,
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
) -> Array:
    """ONNX, Resize, in float64: one axis after the other."""
    result = x.astype("float64")
    region = [0.0] * (2 * len(size)) if roi is None else roi
    options = method, coordinate_transformation_mode, rounding_method, cubic_alpha, cubic_exclude
    outside = []
    for axis, new, *ends in zip(
        [layout.index(letter) for letter in "DHW" if letter in layout],
        *(size, region[: len(size)], region[len(size) :]),
        strict=True,
    ):
        if new and not x.shape[axis]:
            raise ValueError(_EMPTY)
        rows = _rows(x.shape[axis], new, tuple(ends), *options)
        old = np.moveaxis(result, axis, 0)
        sums = np.zeros((new, *old.shape[1:]))
        for k, row in enumerate(rows):
            for source, weight in (row or {}).items():
                sums[k] += old[source] * weight
        result = np.moveaxis(sums, 0, axis)
        outside.append((slice(None),) * axis + ([k for k, row in enumerate(rows) if row is None],))
    for elements in outside:
        result[elements] = extrapolation_value
    return result


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
    parts = [
        resized(
            image[int(k)][None],
            crop_size,
            layout,
            box.tolist(),
            method="linear" if method == "bilinear" else method,
            coordinate_transformation_mode=CROP,
            extrapolation_value=extrapolation_value,
        )
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
        raise ValueError(_EMPTY)
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
