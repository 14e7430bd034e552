"""Positions of extremes along the rows of tensors with few columns."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source

MODULE = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(({rows}, {columns}), "{dtype}")):
        with R.dataflow():
            z = R.{name}(x, axis=0)
            R.output(z)
        return z
"""


@pytest.mark.each_choice
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 17])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_positions_of_extremes_of_few_columns(name: str, columns: int, dtype: str) -> None:
    rows = 1000
    text = MODULE.format(rows=rows, columns=columns, dtype=dtype, name=name)
    main = relaxpy.compile(from_source(text), target="native")["main"]
    rng = np.random.default_rng(columns)
    x = rng.integers(-100, 100, (rows, columns)).astype(dtype)  # with ties
    np.testing.assert_array_equal(main(x), getattr(np, name)(x, axis=0))
    if dtype == "float32":
        x[rng.integers(0, rows, 3), rng.integers(0, columns, 3)] = np.nan
        x[::7] = -0.0
        np.testing.assert_array_equal(main(x), getattr(np, name)(x, axis=0))
    constant = np.zeros((rows, columns), dtype)
    np.testing.assert_array_equal(main(constant), np.zeros(columns))
