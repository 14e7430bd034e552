"""docs/passes.md and the pages of the site have every pass, as the docstrings have it."""

import re
import subprocess
import sys
from pathlib import Path

from relaxpy.ir import instrument
from relaxpy.ir.pass_infra import functional
from relaxpy.ir.pass_infra.functional import FunctionalPass
from relaxpy.ir.pass_infra.passes import Pass
from relaxpy.relax import training, transform
from relaxpy.relax.distributed import transform as distributed
from relaxpy.tir import transform as kernels
from relaxpy.transform import list_pipelines
from tests.test_operators_page import assert_each_page_is_linked_and_listed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "passes.md"


def test_the_page_of_passes_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "passes.py"), "--check"]
    assert subprocess.run(tool, check=False, cwd=ROOT).returncode == 0, "run tools/passes.py"


def public() -> set[str]:
    """The names of the public passes."""
    return {
        cls.__name__
        for module in (transform, training, distributed, kernels)
        for cls in (getattr(module, name) for name in dir(module))
        if isinstance(cls, type) and issubclass(cls, Pass) and not issubclass(cls, FunctionalPass)
        if cls.__module__ not in (instrument.__name__, functional.__name__)
    }


def test_the_page_has_a_row_for_each_pass_and_pipeline() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \| \S", text, re.MULTILINE)) == sorted(public())
    assert set(re.findall(r'^\| "(\w+)" \|', text, re.MULTILINE)) == set(list_pipelines())


def test_each_pass_has_a_page_that_others_lead_to(tmp_path: Path) -> None:
    tool = [sys.executable, str(ROOT / "tools" / "passes.py"), "--pages", str(tmp_path)]
    subprocess.run(tool, check=True, cwd=ROOT)
    for name in public():
        text = (tmp_path / "passes" / f"{name}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {name}\n\n`{name}(")
    assert_each_page_is_linked_and_listed(tmp_path, "passes")
