"""Images and volumes at other sizes."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from relaxpy.ir.relax import op
from tests.ir.relax.op.cases.case import Array, Case, floats, integers

CROP = "tf_crop_and_resize"
ATTRS: dict[str, Any] = {
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
    assert mode == CROP
    if new == 1:
        return (start + end) * (old - 1) * half
    return start * (old - 1) + x * (end - start) * (old - 1) / (new - 1)


def _nearest(at: Fraction, rounding: str) -> int:
    half = Fraction(1, 2)
    return {
        "round": lambda: round(at),
        "round_prefer_floor": lambda: math.ceil(at - half),
        "round_prefer_ceil": lambda: math.floor(at + half),
        "floor": lambda: math.floor(at),
        "ceil": lambda: math.ceil(at),
    }[rounding]()


def _weights(at: Fraction, old: int, attrs: dict[str, Any]) -> dict[int, float]:
    """The weight of each element of an axis at a coordinate."""
    if attrs["method"] == "nearest_neighbor":
        near = {_nearest(at, attrs["rounding_method"]): 1.0}
    else:
        base = math.floor(at)
        if attrs["method"] == "linear":
            near = {base: float(1 - (at - base)), base + 1: float(at - base)}
        else:
            near = {base + k: _cubic(float(abs(at - base - k)), attrs) for k in (-1, 0, 1, 2)}
            if attrs["cubic_exclude"]:
                near = {k: w for k, w in near.items() if 0 <= k < old}
                total = sum(near.values())
                near = {k: w / total for k, w in near.items()}
    weights: dict[int, float] = {}
    for k, weight in near.items():
        border = min(max(k, 0), old - 1)
        weights[border] = weights.get(border, 0.0) + weight
    return weights


def _cubic(distance: float, attrs: dict[str, Any]) -> float:
    a = attrs["cubic_alpha"]
    if distance <= 1:
        return float((a + 2) * distance**3 - (a + 3) * distance**2 + 1)
    return float(a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a)


def resized(
    x: Array, size: Sequence[int], layout: str, roi: Sequence[float] | None = None, **given: Any
) -> Array:
    """ONNX, Resize, one element after the other."""
    region = (0.0,) * (2 * len(size)) if roi is None else tuple(roi)
    attrs = {**ATTRS, **given}
    shape = list(x.shape)
    for letter, new in zip([v for v in "DHW" if v in layout], size, strict=True):
        shape[layout.index(letter)] = new
    out = np.full(shape, float(attrs["extrapolation_value"]))
    for index, terms in _sources(x.shape, tuple(shape), layout, region, tuple(attrs.items())):
        out[index] = sum(x[source] * weight for source, weight in terms)
    if x.dtype.kind in "iu" and not attrs.get("out_dtype"):
        # Sums of integers that are integers but for their roundings are these integers.
        out += np.copysign(2.0**-10 if x.dtype.itemsize == 1 else 2.0**-20, out)
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


def _case(
    label: str,
    x: Array,
    size: Sequence[int],
    layout: str = "NCHW",
    *,
    roundings: int = 8,
    **attrs: Any,
) -> Case:
    name = f"resize{len(size)}d"
    operator = op.image.resize2d if len(size) == 2 else op.image.resize3d
    return Case(
        f"relax.image.{name}",
        label,
        (x,),
        lambda v: operator(v, size, layout=layout, **attrs),
        lambda v: resized(v, size, layout, **attrs),
        # Coordinates and weights of cubics are rounded, too; and a weight may be 0.
        roundings=32 if attrs.get("method") == "cubic" else roundings,
        only=() if attrs.get("method") == "nearest_neighbor" else ("values",),
    )


MODES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")


def cases() -> Iterator[Case]:
    x = floats(1, 2, 4, 5)
    for method in ("nearest_neighbor", "linear", "cubic"):
        for mode in MODES:
            given = {"method": method, "coordinate_transformation_mode": mode}
            yield _case(f"{method} {mode} up", x, (7, 9), **given)
            yield _case(f"{method} {mode} down", x, (2, 1), **given)
        crop: dict[str, Any] = {
            "method": method,
            "coordinate_transformation_mode": CROP,
            "roi": (0.25, -0.5, 0.75, 1.25),
            "extrapolation_value": 4.5,
        }
        yield _case(f"{method} crop", x, (3, 8), **crop)
        yield _case(f"{method} middle", x, (1, 1), **crop)
    for rounding in ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        for mode in ("half_pixel", "asymmetric", "align_corners"):
            given = {"rounding_method": rounding, "coordinate_transformation_mode": mode}
            yield _case(f"{rounding} {mode}", x, (2, 10), method="nearest_neighbor", **given)
    yield _case("same size", x, (4, 5))
    yield _case("one axis", x, (4, 8), method="cubic", cubic_alpha=-0.5)
    yield _case("cubic exclude", x, (6, 3), method="cubic", cubic_exclude=1)
    yield _case("NHWC", floats(2, 3, 4, 2), (5, 2), layout="NHWC")
    yield _case("HWCN", floats(3, 4, 2, 1), (5, 2), layout="HWCN", method="nearest_neighbor")
    yield _case("blocks", floats(1, 2, 3, 2, 4), (2, 3), layout="NCHW4c")
    yield _case("nothing", x[:0], (3, 3))
    yield replace(_case("no elements", x, (0, 3)), only=("values", "shape"))
    yield _case("float16", (x * 10).astype("float16"), (5, 7))
    yield _case("far float16", (x * 6000).astype("float16"), (1, 1))
    yield _case("to float32", x.astype("float16"), (5, 7), out_dtype="float32")
    yield _case("float64", x.astype("float64"), (5, 7), method="cubic")
    ints = integers(1, 2, 4, 5, dtype="int8", low=-128, high=128)
    yield _case("ints", ints, (5, 7), method="nearest_neighbor")
    # Weights, products and sums are rounded to float32 along either axis, at numbers up to 128 of
    # which little may be left: each by half a unit in the last place.
    yield _case("from ints", ints, (5, 7), out_dtype="float32", roundings=2 * 3 * 128 // 2)
    wide = integers(1, 1, 3, 3, dtype="int64", low=-(2**40), high=2**40) * 4
    wide_case = _case("wide ints", wide, (5, 5), coordinate_transformation_mode="align_corners")
    yield replace(wide_case, only=("values", "dtype"))
    bools = integers(1, 2, 4, 5) > 0
    yield _case("Booleans", bools, (5, 7), method="nearest_neighbor")
    volume = floats(1, 2, 2, 3, 4)
    for method in ("nearest_neighbor", "linear", "cubic"):
        yield _case(f"{method}", volume, (3, 2, 5), layout="NCDHW", method=method)
    yield _case("NDHWC", volume, (2, 3, 3), layout="NDHWC")
    yield _case(
        "crop",
        volume,
        (2, 2, 3),
        layout="NCDHW",
        coordinate_transformation_mode=CROP,
        roi=(0.0, 0.25, -0.5, 1.0, 0.75, 1.0),
    )
    yield from _backward()


def _backward() -> Iterator[Case]:
    """The transpose of the resize as a linear map, of which each column is one resized element."""
    for layout, shape, size in (
        ("NCHW", (1, 2, 3, 4), (4, 2)),
        ("NHWC", (1, 3, 4, 2), (2, 5)),
        ("NCDHW", (1, 1, 2, 3, 2), (3, 2, 2)),
    ):
        out = list(shape)
        for letter, new in zip([v for v in "DHW" if v in layout], size, strict=True):
            out[layout.index(letter)] = new
        for method in ("nearest_neighbor", "linear", "cubic"):

            def expected(
                g: Array,
                x: Array,
                size: Sequence[int] = size,
                layout: str = layout,
                method: str = method,
            ) -> Array:
                total = np.zeros(x.shape)
                for index in np.ndindex(*x.shape):
                    unit = np.zeros(x.shape)
                    unit[index] = 1
                    total[index] = (g * resized(unit, size, layout, method=method)).sum()
                return total

            name = f"resize{len(size)}d_backward"
            yield Case(
                f"relax.grad.{name}",
                f"{layout} {method}",
                (floats(*out, seed=1), floats(*shape)),
                lambda g, x, n=name, y=layout, m=method: getattr(op.grad, n)(
                    g, x, layout=y, method=m
                ),
                expected,
                only=("values", "shape"),
            )
