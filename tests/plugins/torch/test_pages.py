"""The page on adding an ATen operator runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rows import targets
from tests.test_docs import python_of

pytest.importorskip("torch")
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "add-an-aten-operator.md"


@pytest.mark.parametrize("target", targets("a page"))
def test_an_operator_is_added_as_the_page_says(target: str, tmp_path: Path) -> None:
    """In a process of its own, since PyTorch has an operator of a name only once."""
    program = tmp_path / "page.py"
    program.write_text(python_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RELAXPY_TARGET": target}
    subprocess.run([sys.executable, str(program)], env=env, cwd=tmp_path, check=True)
