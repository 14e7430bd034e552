"""Native code on AArch64, run under an emulator: `make test-arm` downloads it.

What x86-64 and AArch64 compute is the same, bit for bit: no result depends on the width of vectors.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".arm" / "python"
PROGRAMS = "tests.exec.native.arm_programs"

# Python takes minutes under an emulator, and more where others use the processors.
pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="make test-arm downloads an emulator"),
    pytest.mark.timeout(1800),
]


def run(python: Path | str, cache: Path, *command: str, **variables: str) -> str:
    names = {"PYTHONPATH": str(ROOT), "RELAXPY_CACHE_DIR": str(cache), **variables}
    environment = {k: v for k, v in os.environ.items() if k != "RELAXPY_CACHE"} | names
    done = subprocess.run(
        [str(python), *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    text = run(sys.executable, tmp_path_factory.mktemp("here"), "-m", PROGRAMS)
    digests: dict[str, str] = json.loads(text)["digests"]
    return digests


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("there")


@pytest.fixture(scope="module")
def compiled(cache: Path) -> dict[str, object]:
    """What programs compute on one thread; their code is in the cache afterwards."""
    found: dict[str, object] = json.loads(
        run(PYTHON, cache, "-m", PROGRAMS, RELAXPY_NUM_THREADS="1")
    )
    return found


def test_programs_compute_the_same_on_both_processors(expected, compiled) -> None:
    assert compiled == {"digests": expected, "llvm": True}


@pytest.mark.parametrize("threads", ["2", "4"])
@pytest.mark.usefixtures("compiled")
def test_programs_start_from_disk_on_several_threads(threads, expected, cache) -> None:
    """One of each kind, and those with parallel loops."""
    some = "exp float32", "int8 uint8", "symbolic int32", "rows int8", "threads"
    text = run(PYTHON, cache, "-m", PROGRAMS, *some, RELAXPY_NUM_THREADS=threads)
    chosen = {name: value for name, value in expected.items() if name.startswith(some)}
    assert json.loads(text) == {"digests": chosen, "llvm": False}


def test_a_file_with_code_is_for_the_processor_that_has_saved_it(cache: Path) -> None:
    file = cache / "saved.rxp"
    save = (
        "import relaxpy; from tests.exec.native import arm_programs as programs\n"
        "name, text, operands = next(programs.programs())\n"
        "ex = relaxpy.compile(programs.from_source(text))\n"
        "assert ex.target == 'native'\n"
        f"ex.save({str(file)!r})\n"
    )
    load = (
        "import sys, relaxpy; from tests.exec.native import arm_programs as programs\n"
        f"ex = relaxpy.load_executable({str(file)!r}, native_code=True)\n"
        "name, text, operands = next(programs.programs())\n"
        "print(ex['main'](*[programs.operand(*each) for each in operands])[0] > 1)\n"
        "print('llvmlite' in sys.modules)\n"
    )
    run(PYTHON, cache, "-c", save, RELAXPY_CACHE="0")
    assert run(PYTHON, cache, "-c", load, RELAXPY_CACHE="0") == "True\nFalse\n"
    assert run(sys.executable, cache, "-c", load, RELAXPY_CACHE="0") == "True\nTrue\n"


def test_code_that_was_compiled_here_runs_without_llvmlite(cache: Path) -> None:
    file = cache / "crossed.rxp"
    save = (
        "import relaxpy; from relaxpy.script import from_source\n"
        "from relaxpy.target import Native\n"
        "from tests.exec.cross_programs import PROGRAM\n"
        "targets = [Native('linux-aarch64'), Native('linux-aarch64', 'neoverse-n1')]\n"
        "ex = relaxpy.compile(from_source(PROGRAM), targets)\n"
        f"ex.save({str(file)!r})\n"
    )
    run_all = (
        "import sys, relaxpy, hashlib\n"
        "from tests.exec.cross_programs import results\n"
        f"ex = relaxpy.load_executable({str(file)!r}, native_code=True)\n"
        "print({k: hashlib.sha256(v).hexdigest() for k, v in results(ex).items()})\n"
        "print({row.backend for row in ex.report()})\n"
    )
    ask = "print(ex._program.keep.machine.features, 'llvmlite' in sys.modules)\n"
    run(sys.executable, cache, "-c", save, RELAXPY_CACHE="0")
    here = run(sys.executable, cache, "-c", run_all, RELAXPY_CACHE="0")
    *there, used = run(PYTHON, cache, "-c", run_all + ask, RELAXPY_CACHE="0").splitlines()
    assert there == here.splitlines()
    assert used == "+neon,+lse,+rdm,+fullfp16,+dotprod False"


def test_conventions_of_other_systems_compute_the_same_there(cache: Path) -> None:
    program = (
        "import numpy as np; from relaxpy.exec.machine.platforms import PLATFORMS\n"
        "from relaxpy.exec.native.machine_code.machine import generating_for, machine_of\n"
        "from tests.exec.native.oracle import evaluate\n"
        "x = np.linspace(-3, 3, 64, dtype=np.float32)\n"
        "for platform in PLATFORMS:\n"
        "    if platform.architecture.name == 'aarch64':\n"
        "        machine = machine_of(platform, 'generic')\n"
        "        with generating_for(machine, runs_here=True):\n"
        "            found = evaluate(['exp', 'sin', 'erf'], [x], 16, machine)\n"
        "        print([value.tobytes().hex() for value in found.values()])\n"
    )
    linux, *others = run(PYTHON, cache, "-c", program).splitlines()
    assert others == [linux] * 2
