"""Operators that extend images or rearrange their pixels: modes, and symbolic sizes."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir.relax import nodes as rx, op
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import module


def test_modes_of_other_libraries_are_refused() -> None:
    with pytest.raises(
        MisuseError, match=r"pad_mode is 'constant' or 'reflect' or .*, found 'edge'"
    ):
        op.nn.pad(rx.Var("x", tensor(2)), (1, 1), "edge")


Symbolic = module("""
def reflect(x: f32[n, m]):
    return R.nn.pad(x, [1, 2, 3, 0], pad_mode="reflect")

def shuffle(x: f32[n, 4, h, w]):
    return R.nn.pixel_shuffle(x, 2)

def channels(x: f32[c, 2, 3]):
    return R.nn.pixel_shuffle(x, 2)
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_sizes_of_the_program(target: str) -> None:
    executable = relaxpy.compile(Symbolic, target)
    x = np.arange(20, dtype="float32").reshape(4, 5)
    expected = np.pad(x, ((1, 2), (3, 0)), mode="reflect")
    np.testing.assert_array_equal(executable["reflect"](x), expected)
    for name, shape in (("shuffle", (2, 4, 3, 5)), ("channels", (8, 2, 3))):
        image = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        *lead, c, h, w = shape
        k = len(lead)
        order = (*range(k), k, k + 3, k + 1, k + 4, k + 2)
        blocks = image.reshape(*lead, c // 4, 2, 2, h, w).transpose(order)
        expected = blocks.reshape(*lead, c // 4, 2 * h, 2 * w)
        np.testing.assert_array_equal(executable[name](image), expected)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_sizes_that_do_not_fit_are_refused_when_they_arrive(target: str) -> None:
    executable = relaxpy.compile(Symbolic, target)
    with pytest.raises(RelaxpyError):
        executable["reflect"](np.zeros((4, 3), "float32"))
    with pytest.raises(RelaxpyError, match="multiple of upscale_factor"):
        executable["channels"](np.zeros((6, 2, 3), "float32"))
