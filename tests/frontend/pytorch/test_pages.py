"""The page on adding an ATen operator runs."""

import runpy
from pathlib import Path

import pytest

from tests.test_docs import python_of

pytest.importorskip("torch")
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "add-an-aten-operator.md"


def test_an_operator_is_added_as_the_page_says(tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text(python_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    runpy.run_path(str(program))
