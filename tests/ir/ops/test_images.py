"""Operators on images: attributes, and what is decided at run time."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.ir import ops as op
from relaxpy.script import relax as R
from tests.ir.ops.cases.images import resized
from tests.ir.ops.test_rules import Made, N, derive
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import module

resize2d = op.image.resize2d
X = tensor(2, 3, N, 5)


@pytest.mark.parametrize("name", ["method", "coordinate_transformation_mode", "rounding_method"])
def test_an_attribute_has_one_of_its_values(name: str) -> None:
    with pytest.raises(MisuseError, match=f"{name} is '.*' or .*, found 'bilinear'"):
        derive(lambda x: resize2d(x, 7, **{name: "bilinear"}), (X,))
    given = topi_call(name)
    with pytest.raises(MisuseError, match=f"{name} is one of .*, found 'bilinear'"):
        given()


def topi_call(name: str) -> Made:
    x = relaxpy.te.placeholder((1, 1, 2, 2), "float32")
    image = relaxpy.topi.image
    return lambda: image.resize2d(x, [0.0] * 4, [3, 3], **{name: "bilinear"})


Open = module("""
def main(x: R.Tensor("float32"), size: i64[2]):
    return R.image.resize2d(x, R.tensor_to_shape(size))
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_a_size_that_arrives_at_run_time(target: str) -> None:
    x = np.arange(12, dtype="float32").reshape(1, 1, 3, 4)
    found = relaxpy.compile(Open, target)["main"](x, np.array([2, 5]))
    np.testing.assert_allclose(found, resized(x, (2, 5), "NCHW"), rtol=1e-6)


def test_results_of_integers_stay_inside_their_range() -> None:
    @R.function
    def main(x: R.Tensor((1, 1, 1, 4), "uint8")) -> R.Tensor((1, 1, 1, 16), "uint8"):
        return R.image.resize2d(x, (1, 16), method="cubic")

    step = np.array([0, 0, 255, 255], "uint8").reshape(1, 1, 1, 4)
    exact = resized(step, (1, 16), "NCHW", method="cubic")
    assert exact.min() < 0
    assert exact.max() > 255
    np.testing.assert_array_equal(main(step), np.trunc(np.clip(exact, 0, 255)))


def test_equal_sizes_keep_infinities_where_they_are() -> None:
    @R.function
    def main(x: R.Tensor((1, 1, 2, 2), "float32")):
        return R.image.resize2d(x, (2, 2))

    x = np.array([1, np.inf, np.nan, 2], "float32").reshape(1, 1, 2, 2)
    np.testing.assert_array_equal(main(x), x)


def exactly(image: np.ndarray, rows: int, columns: int, coordinates: str) -> list[list[int]]:
    """A linear resize in rational numbers, rounded toward zero."""

    def position(k: int, old: int, new: int) -> Fraction:
        if coordinates == "half_pixel":
            return Fraction((2 * k + 1) * old - new, 2 * new)
        return (
            Fraction(k * old, new)
            if coordinates == "asymmetric"
            else Fraction(k * (old - 1), new - 1)
        )

    def pixel(y: int, x: int) -> int:
        y, x = (min(max(at, 0), size - 1) for at, size in zip((y, x), image.shape, strict=True))
        return int(image[y, x])

    def value(k: int, j: int) -> int:
        y, x = position(k, image.shape[0], rows), position(j, image.shape[1], columns)
        top, left = floor(y), floor(x)
        weights = {(0, 0): (1 - y % 1) * (1 - x % 1), (0, 1): (1 - y % 1) * (x % 1)}
        weights |= {(1, 0): (y % 1) * (1 - x % 1), (1, 1): (y % 1) * (x % 1)}
        return int(sum(w * pixel(top + a, left + b) for (a, b), w in weights.items()))

    return [[value(k, j) for j in range(columns)] for k in range(rows)]


@pytest.mark.each_choice
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (6, 8), (7, 3)])
def test_a_mean_of_integers_that_is_one_is_not_rounded_down(dtype, coordinates, rows, columns):
    # Many means of multiples of 35 by fifths and sevenths are integers.
    image = (np.arange(12).reshape(3, 4) * 11 % 7 * 35 - 105 * (dtype != "uint8")).astype(dtype)

    @R.function
    def main(x: R.Tensor((1, 1, 3, 4), dtype)):
        y = R.image.resize2d(
            x, (rows, columns), method="linear", coordinate_transformation_mode=coordinates
        )
        return y

    [[found]] = relaxpy.compile(main)["main"](image[None, None])
    assert found.tolist() == exactly(image, rows, columns, coordinates)
