"""The code of a program is the same in each process, so that it is found again on disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import relaxpy
from relaxpy.exec.native.machine_code import objects
from relaxpy.exec.native.machine_code.disk_cache import key_of
from relaxpy.script import from_source

ROOT = Path(__file__).parents[3]
TEXT = """
@R.function
def main(x: R.Tensor(("n", 24), "float32"), w: R.Tensor((24, 24), "float32"), b: R.Tensor((24,))):
    with R.dataflow():
        y = R.nn.layer_norm(R.add(R.nn.gelu(R.matmul(x, w)), b), b, b, axes=[-1])
        z = R.nn.softmax(R.multiply(R.matmul(y, w), R.const(0.5, "float32")))
        s = R.variance(z, axis=[0])
        t = R.cumsum(R.permute_dims(z), axis=0)
        u = R.argmax(R.nn.pad(z, [1, 2, 3, 0]), axis=1)
        v = R.max(R.concat([y, z], axis=1))
        r = R.take(y, u, axis=0, mode="clip")
        R.output(s, t, u, v, r)
    return (s, t, u, v, r)
"""


def codes(repeats: int) -> set[str]:
    """The keys of the LLVM IR of several compilations."""
    found: list[str] = []
    generate = objects.compile_object
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "relaxpy.exec.native.calls.jit.compile_object",
            lambda *parts, machine: (
                found.append(key_of(*parts)) or generate(*parts, machine=machine)
            ),
        )
        keep = [relaxpy.compile(from_source(TEXT), target="native") for _ in range(repeats)]
    assert len(found) == len(keep)
    return set(found)


def test_the_code_does_not_depend_on_hashes_and_addresses() -> None:
    program = "from tests.exec.native.test_same_code import codes; print(*codes(1))"
    found = codes(2)
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "RELAXPY_CACHE": "0"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found |= set(done.stdout.split())
    assert len(found) == 1
