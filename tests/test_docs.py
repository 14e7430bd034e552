"""What the documents show runs: the Python in each Markdown file, the doctests of the modules."""

import doctest
import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
MODULES = [
    path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".")
    for path in sorted((ROOT / "relaxpy").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def python_of(text: str) -> str:
    """The lines of `text` inside ```python fences, at their line numbers."""
    kept, inside = [], False
    for line in text.splitlines():
        fence = line.startswith("```")
        kept.append(line if inside and not fence else "")
        inside = line == "```python" or (inside and not fence)
    return "\n".join(kept) + "\n"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_python_in_document_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / f"{Path(name).stem}.py"
    python = python_of((ROOT / name).read_text(encoding="utf-8"))
    if "\nimport torch\n" in python:
        pytest.importorskip("torch")
    program.write_text(python, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(program))


@pytest.mark.parametrize("name", MODULES)
def test_doctests_of_module_pass(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


def test_the_glossary_says_where_each_term_is_defined() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (?!term|---)([^|]+) \| [^|]+\. \| `(\w+)` in `([\w/.]+)` \|$", text, re.M
    )
    assert len(rows) == text.count("\n| ") - 2 * text.count("\n| term")
    for term, name, file in rows:
        code = (ROOT / "relaxpy" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(class|def) {name}\b|^{name}\b.* = ", code, re.MULTILINE), term
