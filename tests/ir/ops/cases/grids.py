"""Images and volumes at the positions of a grid, and grids of affine maps."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from relaxpy.topi import testing
from tests.ir.ops.cases.case import Array, Case, floats, slopes


def backward(g: Array, x: Array, grid: Array, **attrs: Any) -> tuple[Array, Array]:
    """The derivatives of the weighted sum of the result, by differences."""
    return (
        slopes(lambda v: (g * testing.grid_sample_python(v, grid, **attrs)).sum(), x),
        slopes(lambda v: (g * testing.grid_sample_python(x, v, **attrs)).sum(), grid),
    )


def _case(label: str, x: Array, grid: Array, **attrs: Any) -> Iterator[Case]:
    yield Case(
        "relax.image.grid_sample",
        label,
        (x, grid),
        lambda v, w: op.image.grid_sample(v, w, **attrs),
        lambda v, w: testing.grid_sample_python(v, w, **{"align_corners": False, **attrs}),
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
    small = floats(1, 2, 1, 2, seed=5), floats(1, 2, 2, 3), floats(1, 2, 1, 2, seed=2) * 1.4
    rows: list[tuple[str, tuple[Array, ...], dict[str, Any]]] = []
    for method, padding in itertools.product(
        ("nearest", "bilinear", "bicubic"), ("zeros", "border", "reflection")
    ):
        attrs = {"method": method, "padding_mode": padding, "align_corners": False}
        rows.append((f"{method} {padding}", small, attrs))
    rows.append(("corners", small, {"padding_mode": "reflection", "align_corners": True}))
    deep = floats(1, 1, 1, 1, 2, seed=5), volume, places[:, :, :1, :, :2]
    rows.append(("volume", deep, {"layout": "NCDHW", "align_corners": False}))
    for label, inputs, attrs in rows:
        yield Case(
            "relax.grad.grid_sample_backward",
            label,
            inputs,
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
                lambda m, s=(height, width), k=corners: testing.affine_grid_python(m, s, k),
                literal=((0, 1), (0, 2)),
            )
