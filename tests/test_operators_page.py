"""docs/operators.md and the pages of the site have every operator, as the registry has it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from relaxpy.ir.ops.definition.registry import registered_ops

ROOT = Path(__file__).parents[1]
OWN = {op.name for op in registered_ops().values() if op.record.is_of_relaxpy}


def test_the_page_of_operators_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "operators.py"), "--check"]
    assert subprocess.run(tool, check=False, cwd=ROOT).returncode == 0, "run tools/operators.py"


def test_the_table_has_each_operator_once() -> None:
    text = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `(R\.[\w.]+)` \| \S", text, re.MULTILINE)
    assert sorted(names) == sorted(name.replace("relax.", "R.", 1) for name in OWN)


def test_families_have_headings_of_one_word_and_those_of_lowered_programs_are_last() -> None:
    text = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert all(re.fullmatch(r"[A-Z][a-z]+", heading) for heading in headings), headings
    assert len({*headings}) == len(headings)
    assert headings[:4] == ["Elementwise", "Reductions", "Products", "Activations"]
    assert headings[-4:] == ["Layouts", "Memory", "Machine", "Lowered"]
    families = {op.__module__ for op in registered_ops().values() if op.record.is_of_relaxpy}
    assert len(headings) == len(families)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages that the site has about operators."""
    folder = tmp_path_factory.mktemp("docs")
    tool = [sys.executable, str(ROOT / "tools" / "operators.py"), "--pages", str(folder)]
    subprocess.run(tool, check=True, cwd=ROOT)
    return folder


def test_each_operator_has_a_page_with_an_example(pages: Path) -> None:
    for operator in OWN:
        name = operator.replace("relax.", "R.", 1)
        text = (pages / "operators" / f"{name}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {name}\n\n`{name}(")
        assert f"{name}(" in text.partition("```python\n")[2], (
            f"{name} has no example: write one in tools/operator_examples.toml"
        )


def test_the_pages_lead_to_each_operator(pages: Path) -> None:
    assert_each_page_is_linked_and_listed(pages, "operators")


def assert_each_page_is_linked_and_listed(pages: Path, folder: str) -> None:
    """Each page of a folder has a link from the first page, and one place below another page."""
    first = (pages / f"{folder}.md").read_text(encoding="utf-8")
    linked = re.findall(rf"\]\({folder}/([\w.]+\.md)\)", first)
    families = re.findall(rf"^{folder}/([\w.]+\.md)$", first, re.MULTILINE)
    below = []
    for family in families:
        text = (pages / folder / family).read_text(encoding="utf-8")
        below += re.findall(r"^([\w.]+\.md)$", text, re.MULTILINE)
        assert re.findall(r"\]\(([\w.]+\.md)\)", text) == re.findall(
            r"^([\w.]+\.md)$", text, re.MULTILINE
        )
    assert sorted(linked) == sorted(below)
    assert sorted([*families, *below]) == sorted(p.name for p in (pages / folder).iterdir())
