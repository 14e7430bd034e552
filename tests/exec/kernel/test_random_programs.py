"""Compiled kernels do what their loops say, for loops that nobody would write."""

from random import Random

import numpy as np
from hypothesis import given, settings, strategies as st

from tests.exec.kernel.programs import SIZE, program
from tests.exec.kernel.support import check


@settings(max_examples=60)
@given(st.integers(0, 1 << 30))
def test_any_loop_nest_runs_in_the_order_of_its_text(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-9, 9, (SIZE,) * rank).astype(np.int16) for rank in (1, 1, 2, 2)]
    check(program(Random(seed)), *arrays)
