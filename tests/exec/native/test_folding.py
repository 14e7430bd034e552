"""Convolutions whose vectors of columns, or tiles of rows, go on in the next row of the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.native.contraction.geometry import with_folded_rows
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.trees.product import Dimension, Product, with_column
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.tir.expr import Var
from relaxpy.script import from_source
from tests.exec.native.test_contract import convolution, graph, numbers, run
from tests.guard_pages import guarded


def integers(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Small integers, whose sums are exact in any order, before a page that must not be read."""
    values = np.random.default_rng(shape).integers(-3, 4, shape)
    return guarded(values.astype(dtype), at_end=True)


def text(x: np.ndarray, weight: np.ndarray, options: str, result: str = "y") -> str:
    """A module that convolves its first two arguments; the third one is of the form of `result`."""
    dtype = x.dtype.name
    return f"""
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor({x.shape}, "{dtype}"),
        w: R.Tensor({weight.shape}, "{dtype}"),
        b: R.Tensor((1, {weight.shape[0]}, 1, 1), "{dtype}"),
    ):
        y = R.nn.conv2d(x, w, {options})
        return {result}
"""


def test_the_order_of_sums_does_not_depend_on_the_width() -> None:
    """Rows of 64 floats fill vectors of any size, so they are not folded."""
    weight, bias, results = numbers((12, 40, 3, 3)), numbers((1, 12, 1, 1)), []
    whole = numbers((1, 40, 8, 66))
    for width in (64, 53, 20):
        x = guarded(np.ascontiguousarray(whole[..., : width + 2]), at_end=True)
        results.append(run(text(x, weight, "padding=0", "y + b"), x, weight, bias))
    for narrow in results[1:]:
        wide = np.ascontiguousarray(results[0][..., : narrow.shape[-1]])
        assert narrow.tobytes() == wide.tobytes()


def test_rows_are_joined_where_masks_have_registers() -> None:
    if not host().module().has_avx512:
        pytest.skip("the processor has no AVX-512")
    program = graph(
        'x: R.Tensor((1, 3, 9, 22), "float32"), w: R.Tensor((8, 3, 3, 3), "float32")',
        "R.nn.conv2d(x, w)",
    )
    executable = relaxpy.compile(from_source(program), target="native")
    assert "llvm.masked.load.v16f32" in executable.kernel_source("conv2d", kind="llvm")


@pytest.mark.parametrize(
    ("batch", "height", "width", "stride", "padding", "dilation"),
    [
        (1, 7, 7, 1, 1, 1),
        (3, 5, 9, 2, 1, 1),
        (2, 2, 2, 1, 1, 1),
        (1, 31, 14, 1, 2, 2),
        (2, 9, 1, 1, 1, 1),
    ],
)
def test_rows_of_images_with_channels_last(batch, height, width, stride, padding, dilation) -> None:
    x, weight = integers(batch, height, width, 70), integers(3, 3, 70, 100)
    options = f"{stride}, {padding}, {dilation}, data_layout='NHWC', kernel_layout='HWIO'"
    body = f"R.nn.relu(R.nn.conv2d(x, w, {options}))"
    names = ", ".join(f'{n}: R.Tensor({a.shape}, "float32")' for n, a in (("x", x), ("w", weight)))
    module = from_source(graph(names, body))
    bound = module.clone()
    bound["main"] = module["main"].bind_params({"w": weight})
    any_batch = from_source(graph(names.replace(f"({batch},", '("n",', 1), body))
    any_batch["main"] = any_batch["main"].bind_params({"w": weight})
    wanted = convolution(
        x.transpose(0, 3, 1, 2),
        weight.transpose(3, 2, 0, 1),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=1,
    ).transpose(0, 2, 3, 1)
    for found in (
        relaxpy.compile(module, target="native")["main"](x, weight),
        relaxpy.compile(bound, target="native")["main"](x),
        relaxpy.compile(any_batch, target="native")["main"](x),
    ):
        np.testing.assert_array_equal(found, np.maximum(wanted, 0))


@pytest.mark.parametrize(
    ("batch", "height", "width", "row", "folded"),
    [
        ("n", 508, 1, 508, 508),
        ("n", 28, 28, 28, 784),
        ("n", 1, 3, "n", "n"),  # three rows fill no tile
        ("n", "h", "w", "w", "w"),
        (8, 7, 7, 8, 49),  # rows of an image rather than of eight images
        (8, 1, 3, 8, 24),
    ],
)
def test_rows_of_tiles_are_those_of_an_image_if_the_batch_is_unknown(
    batch: int | str, height: int | str, width: int | str, row: int | str, folded: int | str
) -> None:
    """A batch of unknown size is most likely one."""
    sizes = {
        n: as_poly(Var(n, "int64") if isinstance(n, str) else n) for n in (batch, height, width)
    }
    n, h, w = (sizes[size] for size in (batch, height, width))
    # Images with a border of one, and 16 channels; the filters are the other factor.
    inner = as_poly(16)
    spatial = [
        Dimension(n, (h * w * inner, (h + 2) * (w + 2) * inner, as_poly(0))),
        Dimension(h, (w * inner, (w + 2) * inner, as_poly(0))),
        Dimension(w, (inner, inner, as_poly(0))),
    ]
    column = Dimension(inner, (as_poly(1), as_poly(0), as_poly(1)))
    others: Any = (None, (), (), (None,) * 3, (as_poly(0),) * 3)
    every = tuple(d for d in spatial if not d.extent.same(as_poly(1)))
    product = with_column(Product(*others, (*every, column), None, column, ()), column)
    assert product.row is not None
    assert product.row.extent.same(sizes[row] if isinstance(row, str) else as_poly(row))
    joined = with_folded_rows(product)[0].row
    assert joined is not None
    assert joined.extent.same(sizes[folded] if isinstance(folded, str) else as_poly(folded))
