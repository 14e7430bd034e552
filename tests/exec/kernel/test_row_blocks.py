"""Blocks of rows cover all rows, whichever threads run them."""

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.kernel import runtime


def test_blocks_cover_all_rows_once_and_pass_errors_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "TARGET", 40)
    for threads in (0, 1 << 30):
        monkeypatch.setattr(runtime, "WORTH_THREADS", threads)
        for count in (0, 1, 2, 3, 17, 100):
            seen = np.zeros(count + 2, int)

            def rows(lo: int, hi: int, seen: np.ndarray = seen) -> None:
                seen[lo:hi] += 1

            runtime.blocks(rows, 1, count + 1, 10)
            assert seen.tolist() == [0, *[1] * count, 0]

        def failing(lo: int, hi: int) -> None:
            raise RuntimeCheckError("stop")

        with pytest.raises(RuntimeCheckError, match="stop"):
            runtime.blocks(failing, 0, 100, 10)
