"""docs/passes.md has every pass, as the docstrings have it."""

import re
import subprocess
import sys
from pathlib import Path

from relaxpy.ir import instrument
from relaxpy.ir.pass_infra import apply_pass
from relaxpy.ir.pass_infra.functional import FunctionalPass
from relaxpy.ir.pass_infra.passes import Pass
from relaxpy.relax import training, transform
from relaxpy.relax.distributed import transform as distributed
from relaxpy.tir import transform as kernels
from relaxpy.transform import PassContext, list_pipelines

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "passes.md"


def test_the_page_of_passes_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "passes.py"), "--check"]
    assert subprocess.run(tool, check=False, cwd=ROOT).returncode == 0, "run tools/passes.py"


def test_the_page_has_a_row_and_details_for_each_pass() -> None:
    text = PAGE.read_text(encoding="utf-8")
    public = {
        cls.__name__
        for cls in (
            *vars(transform).values(),
            *vars(training).values(),
            *vars(distributed).values(),
            *vars(kernels).values(),
        )
        if isinstance(cls, type) and issubclass(cls, Pass) and not issubclass(cls, FunctionalPass)
        if cls.__module__ not in (instrument.__name__, apply_pass.__name__)
    }
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| \S", text, re.MULTILINE)
    details = re.findall(r"^### (\w+)\n\n`(\w+)\(", text, re.MULTILINE)
    assert {name for name, _ in rows} == {name for name, _ in details} == public
    assert len(rows) == len(details) == len(public)
    assert all(anchor == name.lower() for name, anchor in rows)
    assert all(heading == name for heading, name in details)
    assert set(re.findall(r'^\| "(\w+)" \|', text, re.MULTILINE)) == set(list_pipelines())


def test_the_page_of_running_passes_has_each_option() -> None:
    text = (ROOT / "docs" / "running-passes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `((?:relax|tir)\.[\w.]+)` \| (\w+) \|", text, re.MULTILINE)
    assert dict(rows) == {name: spec["type"] for name, spec in PassContext.list_configs().items()}
