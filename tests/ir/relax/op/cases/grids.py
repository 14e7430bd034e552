"""Images and volumes at the positions of a grid, and grids of affine maps."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxpy.ir.relax import op
from tests.ir.relax.op.cases.case import Array, Case, floats, slopes


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


def _weights(at: float, method: str) -> dict[int, float]:
    if method == "nearest":
        return {round(at): 1.0}
    base = math.floor(at)
    t = at - base
    if method == "bilinear":
        return {base: 1 - t, base + 1: t}
    return {base + k: _cubic(abs(at - base - k)) for k in (-1, 0, 1, 2)}


def _cubic(distance: float) -> float:
    a = -0.75
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a


def sampled(
    x: Array,
    grid: Array,
    method: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    layout: str = "NCHW",
) -> Array:
    if not all(x.shape[2:]):
        raise ValueError("an empty image has no elements at positions")
    out = np.zeros((*x.shape[:2], *grid.shape[2:]))
    for index in np.ndindex(*out.shape):
        n, c, *where = index
        near = []
        for coordinate, size in zip(grid[(n, slice(None), *where)][::-1], x.shape[2:], strict=True):
            last = size - 1
            at = (float(coordinate) + 1) * (last if align_corners else size) / 2
            near.append(_weights(at if align_corners else at - 0.5, method))
        for chosen in itertools.product(*(weights.items() for weights in near)):
            place = tuple(k for k, _ in chosen)
            value = _element(x[n, c], place, padding_mode, corners=align_corners)
            out[index] += value * math.prod(weight for _, weight in chosen)
    return out


def backward(g: Array, x: Array, grid: Array, **attrs: Any) -> tuple[Array, Array]:
    """The derivatives of the weighted sum of the result, by differences."""
    return (
        slopes(lambda v: (g * sampled(v, grid, **attrs)).sum(), x),
        slopes(lambda v: (g * sampled(x, v, **attrs)).sum(), grid),
    )


def affine(maps: Array, height: int, width: int, *, corners: bool) -> Array:
    def at(k: int, size: int) -> float:
        if corners:
            return 2 * k / (size - 1) - 1 if size > 1 else 0.0
        return (2 * k + 1) / size - 1

    out = np.zeros((len(maps), 2, height, width))
    for n, i, y, x in np.ndindex(*out.shape):
        out[n, i, y, x] = maps[n, i] @ np.array([at(x, width), at(y, height), 1])
    return out


def _case(label: str, x: Array, grid: Array, **attrs: Any) -> Iterator[Case]:
    yield Case(
        "relax.image.grid_sample",
        label,
        (x, grid),
        lambda v, w: op.image.grid_sample(v, w, **attrs),
        lambda v, w: sampled(v, w, **attrs),
        # Weights of cubics are rounded many times.
        roundings=32 if attrs.get("method") == "bicubic" else 8,
        literal=((1, 1),),
    )


def cases() -> Iterator[Case]:
    x = floats(1, 2, 3, 4)
    grid = floats(1, 2, 2, 3, seed=2) * 0.7
    for method, padding, corners in itertools.product(
        ("nearest", "bilinear", "bicubic"), ("zeros", "border", "reflection"), (True, False)
    ):
        attrs = {"method": method, "padding_mode": padding, "align_corners": corners}
        label = f"{method} {padding}{' corners' if corners else ''}"
        yield from _case(label, x, grid, **attrs)
    volume, places = floats(1, 1, 2, 3, 2), floats(1, 3, 2, 1, 3, seed=4) * 0.6
    for method in ("nearest", "bilinear"):
        yield from _case(f"volume {method}", volume, places, method=method, layout="NCDHW")
    yield from _case("batch", floats(2, 1, 2, 2), floats(2, 2, 3, 2, seed=7))
    yield from _case("one element", floats(1, 2, 1, 1), grid, padding_mode="reflection")
    yield from _case("float16", x.astype("float16"), grid)
    yield from _case("nothing", x, grid[..., :0])
    far = np.array([1e30, -1e30, 3.0, -1.0], "float32").reshape(1, 2, 1, 2)
    yield from _case("far away", x, far, padding_mode="border", method="nearest")
    for method in ("nearest", "bilinear", "bicubic"):
        attrs = {"method": method, "align_corners": False}
        yield Case(
            "relax.grad.grid_sample_backward",
            method,
            (floats(1, 2, 2, 3, seed=5), x, grid),
            lambda g, v, w, a=attrs: op.grad.grid_sample_backward(g, v, w, **a),
            lambda g, v, w, a=attrs: backward(g, v, w, **a),
            only=("values", "shape", "dtype"),  # whose differences are exact enough
            literal=((2, 1),),
        )
    maps = floats(2, 2, 3)
    for corners in (True, False):
        for height, width in ((3, 4), (1, 2)):
            yield Case(
                "relax.image.affine_grid",
                f"{height}x{width}{' corners' if corners else ''}",
                (maps,),
                lambda m, s=(height, width), k=corners: op.image.affine_grid(m, s, k),
                lambda m, s=(height, width), k=corners: affine(m, *s, corners=k),
                literal=((0, 1), (0, 2)),
            )
