"""Images and volumes at other sizes and at the positions of a grid, element by element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from relaxpy.errors import unexpected
from relaxpy.tvm.topi_testing.windows import Array

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

    return resize


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
