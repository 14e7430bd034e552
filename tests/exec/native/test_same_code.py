"""The code of a program is the same in each process, so that it is found again on disk."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.machine.tuning import CodeSize
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


UNARY = (
    *("exp", "log", "sin", "cos", "tan", "tanh", "sqrt"),
    *("erf", "abs", "sign", "floor", "ceil", "negative", "sigmoid"),
)
"""Operators whose kernels differ, also in their shared functions."""


@pytest.fixture
def parts_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[list[str]]]:
    """A function: the functions in the parts that LLVM compiles for some operators."""
    monkeypatch.setenv("RELAXPY_CACHE", "code")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path))
    texts: list[str] = []
    generate = objects._generate

    def noted(method: str, text: str, *args: Any, **options: Any) -> Any:
        texts.append(text)
        return generate(method, text, *args, **options)

    monkeypatch.setattr(objects, "_generate", noted)

    def parts(names: Iterable[str]) -> list[list[str]]:
        lines = [f"    y{n} = R.{name}(x)\n" for n, name in enumerate(names)]
        results = ", ".join(f"y{n}" for n in range(len(lines)))
        head = '@R.function\ndef main(x: R.Tensor((2048, 2048), "float32")):\n'
        texts.clear()
        relaxpy.compile(from_source(f"{head}{''.join(lines)}    return {results}\n"), "native")
        found = [re.findall(r"^define \S+ @(\S+)\(", text, re.MULTILINE) for text in texts]
        return [part for part in found if any(name.startswith("kernel") for name in part)]

    return parts


def test_a_changed_program_generates_the_kernels_that_are_new(parts_of, monkeypatch) -> None:
    monkeypatch.setattr(CodeSize, "PART", 1)
    *parts, _ = parts_of(UNARY)
    assert len(parts) == len(UNARY)
    *parts, rest = parts_of(["rsqrt", *UNARY[3:], *UNARY[:2]])
    assert len(parts) == 1
    assert any(name.startswith("graph") for name in rest)


def test_parts_end_after_the_same_kernels_in_a_changed_program(parts_of, monkeypatch) -> None:
    monkeypatch.setattr(CodeSize, "PART", 150)
    before = parts_of(UNARY)
    assert 4 < len(before) < len(UNARY)
    assert len(parts_of(["rsqrt", *UNARY])) < len(before) - 1


EQUAL = """
@T.prim_func
def first(x: T.Buffer((9,), "float32"), y: T.Buffer((9,), "float32")):
    for i in range(9):
        with T.block("a"):
            y[i] = x[i] + T.float32(2)

@T.prim_func
def second(a: T.Buffer((9,), "float32"), b: T.Buffer((9,), "float32")):
    for i in range(9):
        with T.block("b"):
            b[i] = a[i] + T.float32(2)
"""


def test_equal_kernels_of_a_module_are_one_function() -> None:
    built = relaxpy.compile(from_source(EQUAL), "native")
    for name in ("first", "second"):
        result = np.zeros(9, "float32")
        built[name](np.arange(9, dtype="float32"), result)
        np.testing.assert_array_equal(result, np.arange(2, 11))


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
