"""Compiled kernels do what their loops say, for loops that nobody would write."""

from random import Random

import numpy as np
from hypothesis import given, settings, strategies as st

from relaxpy.exec.reference.kernel import run_prim_func
from tests.exec.kernel.blocks import Blocks
from tests.exec.kernel.programs import SIZE, program
from tests.exec.kernel.support import check, load


@settings(max_examples=60)
@given(st.integers(0, 1 << 30))
def test_any_loop_nest_runs_in_the_order_of_its_text(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-9, 9, (SIZE,) * rank).astype(np.int16) for rank in (1, 1, 2, 2)]
    check(program(Random(seed)), *arrays)


@settings(max_examples=25)
@given(st.integers(0, 1 << 30), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_any_blocks_agree_over_any_sizes_and_memory(
    seed: int, n: int, m: int, overlapping: bool
) -> None:
    rng = np.random.default_rng(seed)
    func = Blocks(Random(seed)).kernel()
    memory = rng.integers(-9, 9, 64).astype(np.int16)
    places = rng.integers(0, max(n, 1), n)
    a, b, c = rng.integers(0, 8, 3) if overlapping else (0, 24, 44)
    found = []
    for run in (load(func), lambda *args: run_prim_func(func, args)):
        whole = memory.copy()
        run(whole[a : a + n * m].reshape(n, m), whole[b : b + n], whole[c : c + m], places.copy())
        found.append(whole)
    np.testing.assert_array_equal(*found)
