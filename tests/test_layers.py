"""The layers of tests: their table, and which tests they have."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import layers, rows
from tests.fuzz import seed
from tests.ir.ops.cases import CASES
from tests.ir.ops.variants import drawn_with_each_choice
from tools import slow_tests

ROOT = Path(__file__).parents[1]


def test_the_table_has_no_test_that_is_gone(request: pytest.FixtureRequest) -> None:
    """Of files that were collected as a whole: all of them where the whole suite runs."""
    collected = request.config.stash[layers.COLLECTED]
    functions = {name.partition("[")[0] for name in collected}
    files = {name.partition("::")[0] for name in collected}
    if any("::" in argument for argument in request.config.args):
        files = set()
    gone = [
        name
        for name in layers.listed()
        if name.partition("::")[0] in files and name not in collected and name not in functions
    ]
    assert gone == [], "write tests/times.txt again: make times"


@pytest.mark.parametrize("kind", slow_tests.KINDS)
def test_a_test_of_each_kind_is_quick(kind: str) -> None:
    slow = frozenset(layers.listed())
    for begin in slow_tests.KINDS[kind]:
        file, _, function = begin.partition("::")
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        assert any(name.startswith(function or "test_") for name in names), begin
        every = {f"{file}::{name}" for name in names if name.startswith(function or "test_")}
        assert every - slow, f"all are slow: {begin}"


@pytest.mark.parametrize("function", slow_tests.SHARP)
def test_rows_that_alone_notice_a_mutant_are_quick(function: str) -> None:
    names = [f"{function}[{row}]" for row in slow_tests.SHARP[function]]
    assert slow_tests.quick_tests(dict.fromkeys(names, 9.0), 0.0) == {*names}
    slow = frozenset(layers.listed())
    assert not any(layers.is_slow(name, slow) for name in names)


def test_each_value_of_an_attribute_has_a_quick_row(pytestconfig: pytest.Config) -> None:
    slow = frozenset(layers.listed())
    drawn = drawn_with_each_choice(pytestconfig)
    quick, every = (
        {(case.operator, *choice) for case in cases for choice in case.choices()}
        for cases in (
            [c for name, (c, _) in drawn.items() if f"{slow_tests.OPERATORS}[{name}]" not in slow],
            CASES,
        )
    )
    assert every - quick == set(), "write tests/times.txt again: make times"


def test_the_rows_of_operators_are_the_quickest_with_each_value() -> None:
    pool = [case for case in CASES if case.operator == "relax.nn.avg_pool2d"]
    names = {f"{slow_tests.OPERATORS}[{case.name}-static]": case.choices() for case in pool}
    times = {name: 0.001 * k for k, name in enumerate(names, 1)}
    chosen = {*slow_tests.rows_of_operators(times)}
    every = set().union(*names.values())
    assert ("count_include_pad", "True") in every
    assert set().union(*(names[name] for name in chosen)) == every
    for name in chosen:
        quicker = [names[other] for other in chosen if times[other] < times[name]]
        assert not names[name] <= set().union(*quicker), "it has nothing of its own"
    slow = {name: 100 * seconds for name, seconds in times.items()}
    assert {*slow_tests.rows_of_operators(slow)} == chosen, "whatever they take"
    assert chosen <= slow_tests.quick_tests(slow, 0.0)


def test_the_table_names_files_that_exist() -> None:
    files = {name.partition("::")[0] for name in layers.listed()}
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


def write(folder: Path, times: dict[str, float]) -> Path:
    path = folder / "times"
    path.write_text("".join(f"{seconds} {name}\n" for name, seconds in times.items()))
    return path


def test_the_quick_layer_has_the_cheapest_tests_and_one_of_each_function(tmp_path: Path) -> None:
    file = "tests/test_layers.py"
    first = {f"{file}::a[1]": 0.3, f"{file}::a[2]": 0.2, f"{file}::b": 3.0, f"{file}::c[x]": 0.1}
    second = {f"{file}::c[y]": 0.4, f"{file}::a[1]": 0.5}
    paths = [write(tmp_path, first)]
    (tmp_path / "more").mkdir()
    paths.append(write(tmp_path / "more", second))
    times = slow_tests.measured(paths)
    assert times[f"{file}::a[1]"] == 0.3
    assert slow_tests.quick_tests(times, 0.0) == {f"{file}::a[2]", f"{file}::c[x]"}
    quick = slow_tests.quick_tests(times, 0.7)
    assert quick == {f"{file}::a[1]", f"{file}::a[2]", f"{file}::c[x]"}
    found = [*slow_tests.lines(times, quick, {f"{file}::b"})]
    assert found == [f"0.60 {file}", "  3.00 b", "  0.40 rare c[y]"]


def test_the_slow_layer_has_each_other_function_and_the_cheapest_rows() -> None:
    file = "tests/test_layers.py"
    rows = {
        "a[1]": 0.1,
        "a[2]": 0.4,
        "a[3]": 0.5,
        "b[1]": 9.0,
        "b[2]": 8.0,
        "at_actors_of_ray": 1.0,
    }
    times = {f"{file}::{name}": seconds for name, seconds in rows.items()}
    quick = slow_tests.quick_tests(times, 0.0)
    assert quick == {f"{file}::a[1]"}
    assert slow_tests.slow_tests(times, quick, 0.0) == {f"{file}::b[2]"}
    slow = slow_tests.slow_tests(times, quick, 8.5)
    assert slow == {f"{file}::b[2]", f"{file}::a[2]"}
    assert [*slow_tests.lines(times, quick, slow)] == [
        f"0.10 {file}",
        *("  0.40 a[2]", "  0.50 rare a[3]", "  1.00 rare at_actors_of_ray"),
        *("  8.00 b[2]", "  9.00 rare b[1]"),
    ]


@pytest.mark.parametrize(("budget", "more"), [(12.0, set()), (10.0, {"x.py::b[1]"})])
def test_what_was_not_measured_has_the_times_of_the_table(budget, more, tmp_path, monkeypatch):
    """It is slow where the budget has room for it, and not quick."""
    (tmp_path / "times.txt").write_text(
        "1.0 x.py\n  1.00 a\n  2.00 b[1]\n  3.00 rare b[2]\n  4.00 rare c\n  5.00 rare d[1]\n"
        "  6.00 rare d[2]\n"
    )
    monkeypatch.setattr(layers, "TABLE", tmp_path / "times.txt")
    monkeypatch.setattr(slow_tests, "BUDGETS", (0.0, budget))
    monkeypatch.setattr(slow_tests, "rules_of", lambda files: {})
    path = write(tmp_path, {"x.py::a": 0.1, "x.py::b[3]": 0.2, "x.py::d[2]": 9.0})
    monkeypatch.setattr("sys.argv", ["slow_tests", "--keep", str(path)])
    slow_tests.main()
    _, entries, rare = layers.table()
    times = {"b[1]": 2.0, "b[2]": 3.0, "c": 4.0, "d[1]": 5.0, "d[2]": 9.0}
    assert entries == {f"x.py::{name}": seconds for name, seconds in times.items()}
    assert rare == {"x.py::b[2]", "x.py::d[2]"} | more


TIMED = """
import time

