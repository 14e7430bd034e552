"""Images and volumes at other sizes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from relaxpy.tvm.topi_testing import samples
from relaxpy.tvm.topi_testing.samples import CROP
from tests.ir.ops.cases.case import Array, Case, floats, integers


def resized(
    x: Array,
    size: Sequence[int],
    layout: str,
    roi: Sequence[float] | None = None,
    out_dtype: str = "",
    **given: Any,
) -> Array:
    """ONNX, Resize, one element after the other."""
    out = samples.resized(x, size, layout, roi, **given)
    if x.dtype.kind in "iu" and not out_dtype:
        # Sums of integers that are integers but for their roundings are these integers.
        out += np.copysign(2.0**-10 if x.dtype.itemsize == 1 else 2.0**-20, out)
    return out


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
ROUNDINGS = ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


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
    for rounding in ROUNDINGS:
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
    for mode in MODES:
        given = {"method": "linear", "coordinate_transformation_mode": mode}
        yield _case(mode, volume, (3, 1, 5), layout="NCDHW", **given)
    for rounding in ROUNDINGS:
        given = {"rounding_method": rounding, "coordinate_transformation_mode": "asymmetric"}
        yield _case(rounding, volume, (1, 6, 3), "NCDHW", method="nearest_neighbor", **given)
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
        crop = {
            "coordinate_transformation_mode": CROP,
            "roi": (0.25, -0.5, 0.0)[: len(size)] + (0.75, 1.25, 1.0)[: len(size)],
        }
        settings: dict[str, dict[str, Any]] = {
            **{method: {"method": method} for method in ("nearest_neighbor", "linear", "cubic")},
            **{mode: {"coordinate_transformation_mode": mode} for mode in MODES},
            "crop": crop,
        }
        for rounding in ROUNDINGS:
            settings[rounding] = {"method": "nearest_neighbor", "rounding_method": rounding}
        for label, attrs in settings.items():

            def expected(
                g: Array,
                x: Array,
                size: Sequence[int] = size,
                layout: str = layout,
                attrs: dict[str, Any] = attrs,
            ) -> Array:
                total = np.zeros(x.shape)
                for index in np.ndindex(*x.shape):
                    unit = np.zeros(x.shape)
                    unit[index] = 1
                    total[index] = (g * resized(unit, size, layout, **attrs)).sum()
                return total

            name = f"resize{len(size)}d_backward"
            yield Case(
                f"relax.grad.{name}",
                f"{layout} {label}",
                (floats(*out, seed=1), floats(*shape)),
                lambda g, x, n=name, y=layout, a=attrs: getattr(op.grad, n)(g, x, layout=y, **a),
                expected,
                only=("values", "shape"),
            )
