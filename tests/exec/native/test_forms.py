"""Kernels of all forms are planned and emitted, and are right where they run."""

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source


@pytest.mark.parametrize("rows", [5, 6, 7, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_few_rows_by_a_transposed_matrix_of_symbolic_sizes(rows: int, dtype: str) -> None:
    main = relaxpy.compile(
        from_source(f"""
@R.function
def main(x: R.Tensor(({rows}, "n"), "{dtype}"), w: R.Tensor(("k", "n"), "{dtype}")):
    return R.linear(x, w)
""")
    )["main"]
    x, w = (np.arange(n * 9).reshape(n, 9).astype(dtype) for n in (rows, 21))
    np.testing.assert_array_equal(main(x, w), x @ w.T)
