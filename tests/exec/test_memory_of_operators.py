"""Scratch memory of operators: twice the size of arguments and results, and that of blocks."""

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import relaxpy
from benchmarks import operators
from benchmarks.operators import Row, compiled
from relaxpy.exec.machine import tuning
from relaxpy.exec.numpy import row_blocks
from relaxpy.script import from_source

BLOCKS = 2 * tuning.Blocks.TARGET
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
    function, _ = compiled(row)
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


@pytest.mark.parametrize("shape", [(3000, 1000), (2, 1500000), (3000000,)])
@pytest.mark.parametrize("declared", ["static", "symbolic"])
@pytest.mark.parametrize(
    "value",
    [
        "R.sum(R.astype(x, 'float64'))",
        "R.max(R.abs(R.astype(x, 'float32')))",
        "R.mean(x, keepdims=True)",
        "R.prod(R.astype(x, 'float64'), axis=[0])",
        "R.sum(R.astype(x, 'float64'), axis=[-1])",
        "R.min(R.abs(R.astype(x, 'float32')), axis=[-1], keepdims=True)",
    ],
)
def test_reductions_run_in_blocks(value, declared, shape, monkeypatch) -> None:
    """What is reduced is never as a whole in memory, however much wider than the argument it is."""
    monkeypatch.setattr(tuning.Blocks, "TARGET", 1 << 18)
    if declared == "symbolic" and shape[0] == 2:
        pytest.skip("one row of an unknown shape is a block at least")
    names = tuple("nm"[: len(shape)]) if declared == "symbolic" else shape
    text = f"@R.function\ndef main(x: R.Tensor({names}, 'int8')):\n    y = {value}\n    return y"
    main = relaxpy.compile(relaxpy.IRModule({"main": from_source(text)}), "numpy")["main"]
    x = np.ones(shape, np.int8)
    expected = bytes_of(main(x))
    tracemalloc.start()
    try:
        main(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A thread takes at most four times as much, for fewer blocks.
    blocks = 4 * tuning.Blocks.TARGET * (row_blocks.threads() + 1)
    assert peak <= 2 * (x.nbytes + expected) + blocks, (peak, x.nbytes)
