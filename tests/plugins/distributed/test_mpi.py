"""Programs of several processes, which mpiexec starts, on this machine."""

import ast
import math
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from tests import rows
from tests.fuzz.seed import SEED
from tests.plugins.distributed.team import Member, Team

pytest.importorskip("mpi4py", exc_type=ImportError)

MPIEXEC = Path(sysconfig.get_path("scripts")) / "mpiexec"
PROGRAMS = Path(__file__).parent / "programs"
EXAMPLE = Path(__file__).parents[3] / "examples" / "scaling" / "tensor_parallel.py"
TIME_LIMIT = 150
if not MPIEXEC.exists():
    pytest.skip("there is no mpiexec beside this Python", allow_module_level=True)


def run(count: int, program: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program on so many workers; a run that hangs is killed with all its processes."""
    command = [MPIEXEC, "-n", str(count), sys.executable, PROGRAMS / program, *arguments]
    env = {**os.environ, "PYTHONPATH": str(Path(relaxpy.__file__).parents[1])}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"the workers hang: {out}{err}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.parametrize(("count", "groups"), [(3, "3"), (4, "2")])  # groups of one, and of two
def test_every_collective_operator_is_what_numpy_says(count: int, groups: str) -> None:
    step = 1 if rows.whole_tables() else 16
    done = run(count, "collectives.py", str(step), groups)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 4000 // step


@pytest.mark.skipif(sys.platform != "linux", reason="it counts what /proc says")
@pytest.mark.parametrize("count", [2, 4] if rows.whole_tables() else [4])
def test_mpi_sends_what_is_predicted(count: int) -> None:
    """Between the busiest worker alone and all of them: where all send alike, as much by each."""
    done = run(count, "bytes_on_the_wire.py")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    found = {name: int(sent) / int(predicted) for name, predicted, sent in lines}
    for name in ("allreduce", "allgather", "reduce_scatter"):
        assert found.pop(name) == pytest.approx(count, rel=0.05)
    assert len(found) == 4
    assert all(0.98 <= share <= 1.05 * count for share in found.values()), found


@pytest.mark.parametrize("mesh", [("2",), ("2", "2")] if rows.whole_tables() else [("2", "2")])
def test_a_block_of_a_llama_is_split_among_workers(mesh: tuple[str, ...]) -> None:
    done = run(math.prod(map(int, mesh)), EXAMPLE, *mesh)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("equal") == math.prod(map(int, mesh))


@pytest.mark.parametrize(
    ("way", "texts"),
    [
        ("uncaught", ["ValueError: this worker's own fault", "worker 1 failed: ValueError: this"]),
        ("before_the_first", ["ValueError: this worker's own fault"]),
        ("in_a_thread", ["ValueError: this", "worker 1 failed: ValueError: this worker's own"]),
        ("ends_early", ["worker 1 has ended", "return R.ccl.allreduce"]),
        ("alone_at_start", ["worker 0 has waited 0.5 s in start for the other 1"]),
        ("finalized", ["allreduce (sum): MPI has been finalized"]),
        (
            "too_late",
            [
                "worker 0 has waited 0.5 s in allreduce (sum) for the other 1",
                "one of them has ended, or is busy with something else",
            ],
        ),
        ("too_late_unchecked", ["worker 0 has waited 0.5 s in allreduce", "use(comm, check=True)"]),
        (
            "different",
            [
                "worker 0 calls allreduce (sum) of float32 (4,); "
                "worker 1 calls allgather of float32 (4,)"
            ],
        ),
        (
            "different_groups",
            [
                "worker 0 calls allreduce (sum) of float32 (4,) in groups; "
                "worker 1 calls broadcast_from_worker0 of float32 (4,)"
            ],
        ),
        (
            "different_among",
            [
                "worker 0 calls allreduce (sum) of float32 (4,); "
                "worker 1 calls allreduce (sum) of float32 (4,) among (1, 1)"
            ],
        ),
        (
            "different_shapes",
            [
                "worker 0 calls allreduce (sum) of float32 (2,); "
                "worker 1 calls allreduce (sum) of float32 (3,)"
            ],
        ),
        ("wrong_number", ["the program is for 3 workers, but there are 2", "mpiexec -n 3"]),
    ],
)
def test_a_failure_ends_all_workers_with_its_message(way: str, texts: list[str]) -> None:
    done = run(2, "failures.py", way)
    assert done.returncode != 0
    for text in texts:
        assert text in done.stderr, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what is shared")
def test_a_failure_leaves_no_shared_memory(tmp_path: Path) -> None:
    program = tmp_path / "shares.py"
    program.write_text("""
import numpy as np, relaxpy
from pathlib import Path
from relaxpy.script import relax as R

@R.function
def total(x: R.Tensor((4,), "float32")):
    return R.ccl.allreduce(x, "sum")

total(np.ones(4, "float32"))
print(*{line.split()[-1] for line in open("/proc/self/maps") if "/dev/shm/" in line})
if relaxpy.distributed.current_workers().rank == 1:
    raise ValueError("this worker's own fault")
total(np.ones(4, "float32"))
""")
    done = run(2, program)
    shared = {Path(name) for name in done.stdout.split()}
    assert done.returncode != 0
    assert shared, done.stderr
    assert not any(path.exists() for path in shared)


def test_workers_that_call_different_operators_are_told_without_a_request() -> None:
    done = run(2, "differing.py", SEED, "40")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("<40>") == 2


def test_an_error_before_mpi_has_started_ends_all(tmp_path: Path) -> None:
    program = tmp_path / "early.py"
    program.write_text("""
import os, numpy as np, relaxpy
from relaxpy.script import from_source
text = '@R.function\\ndef main(x: R.Tensor((4,), "float32")):\\n    return R.ccl.allreduce(x)'
module = relaxpy.IRModule({"main": from_source(text)})
if os.environ["PMI_RANK"] == "1":
    raise ValueError("this worker's own fault")
relaxpy.compile(module)["main"](np.ones(4, "float32"))
""")
    done = run(2, program)
    assert done.returncode != 0
    assert "ValueError: this worker's own fault" in done.stderr


def digits(count: int, *arguments: object) -> list[float]:
    done = run(count, "digits.py", *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return list(map(float, done.stdout.split()))


def test_the_digits_are_learned_alike_by_any_number_of_workers(tmp_path: Path) -> None:
    checkpoint = tmp_path / "digits.safetensors"
    alone = digits(1, 2)
    first, last = (4, 2) if rows.whole_tables() else (2, 1)
    np.testing.assert_allclose(digits(first, 1, checkpoint), alone[:1], rtol=1e-4)
    np.testing.assert_allclose(digits(last, 2, checkpoint), alone[1:], rtol=1e-4)
    assert alone[-1] < alone[0] * 0.7


def test_an_error_in_a_with_is_told_to_the_others() -> None:
    done = run(2, "failures.py", "in_with")
    assert done.returncode == 0, done.stderr
    assert "1: this worker's own fault" in done.stdout
    assert "worker 1 failed: ValueError: this worker's own fault" in done.stdout


def test_workers_that_end_leave_the_others_to_finish() -> None:
    done = run(2, "failures.py", "first_ends")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["7.0"]


def test_a_forked_process_is_not_a_worker() -> None:
    done = run(2, "failures.py", "forked")
    assert done.returncode == 0, done.stderr


def test_what_workers_use_is_released_after_a_with() -> None:
    done = run(2, "failures.py", "many_times")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("these workers can no longer be used: they are closed") == 2


def test_threads_have_communicators_of_their_own() -> None:
    done = run(2, "failures.py", "several_threads")
    assert done.returncode == 0, done.stderr
    assert "0: both" in done.stdout
    assert "1: both" in done.stdout


REFUSED = {
    "comm=3": "expected a communicator of mpi4py, found 3",
    "groups=2": "1 workers cannot be divided into 2 groups",
    "groups=0": "into 0 groups",
    "timeout=0": "timeout is a positive number of seconds, found 0",
    "timeout='5'": "timeout is a positive number of seconds, found '5'",
}


def test_what_cannot_be_used_is_refused() -> None:
    script = "import relaxpy\n" + "".join(
        f"try: relaxpy.distributed.use({options})\n"
        "except relaxpy.errors.MisuseError as error: print(ascii(str(error)))\n"
        for options in REFUSED
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    messages = done.stdout.splitlines()
    pairs = zip(REFUSED.values(), messages, strict=True)
    assert [text for text, message in pairs if text not in ast.literal_eval(message)] == []
    assert done.returncode == 0, done.stderr


def test_a_choice_of_workers_is_used_by_one_with() -> None:
    chosen = relaxpy.distributed.use(Member(Team(1), 0))
    with chosen:
        pass
    with pytest.raises(MisuseError, match="used by a with already"), chosen:
        pass


def test_an_error_at_a_prompt_does_not_end_a_session() -> None:
    lines = "import relaxpy\nchosen = relaxpy.distributed.use()\n1 / 0\nprint('goes', 'on')\n"
    done = subprocess.run([sys.executable, "-i"], input=lines, capture_output=True, text=True)
    assert "ZeroDivisionError" in done.stderr
    assert "goes on" in done.stdout, done.stderr


def test_a_program_of_one_worker_needs_no_mpi() -> None:
    script = """
import sys, numpy as np, relaxpy
from relaxpy.relax import BlockBuilder, TensorStructInfo, Var
from relaxpy.ir.ops import ccl
x = Var("x", TensorStructInfo((2,), "float32"))
builder = BlockBuilder()
with builder.function("main", [x]):
    builder.emit_func_output(builder.emit(ccl.allreduce(x, "sum")))
print(relaxpy.compile(builder.finalize())["main"](np.ones(2, "float32")))
assert not any(name.startswith("mpi4py") for name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == str(np.ones(2, "float32")), done.stderr
