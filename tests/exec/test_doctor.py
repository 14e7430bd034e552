"""What `relaxpy.doctor` finds about this process, and that nothing makes it fail."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError
from relaxpy.exec.inspect import doctor as module
from relaxpy.exec.machine.platforms import X86_64
from relaxpy.exec.native.machine_code.machine import host

ROOT = Path(__file__).parents[2]
TOPICS = (
    *("versions", "CPU", "vectors", "BLAS", "llvmlite"),
    *("threads", "calls", "cache", "targets"),
)


def test_a_diagnosis_is_a_table_of_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXPY_NUM_THREADS", "3")
    monkeypatch.delenv("RELAXPY_TARGET", raising=False)
    found = relaxpy.doctor()
    assert tuple(finding.topic for finding in found) == TOPICS
    lines = str(found).splitlines()
    assert len(lines) == len(found) + 2
    assert [line.split()[0] for line in lines[2:]] == list(TOPICS)
    assert repr(found) == str(found)
    assert found._repr_html_().count("<tr>") == len(found) + 1
    assert f"NumPy {np.__version__}" in found["versions"].value
    assert f"relaxpy {relaxpy.__version__}" in found["versions"].value
    assert f"{host().vector_bits} bits" in found["vectors"].value
    assert re.match(r"\d+\.\d+\.\d+, LLVM \d+\.", found["llvmlite"].value)
    assert found["threads"].value.startswith("3 threads")
    assert found["targets"].value == "native (default), numpy, reference"


def test_settings_that_slow_programs_down_have_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("RELAXPY_NUM_THREADS", "many")
    monkeypatch.setenv("RELAXPY_CACHE", "maybe")
    found = relaxpy.doctor()
    assert "OPENBLAS_CORETYPE=Haswell selects these kernels" in found["BLAS"].advice
    assert "RELAXPY_NUM_THREADS is 'many'" in found["threads"].advice
    assert "RELAXPY_CACHE is 'maybe'" in found["cache"].advice


def test_the_kernels_of_the_blas_are_those_that_the_environment_selects() -> None:
    env = {**os.environ, "OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "import relaxpy; print(relaxpy.doctor()['BLAS'].value)"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    if "openblas" in done.stdout:
        assert re.search("kernels for (?i:haswell), 1 thread$", done.stdout.strip())


def test_the_state_of_the_cache_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path))
    assert relaxpy.doctor()["cache"].value.startswith(str(tmp_path))
    tmp_path.chmod(0o777)
    assert relaxpy.doctor()["cache"].advice == "not used: other users can write it"
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    assert (relaxpy.doctor()["cache"].value, relaxpy.doctor()["cache"].advice) == (
        "none",
        "RELAXPY_CACHE=0",
    )


def test_a_machine_without_native_code_is_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise CompileError("llvmlite cannot be loaded")

    monkeypatch.setenv("RELAXPY_TARGET", "numpy")
    monkeypatch.setattr(module, "host", fail)
    monkeypatch.setattr(module, "llvm", fail)
    found = relaxpy.doctor()
    assert found["targets"].value == "numpy (default), reference"
    assert found["targets"].advice == "native: llvmlite cannot be loaded"
    assert found["vectors"].advice == "llvmlite cannot be loaded"
    assert found["llvmlite"].advice == "llvmlite cannot be loaded"


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_matrix_tiles_are_not_confirmed_on_a_cpu(is_confirmed, monkeypatch) -> None:
    monkeypatch.setattr(module, "host", lambda: replace(host(), features="+avx2,+fma"))
    assert "tiles" not in str(relaxpy.doctor()["vectors"])
    amx = replace(
        host(), features="+avx2,+avx512f,+avx512bw,+avx512dq,+avx512vl,+amx-tile,+amx-bf16"
    )
    monkeypatch.setattr(module, "host", lambda: amx)
    monkeypatch.setattr(module, "tiles_are_confirmed", lambda: is_confirmed)
    found = relaxpy.doctor()["vectors"]
    if amx.platform.architecture is X86_64:
        assert ", matrix tiles, " in found.value
        assert "not yet confirmed on any CPU" in found.advice
        assert ("self-test passed" in found.advice) == is_confirmed


def test_the_target_that_the_environment_selects_is_the_default(monkeypatch) -> None:
    monkeypatch.setenv("RELAXPY_TARGET", "numpy")
    found = relaxpy.doctor()["targets"]
    assert found.value == "native, numpy (default), reference"
    assert found.advice == "native: RELAXPY_TARGET is numpy"
    monkeypatch.setenv("RELAXPY_TARGET", "gpu")
    assert relaxpy.doctor()["targets"].advice.startswith("RELAXPY_TARGET is 'gpu'")
