"""Workers that end before their first collective operator, for which the others do not wait."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from relaxpy.support import launched
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


HELPERS = """
import multiprocessing, os, subprocess, sys
import numpy as np, relaxpy
from relaxpy.script import relax as R

@R.function
def total(x: R.Tensor((4,), "float32")):
    return R.ccl.allreduce(x, "sum")

def prepare(k):
    if k:
        return k
    try:
        total(np.ones(4, "float32"))
    except relaxpy.errors.MisuseError as error:
        return str(error)

def work(how):
    if how == "fails":
        done = subprocess.run([sys.executable, __file__, "fail"], stderr=subprocess.PIPE)
        print("return code", done.returncode, b"all end" in done.stderr)
    elif how == "lasts":
        children.append(subprocess.Popen([sys.executable, __file__, "last"], stdin=subprocess.PIPE))
    else:
        with multiprocessing.get_context(how).Pool(1) as pool:
            print(pool.map(prepare, range(2)))
            pool.close()
            pool.join()

if __name__ == "__main__":
    children = []
    if "fail" in sys.argv:
        raise ValueError("a helper fails")
    if "last" in sys.argv:
        sys.exit(0)
    from mpi4py import MPI
    if MPI.COMM_WORLD.rank == 1:
        for how in ("spawn", "fails", "forkserver", "lasts", "fork"):
            work(how)
    with relaxpy.distributed.use():
        print(total(np.ones(4, "float32")))
"""


def test_processes_that_a_worker_starts_are_not_workers(tmp_path: Path) -> None:
    program = tmp_path / "helpers.py"
    program.write_text(HELPERS)
    done = run(2, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[2. 2. 2. 2.]") == 2
    assert done.stdout.count("a process that a worker has started is not a worker") == 3
    assert "return code 1 False" in done.stdout


@pytest.mark.parametrize("size", ["", "0", "1", "x", "-2"])
@pytest.mark.parametrize("name", ["PMI_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_SIZE"])
def test_a_lone_process_has_nobody_to_end(name: str, size: str, monkeypatch) -> None:
    for other in launched._SIZES:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, size)
    assert not launched.is_one_of_several()
    monkeypatch.setenv(name, "2")
    assert launched.is_one_of_several()


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
