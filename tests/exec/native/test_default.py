"""The default target: native code where it can be generated, and NumPy elsewhere."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError
from relaxpy.exec.native.machine_code import machine
from relaxpy.script import from_source
from relaxpy.target import Target
from tests.ir.relax.texts import module

Double = module("""
def main(x: f32[n]) -> f32[n]:
    y = R.add(x, x)
    return y
""")

X = np.arange(3, dtype="float32")


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELAXPY_TARGET", raising=False)


def shown_by(program: str, **environment: str) -> list[str]:
    """The lines that a program prints in a new interpreter, without a choice of the target."""
    inherited = {k: v for k, v in os.environ.items() if k != "RELAXPY_TARGET"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=inherited | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("target", [None, "llvm", "llvm -mcpu=x", Target("cpu")])
def test_native_code_is_the_default(target: Any) -> None:
    for ex in relaxpy.compile(Double, target), relax.build(Double, target):
        assert ex.target == "native"
        assert ex["main"](X).tolist() == relaxpy.VirtualMachine(ex)["main"](X).tolist() == [0, 2, 4]
        assert [row.method for row in ex.report()] == ["native, elementwise"]
        assert "not native" not in str(ex.report())


@pytest.mark.parametrize("name", ["numpy", "native"])
def test_a_variable_of_the_environment_decides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXPY_TARGET", name)
    ex = relaxpy.compile(Double, "llvm")
    assert (ex.target, Target("cpu").name, relaxpy.compile(Double).target) == (name, name, name)
    assert relaxpy.compile(Double, "reference").target == "reference"
    assert relaxpy.compile(Double, "numpy").target == "numpy"
    remark = "not native: RELAXPY_TARGET is numpy"
    assert str(ex.report()).endswith(remark) == (name == "numpy")
    assert ("RELAXPY_TARGET" in ex._repr_html_()) == (name == "numpy")


@pytest.mark.parametrize("name", ["", "reference", "cuda", "nativ"])
def test_another_value_of_the_variable_is_an_error(name, monkeypatch) -> None:
    monkeypatch.setenv("RELAXPY_TARGET", name)
    with pytest.raises(MisuseError, match='expected "numpy" or "native"') as caught:
        relaxpy.compile(Double)
    assert ("did you mean 'native'" in str(caught.value)) == (name == "nativ")
    assert relaxpy.compile(Double, "numpy").target == "numpy"
    relax.get_default_pipeline()(Double)


PROGRAM = f"""
import sys
import numpy as np
import relaxpy
from relaxpy.script import from_source
mod = from_source({Double.script()!r})
"""


@pytest.mark.parametrize("name", ["numpy", "native"])
def test_llvmlite_is_imported_when_a_program_is_compiled_for_it(name: str) -> None:
    is_there = "print('llvmlite' in sys.modules)\n"
    call = "print(mod['main'](np.ones(2, 'float32')).tolist())\n"
    program = f"{PROGRAM}{is_there}import relaxpy.exec.api.compile\n{is_there}{call}{is_there}"
    shown = shown_by(program, RELAXPY_TARGET=name, RELAXPY_CACHE="0")
    assert shown == ["False", "False", "[2.0, 2.0]", str(name == "native")]


def test_without_llvmlite_programs_run_on_numpy(tmp_path: Path) -> None:
    saved = str(tmp_path / "double.json")
    relaxpy.compile(Double).save(saved)
    program = f"""
import sys
sys.modules["llvmlite"] = None
{PROGRAM}
for ex in relaxpy.compile(mod), relaxpy.load_executable({saved!r}):
    print(ex.target, mod["main"](np.ones(2, "float32")).tolist())
    print(str(ex.report()).splitlines()[-1])
try:
    relaxpy.compile(mod, "native")
except relaxpy.errors.CompileError as error:
    print(error)
"""
    first, why, *again, error, hint = shown_by(program)
    assert again == [first, why]
    assert first == "numpy [2.0, 2.0]"
    assert why == "not native: llvmlite: it is not installed"
    assert error.endswith('target "native" generates code with llvmlite: it is not installed')
    assert "pip install 'relaxpy[native]'" in hint


def test_what_is_saved_is_the_request() -> None:
    def saved(target: Any) -> str:
        return relaxpy.compile(Double, target)._program.saved_target

    assert [saved(t) for t in (None, "llvm", "numpy", "native")] == [
        *("cpu", "cpu", "numpy", "native")
    ]


def test_machines_where_native_code_is_not_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXPY_CACHE", "0")  # which has what LLVM says of this machine

    def obstacle(**of_llvmlite: Any) -> str | None:
        features = SimpleNamespace(flatten=lambda: of_llvmlite.get("features", "+avx2,+fma"))
        binding = SimpleNamespace(
            llvm_version_info=of_llvmlite.get("version", (20, 1, 8)),
            get_host_cpu_features=lambda: features,
            get_process_triple=lambda: of_llvmlite.get("triple", "x86_64-unknown-linux-gnu"),
            get_host_cpu_name=lambda: "a-processor",
        )
        monkeypatch.setitem(sys.modules, "llvmlite", SimpleNamespace(binding=binding))
        return machine.obstacle.__wrapped__()

    assert obstacle() is None
    assert obstacle(version=(15, 0, 7)) == "llvmlite: it has LLVM 15, expected LLVM 20 or newer"
    assert obstacle(features="+sse4.2") == "the CPU a-processor has no AVX2 and FMA"
    assert obstacle(features="-sve", triple="aarch64-unknown-linux-gnu") is None
    for problem in ("", "the self-test failed"):
        monkeypatch.setattr(machine, "self_test", lambda: problem)  # noqa: B023
        assert obstacle(triple="arm64-apple-darwin23.6.0") == (problem or None)
    assert "no native code is generated" in str(obstacle(triple="riscv64-unknown-linux-gnu"))


@pytest.mark.parametrize("error", [RuntimeError("LLVM is wrong"), OSError("no memory")])
@pytest.mark.parametrize("is_ahead", [False, True])
def test_what_cannot_be_linked_runs_on_numpy_with_a_warning(is_ahead, error, monkeypatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    if is_ahead:  # in the thread that compiles parts of the module
        monkeypatch.setattr("relaxpy.exec.machine.tuning.CodeSize.PART", 1)
        monkeypatch.setattr("relaxpy.exec.native.calls.jit._compiled_ahead", fail)
    else:
        monkeypatch.setattr("relaxpy.exec.native.backend.compile_code", fail)
    with pytest.warns(RuntimeWarning, match=f"run on NumPy, .* cannot be linked: {error}"):
        ex = relaxpy.compile(Double)
    assert ex["main"](X).tolist() == [0, 2, 4]
    [row] = ex.report()
    assert (row.method, row.reason) == ("elementwise", f"native code cannot be linked: {error}")


def test_several_threads_compile_at_once() -> None:
    def run(number: int) -> float:
        text = Double.script().replace("R.add(x, x)", f'R.add(x, R.const({number}, "float32"))')
        return float(relaxpy.compile(from_source(text))["main"](X)[2])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(12))) == [2.0 + n for n in range(12)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_compiles_and_runs_while_its_parent_was_compiling() -> None:
    program = f"""
