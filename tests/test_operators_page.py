"""docs/operators.md has every operator, as the registry has it."""

import re
import subprocess
import sys
from pathlib import Path

from relaxpy.ir.relax.op.definition.registry import registered_ops

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operators.md"


def test_the_page_of_operators_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "operators.py"), "--check"]
    assert subprocess.run(tool, check=False, cwd=ROOT).returncode == 0, "run tools/operators.py"


def test_the_page_shows_each_operator_with_an_example() -> None:
    _, *entries = re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len({entry.partition("\n")[0] for entry in entries}) == len(entries)
    for entry in entries:
        name = entry.partition("\n")[0]
        assert f"\n`{name}(" in entry
        assert f"{name}(" in entry.partition("```python\n")[2], (
            f"{name} has no example: write one in tools/operator_examples.toml"
        )
    own = {op.name for op in registered_ops().values() if op.record.is_of_relaxpy}
    shown = {entry.partition("\n")[0].replace("R.", "relax.", 1) for entry in entries}
    assert shown == own, "run tools/operators.py"


def test_each_row_of_a_table_links_to_its_operator() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower() for heading in headings}
    links = re.findall(r"^\| \[[\w.]+\]\(#(\w+)\)", text, re.MULTILINE)
    assert sorted(links) == sorted(anchors)
    assert len(anchors) == len(headings)
