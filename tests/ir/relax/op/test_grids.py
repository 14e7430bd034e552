"""Struct info of operators on grids of positions, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.script import ir as I, relax as R, tir as T
from tests.ir.relax.op.test_rules import OPEN, UNKNOWN, Infos, M, Made, N, check, derive, refused
from tests.ir.relax.sinfos import rank, shape, tensor, tuple_of

grid_sample, affine_grid = op.image.grid_sample, op.image.affine_grid
HALF = "float16"
X, GRID = tensor(N, 3, 5, 6), tensor(N, 2, M, 7)
VOLUME, PLACES = tensor(1, 3, 4, 5, 6), tensor(1, 3, 2, 2, M)


def in_volume(*operands: rx.Expr, method: str = "bilinear") -> rx.Call:
    call: rx.Call = grid_sample(*operands, layout="NCDHW", method=method)
    return call


INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (grid_sample, (X, GRID), tensor(N, 3, M, 7)),
    (
        grid_sample,
        (tensor(2, 3, 5, 6, dtype=HALF), tensor(2, 2, 1, 1)),
        tensor(2, 3, 1, 1, dtype=HALF),
    ),
    (grid_sample, (X, tensor(M, 2, 3, 3)), tensor(N, 3, 3, 3)),
    (grid_sample, (X, rank(4)), rank(4)),
    (grid_sample, (X, tensor(N, M, 2, 2)), tensor(N, 3, 2, 2)),
    (grid_sample, (OPEN, GRID), rank(4)),
    (grid_sample, (UNKNOWN, UNKNOWN), rank(4, "")),
    (in_volume, (VOLUME, PLACES), tensor(1, 3, 2, 2, M)),
    (op.grad.grid_sample_backward, (OPEN, X, GRID), tuple_of(X, GRID)),
    (affine_grid, (tensor(N, 2, 3), shape(4, M)), tensor(N, 2, 4, M)),
    (affine_grid, (tensor(1, N, 3), shape(4, 5)), tensor(1, 2, 4, 5)),
    (affine_grid, (OPEN, shape(4, 5)), rank(4)),
    (affine_grid, (tensor(1, 2, 3), rx.ShapeStructInfo(None, -1)), rank(4)),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


REFUSED: list[tuple[Made, Infos, str]] = [
    (grid_sample, (VOLUME, GRID), "data has rank 4 for layout 'NCHW', found R.Tensor((1, 3,"),
    (grid_sample, (X, tensor(N, 2, 7)), "grid has rank 4 for layout 'NCHW', found R.Tensor((n, 2,"),
    (grid_sample, (tensor(1, 2, 3, 4, dtype="int8"), GRID), "data holds floats, found R.Tensor("),
    (grid_sample, (X, tensor(N, 2, 3, 4, dtype="int8")), "grid holds floats, found R.Tensor("),
    (
        grid_sample,
        (X, tensor(N, 5, 6, 2)),
        "dimension 1 of grid (n, 5, 6, 2) is 2, a coordinate for each axis; found 5",
    ),
    (
        grid_sample,
        (tensor(2, 3, 5, 6), tensor(1, 2, 5, 6)),
        "data (2, 3, 5, 6) and grid (1, 2, 5, 6) have one batch, found 2 and 1",
    ),
    (
        lambda *v: in_volume(*v, method="bicubic"),
        (VOLUME, PLACES),
        "'bicubic' is a method for layout 'NCHW'",
    ),
    (op.grad.grid_sample_backward, (tensor(2), X, GRID), "output_grad has rank 4"),
    (
        op.grad.grid_sample_backward,
        (tensor(N, 3, M, 6), X, GRID),
        "output_grad has the shape of the result, (n, 3, m, 7), found (n, 3, m, 6)",
    ),
    (affine_grid, (tensor(2, 3), shape(4, 5)), "data has rank 3, found R.Tensor((2, 3)"),
    (
        affine_grid,
        (tensor(1, 3, 3), shape(4, 5)),
        "dimension 1 of data (1, 3, 3) is 2, a row for each of x and y; found 3",
    ),
    (
        affine_grid,
        (tensor(1, 2, 4), shape(4, 5)),
        "dimension 2 of data (1, 2, 4) is 3, the coefficients of x, y and 1; found 4",
    ),
    (affine_grid, (tensor(1, 2, 3), shape(4, 5, 6)), "size has 2 members, found R.Shape([4,"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, sinfos: Infos, message: str) -> None:
    refused(make, sinfos, message)


@pytest.mark.parametrize("name", ["method", "padding_mode", "layout"])
def test_an_attribute_has_one_of_its_values(name: str) -> None:
    with pytest.raises(MisuseError, match=rf"{name} is '.*' or .*, found 'cubic'"):
        derive(lambda x, g: grid_sample(x, g, **{name: "cubic"}), (X, GRID))
    x, places = (relaxpy.te.placeholder(dims, "float32") for dims in ((1, 1, 2, 2), (1, 2, 3, 3)))
    with pytest.raises(MisuseError, match=rf"{name} is one of .*, found 'cubic'"):
        relaxpy.topi.image.grid_sample(x, places, **{name: "cubic"})


def test_functions_of_tensors_refuse_other_ranks() -> None:
    image = relaxpy.topi.image
    x, places, maps = (
        relaxpy.te.placeholder(dims, "float32") for dims in ((1, 2, 2), (1, 2, 3, 3), (1, 2, 3))
    )
    with pytest.raises(MisuseError, match=r"the axes of 'NCHW', found \(1, 2, 2\) and \(1, 2, 3"):
        image.grid_sample(x, places)
    with pytest.raises(MisuseError, match=r"maps of rank 3 and 2 sizes, found \(1, 2, 3, 3\)"):
        image.affine_grid(places, [2, 3])
    with pytest.raises(MisuseError, match=r"and 2 sizes, found \(1, 2, 3\) and \[2\]"):
        image.affine_grid(maps, [2])
    for layout in ("NCHW", "NCW"):
        with pytest.raises(MisuseError, match=rf"data \(1, 2, 2\) has .* H, W, found '{layout}'"):
            image.resize2d(x, [0.0] * 4, [3, 3], layout=layout)
    with pytest.raises(MisuseError, match=r"expected 2 sizes and a region of 4 numbers, found"):
        image.resize2d(places, [0.0] * 4, [3])


@I.ir_module
class Turned:
    @R.function
    def main(x: R.Tensor(("n", 1, "h", "w"), "float32"), maps: R.Tensor(("n", 2, 3), "float32")):
        h, w = T.int64(), T.int64()
        places = R.image.affine_grid(maps, (h, w))
        return R.image.grid_sample(x, places, align_corners=True)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_an_image_turned_by_a_right_angle(target: str) -> None:
    x = np.arange(9, dtype="float32").reshape(1, 1, 3, 3)
    maps = np.array([[[0, 1, 0], [-1, 0, 0]]], "float32")
    found = relaxpy.compile(Turned, target)["main"](x, maps)
    np.testing.assert_allclose(found[0, 0], np.rot90(x[0, 0], -1), atol=1e-6)
