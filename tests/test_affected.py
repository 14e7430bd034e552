"""Which tests `make affected` runs for a change."""

from pathlib import Path

import pytest

from tests import layers
from tools import affected

ROOT = Path(__file__).parents[1]
TESTS = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for path in (ROOT / "tests").rglob("test_*.py")
}


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("relaxpy/exec/graph/emit.py", "tests/exec/test_fast_paths.py"),
        ("relaxpy/exec/native/calls/entry.py", "tests/exec/native/test_entry.py"),
        ("relaxpy/exec/runtime/registry.py", "tests/exec/test_registry.py"),
        ("relaxpy/ir/serialize.py", "tests/ir/test_serialize.py"),
        ("relaxpy/ir/arith/prove.py", "tests/ir/arith/test_rewrites.py"),
        ("relaxpy/ir/ops/grad.py", "tests/ir/ops/test_gradients.py"),
        ("tests/layers.py", "tests/test_layers.py"),
        ("tests/exec/test_vm.py", "tests/exec/test_vm.py"),
        ("notebooks/01_first_model.ipynb", "tests/test_notebooks.py"),
        ("docs/speed.md", "tests/test_docs.py"),
    ],
)
def test_a_change_runs_the_tests_of_what_it_changes(file: str, test: str) -> None:
    assert test in affected.within(60, affected.scores([file], TESTS))


def test_the_tests_fit_into_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "times.txt"
    table.write_text("# table\n30.00 a.py\n  9.00 slow\n20.00 b.py\n50.00 c.py\n")
    monkeypatch.setattr(layers, "TABLE", table)
    found = affected.Counter({"a.py": 3, "b.py": 2, "new.py": 1.5, "c.py": 1, "d.py": 0})
    assert affected.within(60, found) == ["a.py", "b.py", "new.py"]
    assert affected.within(5, found) == ["a.py"], "the best one runs whatever it takes"
