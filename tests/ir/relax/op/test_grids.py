"""Operators on grids of positions: attributes, and symbolic sizes."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.ir.relax import op
from tests.ir.relax.op.test_rules import M, N, derive
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import module

grid_sample = op.image.grid_sample
X, GRID = tensor(N, 3, 5, 6), tensor(N, 2, M, 7)


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
    with pytest.raises(MisuseError, match=r"maps of rank 3 and 2 or 3 sizes, found \(1, 2, 3, 3\)"):
        image.affine_grid(places, [2, 3])
    with pytest.raises(MisuseError, match=r"and 2 or 3 sizes, found \(1, 2, 3\) and \[2\]"):
        image.affine_grid(maps, [2])
    for layout in ("NCHW", "NCW"):
        with pytest.raises(MisuseError, match=rf"data \(1, 2, 2\) has .* H, W, found '{layout}'"):
            image.resize2d(x, [0.0] * 4, [3, 3], layout=layout)
    with pytest.raises(MisuseError, match=r"expected 2 sizes and a region of 4 numbers, found"):
        image.resize2d(places, [0.0] * 4, [3])


Turned = module("""
def main(x: f32[n, 1, h, w], maps: f32[n, 2, 3]):
    places = R.image.affine_grid(maps, (h, w))
    return R.image.grid_sample(x, places, align_corners=True)
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_an_image_turned_by_a_right_angle(target: str) -> None:
    x = np.arange(9, dtype="float32").reshape(1, 1, 3, 3)
    maps = np.array([[[0, 1, 0], [-1, 0, 0]]], "float32")
    found = relaxpy.compile(Turned, target)["main"](x, maps)
    np.testing.assert_allclose(found[0, 0], np.rot90(x[0, 0], -1), atol=1e-6)
