"""Struct info of operators on images, what they refuse, and what is decided at run time."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.script import ir as I, relax as R
from tests.ir.relax.op.cases.images import resized
from tests.ir.relax.op.test_rules import (
    DEVICE,
    OPEN,
    UNKNOWN,
    Infos,
    M,
    Made,
    N,
    check,
    derive,
    located,
    refused,
)
from tests.ir.relax.sinfos import rank, shape, tensor

resize2d, resize3d = op.image.resize2d, op.image.resize3d
X = tensor(2, 3, N, 5)
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}

INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (resize2d, (X, shape(7, M)), tensor(2, 3, 7, M)),
    (resize2d, (X, rx.ShapeStructInfo(None, 2)), rank(4)),
    (resize2d, (X, rx.ShapeStructInfo(None, -1)), rank(4)),
    (resize2d, (rank(4), shape(7, 7)), rank(4)),
    (resize2d, (OPEN, shape(7, 7)), rank(4)),
    (resize2d, (UNKNOWN, shape(7, 7)), rank(4, "")),
    (resize2d, (located(X, DEVICE), shape(7, 7)), located(tensor(2, 3, 7, 7), DEVICE)),
    (lambda x: resize2d(x, 7), (X,), tensor(2, 3, 7, 7)),
    (lambda x: resize2d(x, (7, N), out_dtype="float16"), (X,), tensor(2, 3, 7, N, dtype="float16")),
    (lambda x: resize2d(x, (7, 8), layout="NHWC"), (X,), tensor(2, 7, 8, 5)),
    (lambda x: resize2d(x, 7, layout="NCHW4c"), (tensor(1, 2, 3, N, 4),), tensor(1, 2, 7, 7, 4)),
    (lambda x: resize2d(x, 7, 0.5, **CROP), (X,), tensor(2, 3, 7, 7)),
    (lambda x: resize2d(x, 7, [0, 0, 1, 1], **CROP), (X,), tensor(2, 3, 7, 7)),
    (resize3d, (tensor(1, 2, N, 4, 5), shape(6, 7, 8)), tensor(1, 2, 6, 7, 8)),
    (lambda x: resize3d(x, 6, layout="NDHWC"), (rank(5),), rank(5)),
    (op.grad.resize2d_backward, (tensor(2, 3, 7, 7), X), X),
    (op.grad.resize3d_backward, (OPEN, rank(5)), rank(5)),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


REFUSED: list[tuple[Made, Infos, str]] = [
    (
        resize2d,
        (tensor(2, 3, 4), shape(7, 7)),
        "data has rank 4 for layout 'NCHW', found R.Tensor(",
    ),
    (resize2d, (X, shape(7, 7, 7)), "size has 2 members, found R.Shape([7, 7, 7])"),
    (lambda x: resize2d(x, (7, -1)), (X,), "size is 0 at least, found R.Shape([7, -1])"),
    (
        lambda x: resize2d(x, 7, layout="NCDHW"),
        (X,),
        "layout has the axes of 'NCHW', found 'NCDHW'",
    ),
    (lambda x: resize2d(x, 7, layout="HWC"), (X,), "layout has the axes of 'NCHW', found 'HWC'"),
    (lambda x: resize2d(x, 7, layout="N?"), (X,), "layout has the axes of 'NCHW', found 'N?'"),
    (
        lambda x: resize2d(x, 7, layout="NCHW2w"),
        (tensor(1, 1, 2, 2, 2),),
        "layout has the axes of 'NCHW', found 'NCHW2w'",
    ),
    (lambda x: resize2d(x, 7, (0.0, 1.0)), (X,), "roi is one number or 4, found [0.0, 1.0]"),
    (lambda x: resize2d(x, 7, **CROP), (X,), "'tf_crop_and_resize' needs a region"),
    (resize3d, (X, shape(7, 7, 7)), "data has rank 5 for layout 'NCDHW'"),
    (op.grad.resize2d_backward, (tensor(2, 3), X), "data has rank 4 for layout 'NCHW'"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, sinfos: Infos, message: str) -> None:
    error = refused(make, sinfos, message)
    if "needs a region" in message:
        assert error.diagnostic.hint == "pass roi=[...] with 2 starts and 2 ends from 0 to 1"


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


@I.ir_module
class Open:
    @R.function
    def main(x: R.Tensor("float32"), size: R.Tensor((2,), "int64")):
        return R.image.resize2d(x, R.tensor_to_shape(size))


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


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (6, 8), (7, 3)])
def test_a_mean_of_integers_that_is_one_is_not_rounded_down(
    dtype: str, coordinates: str, rows: int, columns: int
) -> None:
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
