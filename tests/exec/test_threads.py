"""Programs run wherever Python runs functions: in any thread, and while the interpreter ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import atexit
import threading

import numpy as np

import relaxpy
from relaxpy.script import relax as R, tir as T

@T.prim_func
def kernel(X: T.Buffer((2048, 512), "float32"), Y: T.Buffer((2048, 512), "float32")):
    for i, j in T.grid(2048, 512):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi, vj] * T.float32(2) + X[vi, vj]

@R.function
def make(x: R.Tensor(("n",), "float32")) -> R.Object:
    @R.function
    def doubled(y: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        z = R.add(y, y)
        return z
    return doubled

run = relaxpy.compile(kernel)["kernel"]
ex = relaxpy.compile(make)
x = np.ones((2048, 512), "float32")

def at_the_end(title):
    if threading.current_thread() is not threading.main_thread():
        threading.main_thread().join()
    y = np.zeros_like(x)
    run(x, y)
    print(title, y.min(), y.max())
"""


def of_file(tmp_path: Path, end: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM + end)
    command = [sys.executable, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def test_kernels_run_when_the_main_thread_has_ended(tmp_path: Path) -> None:
    end = """
from relaxpy.exec.machine import tuning
from relaxpy.exec.numpy import row_blocks
row_blocks.threads = lambda: 2  # with one core, kernels start no threads
tuning.Blocks.WORTH_THREADS = 1
threading.Thread(target=at_the_end, args=["thread"]).start()
atexit.register(at_the_end, "exit")
"""
    done = of_file(tmp_path, end)
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == ["exit 3.0 3.0", "thread 3.0 3.0"]


def test_functions_may_be_called_without_a_frame_of_python(tmp_path: Path) -> None:
    end = "atexit.register(ex['make'](x[0]), x[0])\n"  # which the interpreter calls itself
    assert of_file(tmp_path, end).stderr == ""


def test_errors_that_meet_no_frame_of_python_say_what_is_wrong(tmp_path: Path) -> None:
    end = "atexit.register(ex['make'], 1)\natexit.register(relaxpy.compile, 1)\n"
    end += "atexit.register(ex['make'](x[0]), x[0], x[0])\n"
    end += "atexit.register(getattr, ex, 'nothing')\n"
    said = of_file(tmp_path, end).stderr
    assert "deep enough" not in said
    for kind in ("FunctionSignatureError", "RuntimeCheckError", "MisuseError"):
        assert f"relaxpy.errors.{kind}: " in said
    assert "Executable has no attribute 'nothing'" in said
