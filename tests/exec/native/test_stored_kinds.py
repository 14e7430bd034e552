"""Programs of each kind start from the disk in another process: results, messages and reports."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.exec.native.stored_kinds import KINDS, ROOT

pytest.importorskip("llvmlite")


def process(folder: Path) -> dict[str, dict[str, Any]]:
    """What a process prints whose cache is in a folder."""
    env = {**os.environ, "RELAXPY_CACHE": "1", "RELAXPY_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "tests.exec.native.stored_kinds", str(folder)]
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    found: dict[str, dict[str, Any]] = json.loads(run.stdout)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """What a process prints that compiles all programs, and one after it."""
    folder = tmp_path_factory.mktemp("stored")
    weights = np.random.default_rng(0).standard_normal((640, 640)).astype("float32") / 16
    weights.tofile(folder / "weights.bin")
    old = time.time() - 60  # files that were just written are not identified by their time
    os.utime(folder / "weights.bin", (old, old))
    return [process(folder), process(folder)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_process_compiles_nothing(kind, found) -> None:
    first, second = (one[kind] for one in found)
    assert first.pop("took")[-1] == "lower_module"
    assert second.pop("took") == []
    if kind == KINDS[0]:  # later ones follow calls that fail, which are compiled for the message
        assert (first["llvmlite"], second["llvmlite"]) == (True, False)
    del first["llvmlite"], second["llvmlite"]
    assert first == second
