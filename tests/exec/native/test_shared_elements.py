"""Iterations that read the same elements, which native code computes together."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.test_contract import graph, numbers, run
from tests.ir.relax.op.cases.windows import pool

SIZES = [(2, 3), (3, 16), (7, 33), (13, 8), (18, 48)]
"""Widths about multiples of the iterations together, and lanes with and without rests."""
FUNCTIONS = {
    "": lambda y: y,
    "R.nn.relu": lambda y: y.clip(0),
    "R.sigmoid": lambda y: 1 / (1 + np.exp(-y)),
}


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "dtype"),
    [(3, 1, 1, "float32"), (3, 2, 1, "float16"), (5, 1, 1, "float32"), (3, 1, 2, "float64")],
)
def test_windows_whose_lanes_are_channels(
    kernel: int, stride: int, dilation: int, dtype: str
) -> None:
    for function, (width, c) in zip([*FUNCTIONS] * 2, SIZES, strict=False):
        x, w = numbers((1, 4, width, c), dtype), numbers((kernel, kernel, 1, c), dtype)
        before = kernel // 2 * dilation
        body = (
            f'R.nn.conv2d(x, w, {stride}, {before}, {dilation}, groups={c}, data_layout="NHWC", '
            'kernel_layout="HWIO")'
        )
        args = f'x: R.Tensor({x.shape}, "{dtype}"), w: R.Tensor({w.shape}, "{dtype}")'
        found = run(graph(args, f"{function}({body})"), x, w)
        padded = np.pad(x.astype("float64"), ((0, 0), (before, before), (before, before), (0, 0)))
        wanted = np.zeros(found.shape)
        for i, j in np.ndindex(kernel, kernel):
            moved = padded[:, i * dilation :: stride, j * dilation :: stride]
            wanted += moved[:, : wanted.shape[1], : wanted.shape[2]] * w[i, j, 0].astype("float64")
        unit = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-14}[dtype]
        np.testing.assert_allclose(found, FUNCTIONS[function](wanted), unit, 4 * unit)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_pools_whose_lanes_are_channels(dtype: str) -> None:
    for width, c in SIZES:
        x = numbers((2, 5, width, c), dtype)
        body = 'R.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1), layout="NHWC")'
        found = run(graph(f'x: R.Tensor({x.shape}, "{dtype}")', body), x)
        wanted = pool(x.transpose(0, 3, 1, 2), "max", 3, 1, 1).transpose(0, 2, 3, 1)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("rows", ["11", "m"])
def test_iterations_that_store_what_others_read_are_in_the_order_of_the_text(rows: str) -> None:
    terms = " + ".join(f"A[i + {k % 3}, j + {k // 3}] * W[{k % 3}, j]" for k in range(9))
    text = f"""
@T.prim_func
def main(a: T.handle, w: T.handle):
    m = T.int64()
    A = T.match_buffer(a, ({rows}, 42), "float32")
    W = T.match_buffer(w, (3, 42), "float32")
    for i, j in T.grid({rows} - 2, 40):
        A[i, j] = {terms}
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    a, w = numbers((11, 42)), numbers((3, 42))
    wanted = a.copy()
    for i, j in np.ndindex(9, 40):
        wanted[i, j] = sum(wanted[i + k % 3, j + k // 3] * w[k % 3, j] for k in range(9))
    main(a, w)
    np.testing.assert_allclose(a, wanted, 1e-4, 1e-4)