import os, threading, time, warnings
warnings.simplefilter("ignore")
{PROGRAM}
run = relaxpy.compile(mod, "native")["main"]
x = np.ones(3, "float32")
over = threading.Event()
def work():
    while not over.is_set():
        relaxpy.compile(mod, "native")
thread = threading.Thread(target=work)
thread.start()
for _ in range(4):
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        assert run(x).tolist() == relaxpy.compile(mod, "native")["main"](x).tolist() == [2, 2, 2]
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
thread.join()
"""
    assert shown_by(program) == ["7"] * 4


def test_long_kernels_without_loops_run_on_numpy() -> None:
    def kernel(count: int) -> Any:
        lines = "\n".join(f"    b[{n}] = a[{n}] * T.float32({n})" for n in range(count))
        vectors = "a: T.Buffer((2000,), 'float32'), b: T.Buffer((2000,), 'float32')"
        return from_source(f"@T.prim_func\ndef main({vectors}):\n{lines}\n")

    [row, *_] = relaxpy.compile(kernel(801)).report()
    assert row.method == "single element"
    assert row.reason.endswith("instructions without a loop take long to compile")
    assert "native" in next(iter(relaxpy.compile(kernel(20)).report())).method


SHOWS_TARGET = """
import numpy as np, relaxpy, sys, warnings
from relaxpy.script import from_source
f = from_source('@R.function\\ndef main(x: R.Tensor((4,), "float32")):\\n    return R.add(x, x)')
x = np.ones(4, "float32")
for run in (lambda: relaxpy.compile(f), lambda: relaxpy.compile(f, "native")):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        executable = run()
    print(executable["main"](x).tolist(), [row.backend for row in executable.report()])
    print([str(warning.message) for warning in warned if "NumPy, since" in str(warning.message)])
print(f(x).tolist())
print("native: " in str(relaxpy.doctor()) and relaxpy.doctor())
"""
NO_NEW_CODE = """
import ctypes, sys
# PR_SET_MDWE, as MemoryDenyWriteExecute=yes of systemd sets it.
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit("this Linux has no such switch")
"""
IN_ANOTHER_INTERPRETER = f"""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
interpreters.run_string(interpreters.create(), {SHOWS_TARGET!r})
"""


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (NO_NEW_CODE + SHOWS_TARGET, "this system permits no new machine code: "),
        (IN_ANOTHER_INTERPRETER, "native code runs in the main interpreter of a process only"),
    ],
)
def test_processes_that_may_run_no_new_code_run_on_numpy(program, reason, tmp_path) -> None:
    if sys.platform != "linux" and program != IN_ANOTHER_INTERPRETER:
        pytest.skip("it is a switch of Linux")
    environment = {**os.environ, "RELAXPY_CACHE": "1", "RELAXPY_CACHE_DIR": str(tmp_path)}
    environment.pop("RELAXPY_TARGET", None)
    for _ in range(2):  # without, and with what the first one has stored
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[3],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if "has no such switch" in done.stderr:
            pytest.skip("this Linux has no such switch")
        assert done.returncode == 0, done.stderr
        default, silent, named, warned, called, *doctor = done.stdout.splitlines()
        assert default == named == "[2.0, 2.0, 2.0, 2.0] ['numpy']"
        assert silent == "[]"
        assert f"kernels run on NumPy, since native code cannot be linked: {reason}" in warned
        assert called == "[2.0, 2.0, 2.0, 2.0]"
        assert f"native: {reason}" in " ".join(doctor)


def test_a_stored_program_that_may_not_run_here_is_compiled_again(lowered, monkeypatch) -> None:
    """As one with matrix tiles, where the process may not use them."""
    text = '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return R.add(x, x)'
    relaxpy.compile(from_source(text), "native")

    def refuse(*args: object) -> None:
        raise OSError("this system does not permit the matrix tiles that the code uses")

    monkeypatch.setattr("relaxpy.exec.api.compile.link", refuse)
    again = relaxpy.compile(from_source(text), "native")
    assert len(lowered) == 2
    np.testing.assert_array_equal(again["main"](np.ones(4, "float32")), np.full(4, 2, "float32"))
