"""Stages that share memory, rows and cores give what they give one after the other."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.kernel import runtime
from tests.exec.kernel.stages import Stages
from tests.exec.kernel.support import check


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(1, 7))
def test_any_stages_agree_with_the_reference_in_blocks_of_any_size(seed: int, rows: int) -> None:
    func = Stages(Random(seed)).kernel()
    x = np.random.default_rng(seed).integers(-2, 3, (rows, 6)).astype(np.float32) / 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "TARGET", 1 << (seed % 10))
        patch.setattr(runtime, "WORTH_THREADS", 0 if seed % 3 else 1 << 30)
        check(func, x, np.zeros_like(x), rtol=1e-4, atol=1e-4)


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
