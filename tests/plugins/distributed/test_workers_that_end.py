"""Workers that end before their first collective operator, for which the others do not wait."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.plugins.distributed.test_mpi import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says which have ended")

PROGRAM = """
import os, sys{imported}
import numpy as np, relaxpy
from relaxpy.script import relax as R

@R.function
def total(x: R.Tensor((4,), "float32")):
    return R.ccl.allreduce(x, "sum")

if os.environ["PMI_RANK"] == "1":
    {end}
{chosen}
print(total(np.ones(4, "float32")))
"""
STARTED = ", mpi4py.MPI"


@pytest.mark.each_choice
@pytest.mark.parametrize("imported", ["", STARTED])
@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit(3)", "sys.exit('no data')"])
def test_an_exit_before_the_first_operator_ends_the_others(imported, end, tmp_path) -> None:
    check(tmp_path, "worker 1 has ended", imported=imported, end=end)


@pytest.mark.parametrize(
    "chosen", ["relaxpy.distributed.use()", "relaxpy.distributed.use(groups=2)"]
)
def test_workers_that_are_chosen_hear_of_it(chosen: str, tmp_path: Path) -> None:
    check(tmp_path, "worker 1 has ended", imported=STARTED, end="sys.exit()", chosen=chosen)


def test_a_process_that_ends_without_a_word_is_missed(tmp_path: Path) -> None:
    check(tmp_path, "worker 1 has ended", end="os._exit(0)")


def test_an_error_names_the_worker(tmp_path: Path) -> None:
    check(tmp_path, "worker 1 has failed: all end", end="raise ValueError('no data')")


def test_processes_that_call_no_collective_operator_end_when_they_want(tmp_path: Path) -> None:
    for imported in ("", STARTED):
        program = tmp_path / "alone.py"
        text = PROGRAM.format(imported=imported, end="sys.exit()", chosen="")
        program.write_text(text.replace("print(total(", "import time; time.sleep(1); print(abs("))
        done = run(2, program)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "[1. 1. 1. 1.]"


def test_workers_of_one_part_do_not_heed_another(tmp_path: Path) -> None:
    program = tmp_path / "parts.py"
    program.write_text("""
import sys, time
from mpi4py import MPI
import numpy as np, relaxpy
from relaxpy.script import relax as R

@R.function
def total(x: R.Tensor((4,), "float32")):
    return R.ccl.allreduce(x, "sum")

world = MPI.COMM_WORLD
part = world.Split(world.rank == 1)
if world.rank == 1:
    sys.exit()
time.sleep(0.5 * world.rank)
with relaxpy.distributed.use(part):
    print(total(np.ones(4, "float32")))
""")
    done = run(3, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[2. 2. 2. 2.]") == 2  # workers may print at the same time


def check(folder: Path, message: str, *, end: str, imported: str = "", chosen: str = "") -> None:
    program = folder / "ends.py"
    program.write_text(PROGRAM.format(imported=imported, end=end, chosen=chosen))
    began = time.monotonic()
    done = run(2, program)
    assert done.returncode != 0
    assert message in done.stderr, done.stderr
    assert time.monotonic() - began < 60
