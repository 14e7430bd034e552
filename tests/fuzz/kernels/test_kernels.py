"""Some random kernels each day: compiled, evaluated and printed as plain Python loops have it.

A failure names its seed: `RELAXPY_FUZZ_SEED` runs that day's programs again, `RELAXPY_FUZZ_COUNT`
more of them, and `make fuzz` very many, with a short program for each kind of failure.
"""

import pytest

from tests.fuzz.kernels.compare import examine
from tests.fuzz.kernels.generate import generate
from tests.fuzz.seed import COUNT, SEED

SHARE = 20
KERNELS = 2 * COUNT


@pytest.mark.rule("PX-1", "PX-2", "PX-3", "OPT-1", "OPT-8")
@pytest.mark.parametrize("start", range(0, KERNELS, SHARE))
def test_random_kernels_do_what_their_text_says(start: int) -> None:
    for number in range(start, min(start + SHARE, KERNELS)):
        program = generate(f"{SEED}/{number}")
        failures = examine(program).failures
        assert not failures, (
            f"seed {SEED}/{number}: {failures[0]}\n\n{program.standalone()}\n"
            "to shorten it: python -m tests.fuzz.kernels.shrink " + f"{SEED}/{number}"
        )
