"""Which tests `make affected` runs for a change."""

import json
import random
import subprocess
import sys
from itertools import combinations
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
        ("relaxpy/exec/program/graph/emit.py", "tests/exec/test_fast_paths.py"),
        ("relaxpy/exec/native/calls/entry.py", "tests/exec/native/test_entry.py"),
        ("relaxpy/exec/program/lower/python_module.py", "tests/exec/program/test_outline.py"),
        ("relaxpy/exec/runtime/registry.py", "tests/exec/test_registry.py"),
        ("relaxpy/ir/serialize.py", "tests/ir/test_serialize.py"),
        ("relaxpy/ir/arith/prove.py", "tests/ir/arith/test_rewrites.py"),
        ("relaxpy/ir/ops/grad.py", "tests/ir/ops/test_gradients.py"),
        ("relaxpy/ir/ops/elementwise.py", "tests/ir/ops/test_gradients.py"),
        ("relaxpy/ir/ops/reduction.py", "tests/ir/ops/test_gradients.py"),
        ("relaxpy/ir/ops/nn/pooling.py", "tests/ir/ops/test_kernels.py"),
        ("relaxpy/plugins/onnx/ops/elementwise.py", "tests/plugins/onnx/test_from_onnx.py"),
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


MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "relaxpy").rglob("*.py"))


@pytest.mark.parametrize("file", random.Random(7).sample(MODULES, 10))
def test_the_tests_of_any_module_fill_the_time(file: str) -> None:
    times = layers.table().files
    chosen = affected.within(60, affected.scores([file], TESTS))
    assert 55 < sum(times.get(test, 1.0) for test in chosen) <= 60


def test_a_module_that_no_table_has_runs_the_tests_of_its_folder(monkeypatch) -> None:
    monkeypatch.setattr(affected, "executing", dict)
    for module, folder in [("ir/ops/nn/new", "ir/ops"), ("plugins/onnx/new", "plugins/onnx")]:
        chosen = affected.within(60, affected.scores([f"relaxpy/{module}.py"], TESTS))
        quick = [t for t in TESTS if t.startswith(f"tests/{folder}/") and t.count("/") < 4]
        assert {*quick} <= {*chosen}


def test_the_table_has_files_that_together_execute_each_line(tmp_path, monkeypatch) -> None:
    times = tmp_path / "times.txt"
    names = [f"tests/ir/test_{letter}.py" for letter in "abcdefgh"]
    times.write_text("".join(f"{2 + k}.00 {name}\n" for k, name in enumerate(names)))
    monkeypatch.setattr(layers, "TABLE", times)
    draw = random.Random(1)
    lines = {name: {*draw.sample(range(40), 12)} for name in names}
    module = "relaxpy/ir/module.py"
    for seconds in (9, 20, 44):
        chosen = affected.best_files(module, lines, seconds)
        needed = {name: layers.table().files[name] for name in names}
        assert sum(map(needed.__getitem__, chosen)) <= seconds
        best = max(
            len(set().union(*map(lines.__getitem__, some)))
            for count in range(1, 9)
            for some in combinations(names, count)
            if sum(map(needed.__getitem__, some)) <= seconds
        )
        assert len(set().union(*map(lines.__getitem__, chosen))) >= 0.63 * best  # as greedy is
    table = tmp_path / "modules.txt"
    rows = affected.table_lines({module: lines, "relaxpy/errors.py": {names[0]: {1}}}, 44)
    table.write_text(affected.HEADER + "".join(f"{row}\n" for row in rows))
    monkeypatch.setattr(affected, "TABLE", table)
    found = affected.executing.__wrapped__()
    assert found == {module: {*names}, "relaxpy/errors.py": {names[0]}}


def test_the_table_names_what_exists() -> None:
    assert {*affected.executing()} <= {*MODULES}
    assert set().union(*affected.executing().values()) <= TESTS.keys()


def test_what_a_file_of_tests_executes_is_recorded(tmp_path: Path) -> None:
    answer, test = tmp_path / "lines.json", "tests/ir/test_dtype.py"
    tool = [sys.executable, "tools/affected.py", "--record-into", str(answer), test]
    subprocess.run(tool, cwd=ROOT, check=True, capture_output=True)
    found = json.loads(answer.read_text())
    module = "relaxpy/ir/core/dtype.py"
    text = (ROOT / module).read_text().splitlines()
    assert any(text[line - 1].strip().startswith("return") for line in found[module][test])
    assert "relaxpy/plugins/onnx/ops/elementwise.py" not in found


def test_a_change_without_tests_is_an_error(monkeypatch, capsys) -> None:
    name = "".join(("no", "where.xyz"))  # this file has no such text
    monkeypatch.setattr(affected, "changed_files", lambda base: [name])
    monkeypatch.setattr(affected.subprocess, "run", lambda *args, **options: pytest.fail("it ran"))
    monkeypatch.setattr(sys, "argv", ["affected.py"])
    assert affected.main() == 1
    assert f"no test is chosen for {name}" in capsys.readouterr().err