import pytest


@pytest.fixture(scope="module")
def first():
    work(0.04)


@pytest.fixture(scope="module")
def second(first):
    work(0.2)
    yield
    work(0.06)


def work(seconds):
    start = time.process_time()
    while time.process_time() < start + seconds:
        pass


def test_a(second):
    work(0.1)


def test_b(second):
    pass


def test_c():
    pass


def test_skipped(first):
    pytest.skip("not installed")
"""


def test_tests_that_share_a_fixture_have_shares_of_its_time(tmp_path: Path) -> None:
    """Those that are skipped have no time."""
    (tmp_path / "conftest.py").write_text(
        "from tests import layers\n\n\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(layers.Times('times'))\n"
    )
    (tmp_path / "test_timed.py").write_text(TIMED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    times = slow_tests.measured([tmp_path / "times"])
    share = (0.04 + 0.2 + 0.06) / 2
    expected = {"test_a": 0.1 + share, "test_b": share, "test_c": 0.0}
    assert times == pytest.approx(
        {f"test_timed.py::{name}": seconds for name, seconds in expected.items()}, abs=0.05
    )


def test_a_rule_has_a_quick_test_whatever_it_takes() -> None:
    rules = slow_tests.rules_of(["tests/ir/relax/test_well_formed.py"])
    times = {function: 50.0 for functions in rules.values() for function in functions}
    quick = slow_tests.quick_tests(times, 0.0)
    assert rules
    assert all(quick & {*functions} for functions in rules.values())


@pytest.mark.parametrize("layer", ["quick", "slow", "all"])
def test_each_test_is_in_one_layer(layer, tmp_path, monkeypatch) -> None:
    (tmp_path / "times.txt").write_text(
        "# table\n1.0 x.py\n  2.00 a\n  1.00 b[2]\n  1.00 rare b[3]\n1.0 y.py\n  3.00 rare c\n"
        "0.0 z.py\n  9.00 test_actors_of_ray\n"
    )
    monkeypatch.setattr(layers, "TABLE", tmp_path / "times.txt")
    names = ["x.py::a[1]", "x.py::a[2]", "x.py::b[1]", "x.py::b[2]", "y.py::a[1]"]
    slow = {"x.py::a[1]", "x.py::a[2]", "x.py::b[2]"}
    names += ["z.py::test_actors_of_ray", "y.py::test_workers_of_ray"]  # the first one is slow
    rare = {
        "x.py::b[3]",
        "y.py::c[1]",
        "tests/browser/a.py::b",
        "native/test_arm.py::test_a_file_b",
    }
    names += [*sorted(rare)]
    items = [SimpleNamespace(nodeid=name) for name in names]
    left: list[SimpleNamespace] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    config = SimpleNamespace(stash=pytest.Stash(), hook=hook, getoption=lambda _: layer)
    layers.keep_layer(config, items)  # type: ignore[arg-type]
    kept = {item.nodeid for item in items}
    quick = {*names} - slow - rare - {"z.py::test_actors_of_ray"}
    assert kept == {"quick": quick, "slow": slow, "all": {*names}}[layer]
    assert {item.nodeid for item in left} == {*names} - kept


@pytest.mark.parametrize("layer", ["quick", "slow", "all"])
def test_the_slow_layer_imports_files_that_have_slow_tests(layer: str, monkeypatch) -> None:
    table = layers.Table({}, {"test_a.py::f": 1.0, "test_b.py::f": 1.0}, {"test_b.py::f"})
    monkeypatch.setattr(layers, "table", lambda: table)
    monkeypatch.setattr(layers, "_slow_files", layers._slow_files.__wrapped__)
    config = SimpleNamespace(getoption=lambda _: layer)
    names = ["test_a.py", "test_b.py", "test_c.py", "conftest.py", "tests"]
    ignored = [name for name in names if layers.ignores(config, ROOT / name)]  # type: ignore[arg-type]
    assert ignored == (["test_b.py", "test_c.py"] if layer == "slow" else [])


def test_rows_are_drawn_with_the_seed_of_the_run() -> None:
    """Modules read it when they are imported, some of them before pytest is configured."""
    assert os.environ["RELAXPY_FUZZ_SEED"] == seed.SEED


def test_all_rows_that_fail_are_named() -> None:
    def check(row: str) -> None:
        if row == "mended":
            with pytest.raises(ValueError, match="invalid literal"):
                int("7")
        assert row != "wrong"

    rows.check_all(["right"], check)
    with pytest.raises(BaseExceptionGroup, match="2 rows fail") as caught:
        rows.check_all(["wrong", "right", "mended"], check)
    notes = [error.__notes__[-1] for error in caught.value.exceptions]
    assert notes == ["of the row: wrong", "of the row: mended"]
