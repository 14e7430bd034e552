"""Random programs are compiled for the level of CPUs that is requested, in all processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from relaxpy.exec.native.machine_code.machine import host, obstacle

ASK = """
import tests.fuzz.kernels.run
from relaxpy.exec.native.machine_code.machine import host
print(host().cpu, host().vector_bits)
"""


def test_native_code_is_limited_to_the_level() -> None:
    if obstacle() is not None or not host().platform.architecture.wide:
        pytest.skip("it has no levels that may be limited")
    environment = {**os.environ, "RELAXPY_FUZZ_LEVEL": "x86-64-v3"}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["x86-64-v3", "256"]
