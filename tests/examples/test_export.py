import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("make") is None or sys.platform != "linux",
    reason="there is no C compiler or no make",
)
def test_digits_in_c_are_read_right(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("llvmlite")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    folder = tmp_path / "examples" / "export" / "c"
    # A make that started the tests would hand its options and its depth down by these.
    inherited = {name: text for name, text in os.environ.items() if "MAKE" not in name}
    env = {**inherited, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}
    done = subprocess.run(
        ["make"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    *_, last = done.stdout.splitlines()
    right, _, count, *_ = last.split()
    assert int(count) == 359
    assert int(right) >= 0.95 * int(count)
    assert done.stdout.count("it is a") == 3
