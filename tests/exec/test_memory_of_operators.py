"""Scratch memory of operators: twice the size of arguments and results, and that of blocks."""

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from benchmarks import operators
from benchmarks.operators import Row, compiled
from relaxpy.exec.kernel import row_blocks

BLOCKS = 2 * row_blocks.TARGET
"""Bytes of a block of rows and its intermediate results, whatever the size of the arguments."""


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
