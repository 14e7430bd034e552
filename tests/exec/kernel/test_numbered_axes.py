"""One axis of a store numbers the iterations of several axes of an accumulation."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source


def text(index: str, initial: str, outer: str = "T.serial(3)", size: int = 12) -> str:
    """Sums of rows of (n, 5) over the axes `i` and `j`, whose results have this index."""
    return f"""
@I.ir_module
class Module:
    @T.prim_func
    def sums(x: T.Buffer((30, 5), "float32"), y: T.Buffer((30,), "float32")):
        T.func_attr({{"global_symbol": "sums"}})
        for i in range({size}):
            y[i] = {initial}
        for i in {outer}:
            for j in range(4):
                for k in range(5):
                    y[{index}] = y[{index}] + x[{index}, k]
"""


CASES = {
    "i * 4 + j": (True, "T.serial(3)", 12),
    "j * 3 + i": (True, "T.serial(3)", 12),
    "i * 4 + j + 2": (False, "T.serial(3)", 12),
    "i * 4 + j ": (False, "T.serial(3)", 13),
    "i * 5 + j": (False, "T.serial(3)", 15),
    "i + j": (False, "T.serial(3)", 6),
    "j * 4 + i": (False, "T.serial(3)", 16),
    "i * 4 + j - 4": (True, "T.serial(1, 4)", 12),
}


@pytest.mark.parametrize("target", ["native", "numpy"])
@pytest.mark.parametrize("index", CASES)
@pytest.mark.parametrize("initial", ["T.float32(7)", "x[i, 0] * T.float32(2)"])
def test_stores_of_initial_values(index: str, initial: str, target: str) -> None:
    is_folded, outer, size = CASES[index]
    module = from_source(text(index, initial, outer, size))
    rng = np.random.default_rng(1)
    x = rng.integers(-3, 4, (30, 5)).astype("float32")
    found, wanted = (np.full(30, 99, "float32") for _ in range(2))
    executable = relaxpy.compile(module, target=target)
    executable["sums"](x, found)
    relaxpy.compile(module, target="reference")["sums"](x, wanted)
    np.testing.assert_array_equal(found, wanted)
    if target == "native" and "x" not in initial:
        tree = executable.kernel_source("sums", kind="tree")
        assert ("from T.float32(7.0)" in tree) == is_folded, tree
