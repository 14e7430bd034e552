"""Random kernels under all kinds of signatures do what the reference does."""

import pytest

from tests.fuzz.seed import COUNT, SEED
from tests.fuzz.signatures import failure, write


@pytest.mark.parametrize("k", range(-(-COUNT // 3)))
def test_kernels_do_what_the_reference_does(k: int) -> None:
    seed = f"{SEED}.{k}"
    assert failure(seed) is None, f"seed {seed}\n{write(seed).text}"


def test_programs_are_the_same_for_one_seed() -> None:
    assert write("a") == write("a")
    assert write("a") != write("b")
