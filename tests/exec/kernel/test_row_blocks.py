"""Blocks of rows cover all rows, whichever threads run them."""

from collections.abc import Callable

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.kernel import row_blocks


def test_blocks_cover_all_rows_once_and_pass_errors_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "TARGET", 40)
    for threads in (0, 1 << 30):
        monkeypatch.setattr(row_blocks, "WORTH_THREADS", threads)
        for count in (0, 1, 2, 3, 17, 100):
            seen = np.zeros(count + 2, int)

            def rows(
                lo: int, hi: int, empty: Callable[..., np.ndarray], seen: np.ndarray = seen
            ) -> None:
                ones = empty((hi - lo, 2), np.dtype("int64"))
                ones[...] = 1
                seen[lo:hi] += ones[:, 1]

            row_blocks.blocks(rows, 1, count + 1, 10)
            assert seen.tolist() == [0, *[1] * count, 0]

        def failing(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
            raise RuntimeCheckError("stop")

        with pytest.raises(RuntimeCheckError, match="stop"):
            row_blocks.blocks(failing, 0, 100, 10)


def test_memory_of_a_block_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of one block do not overlap, nor do those of calls within a block."""
    monkeypatch.setattr(row_blocks, "WORTH_SCRATCH", 0)
    monkeypatch.setattr(row_blocks, "TARGET", 1 << 12)
    monkeypatch.setattr(row_blocks, "_scratch", [])
    found: list[np.ndarray] = []

    def inner(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        found.append(empty((hi - lo, 16), np.dtype("float32")))

    def outer(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        found[:] = [empty((3,), np.dtype("int8")), empty((hi - lo, 8), np.dtype("float64"))]
        row_blocks.blocks(inner, 0, 8, 64)
        found.append(empty((1 << 13,), np.dtype("int8")))  # more than a block should need
        for number, array in enumerate(found):
            assert array.flags.aligned
            array[...] = number
        assert [np.unique(array).tolist() for array in found] == [[n] for n in range(len(found))]

    row_blocks.blocks(outer, 0, 100, 64)
    assert [array.shape for array in found] == [(3,), (36, 8), (8, 16), (1 << 13,)]
    assert len(row_blocks._scratch) <= row_blocks.CORES
