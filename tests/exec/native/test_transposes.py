"""Elementwise kernels that read along one axis and write along another transpose in registers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.test_contract import graph, numbers, run

DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "uint16", "int64", "bool"]
SHAPES = [
    ((16, 16), (1, 0)),
    ((15, 40), (1, 0)),
    ((70, 33), (1, 0)),
    ((300, 257), (1, 0)),
    ((3, 37, 20), (0, 2, 1)),
    ((5, 9, 17, 21), (3, 1, 0, 2)),
    ((6, 7, 9, 10), (3, 0, 2, 1)),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_transpositions(dtype: str | type) -> None:
    name = np.dtype(dtype).name
    for shape, axes in SHAPES:
        x = numbers(shape, dtype)
        text = graph(f'x: R.Tensor({shape}, "{name}")', f"R.permute_dims(x, {list(axes)})")
        np.testing.assert_array_equal(run(text, x), x.transpose(axes))


def test_values_of_several_loads() -> None:
    values = numbers((100, 70)), numbers((70, 100)) * 3, numbers((100, 70)) - 1
    x, y, z = values
    params = ", ".join(
        f'{n}: R.Tensor({v.shape}, "float32")' for n, v in zip("xyz", values, strict=True)
    )
    for text, expected in (
        ("R.add(R.permute_dims(x, [1, 0]), y)", x.T + y),
        ("R.permute_dims(R.subtract(x, R.abs(z)), [1, 0])", (x - np.abs(z)).T),
        (
            "R.add(R.multiply(R.permute_dims(x, [1, 0]), y), R.permute_dims(z, [1, 0]))",
            x.T * y + z.T,
        ),
        ("R.triu(R.permute_dims(x, [1, 0]))", np.triu(x.T)),
    ):
        np.testing.assert_array_equal(run(graph(params, text), *values), expected)


def test_what_is_read_and_written() -> None:
    text = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    A = T.match_buffer(a, (40, 40), "float32")
    C = T.match_buffer(c, (40, 40), "float32")
    for i, j in T.grid(40, 40):
        C[i, j] = C[i, j] + A[j, i]
    for i, j in T.grid(40, 40):
        if i < j:
            C[i, j] = C[j, i]
    for i, j in T.grid(37, 21):
        if (i + j) % 3 == 0:
            C[i, j] = A[j + 1, i + 2] * T.float32(2)
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    a, c = numbers((40, 40)), numbers((40, 40)) + 5
    expected = c + a.T
    for i in range(40):
        for j in range(i + 1, 40):
            expected[i, j] = expected[j, i]
    for i in range(37):
        for j in range(21):
            if (i + j) % 3 == 0:
                expected[i, j] = a[j + 1, i + 2] * 2
    main(a, c)
    np.testing.assert_array_equal(c, expected)
