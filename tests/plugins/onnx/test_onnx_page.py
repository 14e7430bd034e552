"""docs/onnx-operators.md has every operator, as the converters and the schemas have them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_of_operators_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "onnx_operators.py"), "--check"]
    assert subprocess.run(tool, check=False, cwd=ROOT).returncode == 0, (
        "run tools/onnx_operators.py"
    )
