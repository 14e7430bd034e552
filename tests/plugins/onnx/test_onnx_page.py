"""Pages: the table has every operator as converters and schemas have it; how to add one runs."""

import os
import re
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules

import onnx
import pytest
from packaging.version import Version

from relaxpy.plugins.onnx import ops
from relaxpy.plugins.onnx.context import CONVERTERS, FAMILIES, find
from tests.rows import targets
from tests.test_docs import python_of

ROOT = Path(__file__).parents[3]
PINS = (ROOT / "tools" / "constraints" / "newest.txt").read_text(encoding="utf-8")
[NEWEST] = re.findall(r"^onnx==(\S+)$", PINS, re.MULTILINE)


def test_every_operator_has_converters_in_one_family() -> None:
    assert {family.name for family in iter_modules(ops.__path__)} == {*FAMILIES}
    find("", "no operator", 1)
    for key, entries in CONVERTERS.items():
        assert len({entry.function.__module__ for entry in entries}) == 1, key


@pytest.mark.skipif(
    Version(onnx.__version__) < Version(NEWEST), reason=f"the page is that of onnx {NEWEST}"
)
def test_the_page_of_operators_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "onnx_operators.py"), "--check"]
    assert subprocess.run(tool, check=False, cwd=ROOT).returncode == 0, (
        "run tools/onnx_operators.py"
    )


@pytest.mark.parametrize("target", targets("a page"))
def test_an_operator_is_added_as_the_page_says(target: str, tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "add-an-onnx-operator.md"
    program = tmp_path / "page.py"
    program.write_text(python_of(page.read_text(encoding="utf-8")), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RELAXPY_TARGET": target}
    done = subprocess.run(
        [sys.executable, str(program)], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Ran [1-9]", done.stderr, re.MULTILINE)
