"""Some random kernels each day: compiled, evaluated and printed as plain Python loops have it.

A failure names its seed: `RELAXPY_FUZZ_SEED` runs that day's programs again, `RELAXPY_FUZZ_COUNT`
more of them, and `make fuzz` very many, with a short program for each kind of failure.
"""

import pytest

from tests.fuzz.kernels.compare import Outcome, examine
from tests.fuzz.kernels.generate import generate
from tests.fuzz.kernels.program import Program
from tests.fuzz.kernels.run import outcomes
from tests.fuzz.seed import COUNT, SEED

SHARE = 20
KERNELS = 2 * COUNT


@pytest.mark.rule("PX-1", "PX-2", "PX-3", "OPT-1", "OPT-8")
@pytest.mark.parametrize("start", range(0, KERNELS, SHARE))
def test_random_kernels_do_what_their_text_says(start: int) -> None:
    for seed in (f"{SEED}/{n}" for n in range(start, min(start + SHARE, KERNELS))):
        program = generate(seed)
        if not program.may_crash:
            check(seed, program, examine(program))


def test_random_kernels_neither_touch_memory_beside_their_arguments_nor_need_large_stacks() -> None:
    """Each fault of these may end a process, so it is another one that runs them."""
    programs = {seed: generate(seed) for seed in (f"{SEED}/{n}" for n in range(KERNELS))}
    for seed, outcome in outcomes([s for s, program in programs.items() if program.may_crash]):
        check(seed, programs[seed], outcome)


def check(seed: str, program: Program, outcome: Outcome) -> None:
    """Fail with the program if anything failed."""
    assert not outcome.failures, (
        f"seed {seed}: {outcome.failures[0]}\n\n{program.standalone()}\n"
        f"to shorten it: python -m tests.fuzz.kernels.shrink {seed}"
    )
