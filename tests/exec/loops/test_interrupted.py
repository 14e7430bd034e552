"""Signals interrupt kernels of NumPy within a second, however many iterations a call has."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.machine import tuning
from relaxpy.exec.numpy import row_blocks, runtime
from relaxpy.script import from_source

LOOPS = {
    "sums of the same elements": (
        "for r in range(2000000):\n        for i, j in T.grid(512, 512):\n"
        "            C[i, j] = C[i, j] + A[i, j]"
    ),
    "sums of the same element": (
        "for r in range(T.int64(1000000000000)):\n        C[0, 0] = C[0, 0] + A[1, 1]"
    ),
    "a sum of all elements": (
        "for i, j, r in T.grid(512, 512, 2000000):\n        C[0, 0] = C[0, 0] + A[i, j]"
    ),
    "a product": (
        "for r in range(1000000):\n        for i, j, k in T.grid(512, 512, 512):\n"
        "            C[i, j] = C[i, j] + A[i, k] * A[k, j]"
    ),
    "maxima of a function": (
        "for i, j, r in T.grid(512, 512, 2000000):\n"
        "        C[i, j] = T.max(C[i, j], T.exp(A[i, j]))"
    ),
}
"""Loops that a call of NumPy would repeat for minutes."""


@pytest.fixture
def interrupted() -> Iterator[list[float]]:
    """SIGINT arrives after half a second; the time is noted."""
    times: list[float] = []

    def interrupt() -> None:
        times.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, interrupt)
    timer.start()
    yield times
    timer.cancel()
    if before is not None:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", LOOPS)
def test_a_signal_ends_loops_over_few_elements(
    kind: str, threads: int, interrupted: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_blocks, "threads", lambda: threads)
    shape = 'T.Buffer((512, 512), "float32")'
    text = f"@T.prim_func\ndef main(A: {shape}, C: {shape}):\n    {LOOPS[kind]}\n"
    executable = relaxpy.compile(from_source(text), "numpy")
    a, c = np.ones((512, 512), "float32"), np.zeros((512, 512), "float32")
    with pytest.raises(KeyboardInterrupt):
        executable["main"](a, c)
    # A second, and a few more on a machine that does something else.
    assert time.monotonic() - interrupted[0] < 6


def test_a_worker_ends_its_block_when_the_waiting_thread_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    here, begun, ended = threading.get_ident(), threading.Event(), threading.Event()

    def rows(lo: int, hi: int, empty: Any) -> None:
        if threading.get_ident() == here:
            assert begun.wait(10)
            raise KeyboardInterrupt
        begun.set()
        try:
            for _ in range(1000):
                row_blocks.end_if_interrupted()
                time.sleep(0.01)
        except InterruptedError:
            ended.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        row_blocks.blocks(rows, 0, 100, 10, 1 << 30, once=True)
    assert ended.is_set()
    row_blocks.end_if_interrupted()  # the next kernel of this thread runs


def test_blocks_have_a_bound_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, threads in itertools.product((1, 2), (1, 2)):
        monkeypatch.setattr(row_blocks, "threads", lambda threads=threads: threads)
        sizes: list[int] = []

        def rows(lo: int, hi: int, empty: Any, sizes: list[int] = sizes) -> None:
            sizes.append(hi - lo)

        row_blocks.blocks(rows, 0, 100, 8, tuning.Blocks.MOST_WORK // count)
        assert max(sizes) == count
        assert sum(sizes) == 100


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "logical_or"])
@pytest.mark.parametrize("dtype", ["int8", "int64", "float64"])
def test_parts_of_a_reduction_give_what_the_whole_gives(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning.NumPy, "MOST_REDUCED", 7)
    ufunc, random = getattr(np, name), np.random.default_rng(3)
    kind = np.dtype(bool if name.startswith("logical") else dtype)
    for shape in (5,), (3, 4, 5), (1, 9, 2), (40, 1):
        values = random.integers(-3, 4, shape).astype(dtype)
        axes = range(-len(shape), 0)
        several = [c for n in range(1, len(shape) + 1) for c in itertools.combinations(axes, n)]
        for axis in (None, *axes, *several):
            for where in (True, random.integers(0, 2, shape).astype(bool)):
                initial = {"initial": 2} if where is not True or name == "add" else {}
                how: dict[str, Any] = {"axis": axis, "where": where, **initial}
                expected = ufunc.reduce(values, dtype=kind, **how)
                found = runtime.repeated(ufunc, values, dtype=kind, **how)
                np.testing.assert_array_equal(found, expected)
                out = np.zeros(np.shape(expected), kind)
                runtime.repeated(ufunc, values, out=out, **how)
                np.testing.assert_array_equal(out, expected)
