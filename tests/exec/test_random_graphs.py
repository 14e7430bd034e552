"""Random graph programs do what their twins in NumPy do; each day others, under its date.

`RELAXPY_FUZZ_SEED` runs the programs of another day again, `RELAXPY_FUZZ_COUNT` more of them.
"""

from pathlib import Path

import pytest

from tests.fuzz import calls, pass_sequences
from tests.fuzz.graphs import WAYS, check_differences, run, write
from tests.fuzz.seed import COUNT, SEED

AT_ONCE = 15
OTHERS = {0: ["reference"], 1: ["numpy without passes"], 2: ["native"], 6: ["native"]}
SLOW = [name for name in WAYS if name.startswith("native without")]


@pytest.mark.rule("EV-12", "EV-17", "EV-18", "EV-20")
@pytest.mark.parametrize("batch", range(-(-COUNT // AT_ONCE)))
def test_programs_do_what_their_twins_do(batch: int, tmp_path: Path) -> None:
    for k in range(AT_ONCE * batch, min(AT_ONCE * (batch + 1), COUNT)):
        seed = f"{SEED}.{k}"
        program = write(seed, tuples=True)
        try:
            others = [SLOW[k // 8 % len(SLOW)]] if k % 8 == 4 else OTHERS.get(k % 8, [])
            run(program, seed, tmp_path, ["numpy", *others])
        except Exception as error:
            error.add_note(f"seed {seed}\n{program.relax}\n{program.python}")
            raise


@pytest.mark.parametrize("k", range(-(-COUNT // 4)))
def test_check_targets_refuses_targets_that_differ(k: int, tmp_path: Path) -> None:
    seed = f"{SEED}.{k}"
    program = write(seed, tuples=True, differs=True)
    try:
        check_differences(program, seed, tmp_path)
    except Exception as error:
        error.add_note(f"seed {seed}\n{program.relax}")
        raise


def test_programs_are_the_same_for_one_seed() -> None:
    assert write("a") == write("a")
    assert write("a") != write("b")
    assert calls.write("a").script() == calls.write("a").script() != calls.write("b").script()


@pytest.mark.rule("OPT-1", "OPT-2")
@pytest.mark.parametrize("k", range(-(-COUNT // 8)))
def test_sequences_of_passes_compute_what_the_reference_does(k: int) -> None:
    seed = f"{SEED}.{k}"
    assert pass_sequences.run(seed) is None, seed
