"""Calls of operators allocate at most twice the size of arguments and results besides results."""

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from benchmarks import operators
from benchmarks.operators import Row, compiled

BLOCKS = 1 << 18
"""Bytes for blocks of rows, indices of an axis, and NumPy's own buffers."""


@pytest.mark.parametrize(
    "family",
    [
        operators.elementwise,
        operators.reductions,
        operators.networks,
        operators.windows,
        operators.movements,
        operators.positions,
    ],
)
def test_scratch_memory_is_bounded(family: Callable[[], Iterator[Row]]) -> None:
    excess = {row.name: scratch_bytes(row) - 2 * visible_bytes(row) - BLOCKS for row in family()}
    assert max(excess.values()) <= 0, excess


def bytes_of(values: object) -> int:
    return sum(np.asarray(x).nbytes for x in (values if isinstance(values, tuple) else (values,)))


def visible_bytes(row: Row) -> int:
    return bytes_of(row.inputs) + bytes_of(row.numpy(*row.inputs))


def scratch_bytes(row: Row) -> int:
    """The bytes that a second call allocates at most, without those of its results."""
    _, function, _ = compiled(row)
    function(*row.inputs)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        result = function(*row.inputs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before - bytes_of(result)
