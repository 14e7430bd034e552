"""The mutation tool: each change of a snippet, and what is not mutated."""

import ast
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest


def _tool() -> ModuleType:
    path = Path(__file__).parents[1] / "tools" / "mutants.py"
    spec = importlib.util.spec_from_file_location("mutants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = _tool()


@pytest.mark.parametrize("area", tool.AREAS)
def test_the_files_of_an_area_are_there(area: str) -> None:
    modules, tests = tool.AREAS[area]
    assert [path for path in (*modules, *tests) if not (tool.ROOT / path).exists()] == []


def mutants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> dict[str, str]:
    """The text of each mutant of a module, by what is changed."""
    (tmp_path / "module.py").write_text(source)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    return {
        found.change: ast.unparse(tool.mutated(ast.parse(source), found.position, found.variant))
        for found in tool.mutants_of("module.py")
    }


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"Lt -> LtE": "x = a <= b"}),
        ("x = a is b", {"Is -> IsNot": "x = a is not b"}),
        ("x = a in b", {"In -> NotIn": "x = a not in b"}),
        (
            "x = a and b",
            {"And -> Or": "x = a or b", "without `a`": "x = b", "without `b`": "x = a"},
        ),
        ("x = not a", {"not x -> x": "x = a"}),
        ("x = a + b", {"Add -> Sub": "x = a - b"}),
        ("x = 3", {"3 -> 4": "x = 4"}),
        ("x = True", {"True -> False": "x = False"}),
        ("x = 'a'", {"'a' -> 'a_'": "x = 'a_'"}),
        (
            "x = 1 + 1",
            {"Add -> Sub": "x = 1 - 1", "1 -> 2": "x = 2 + 1", "1 -> 2 (2)": "x = 1 + 2"},
        ),
        ("x = b if a else c", {"if a -> if not": "x = b if not a else c"}),
        ("while a:\n    b", {"if a -> if not": "while not a:\n    b"}),
        ("x = [a for a in b if c]", {"comprehension without `if c`": "x = [a for a in b]"}),
        (
            "match a:\n    case b.c:\n        pass",
            {"case b.c never taken": "match a:\n    case b.c if False:\n        pass"},
        ),
        (
            "match a:\n    case b if c:\n        pass",
            {
                "case without `if c`": "match a:\n    case b if True:\n        pass",
                "case b if ... never taken": "match a:\n    case b if False:\n        pass",
            },
        ),
        ("x = any(a)", {"any -> all": "x = all(a)"}),
        ("x = f(a=b)", {"f(...) without a=": "x = f()"}),
        ("for a in b:\n    break", {"break -> continue": "for a in b:\n    continue"}),
        ("for a in b:\n    continue", {"continue -> break": "for a in b:\n    break"}),
        ("raise E", {"raise -> pass": "pass"}),
        ("x += a", {"x op= y -> x = y": "x = a"}),
        ("f(a)", {"without `f(a)`": "pass"}),
        ("def f():\n    yield a", {"without `(yield a)`": "def f():\n    yield from ()"}),
    ],
)
def test_changes(tmp_path, monkeypatch, source, expected) -> None:
    assert mutants(tmp_path, monkeypatch, source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: a < b = c) -> a < b:\n    'docstring'",
        "x: a < b = c",
        "X: TypeAlias = Literal['a']",
        "import a",
        "assert a < b",
        "raise AssertionError(a < b)",
        "__all__ = ['a']",
        "x = MisuseError('a')",
        "x = cast('a', b)",
        "x = zip(a, b, strict=True)",
    ],
)
def test_annotations_messages_and_claims_stay(tmp_path, monkeypatch, source) -> None:
    assert mutants(tmp_path, monkeypatch, source) == {}


def test_the_line_and_the_statement_of_a_mutant(tmp_path, monkeypatch) -> None:
    source = "def f():\n    return g(\n        a,\n        b < c,\n    )\n"
    (tmp_path / "module.py").write_text(source)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    (found,) = tool.mutants_of("module.py")
    assert (found.line, found.statement) == (4, 2)
    assert tool.identity(found) == "module.py: Lt -> LtE | b < c,"
    recorded = {
        "lines": {"module.py": {"1": ["t::import"], "2": ["t::slow", "t::fast"]}},
        "seconds": {"t::slow": 2.0, "t::fast": 1.0, "t::import": 0.5},
    }
    assert tool.tests_for(found, recorded, {}) == ["t::fast", "t::slow"]
    assert tool.tests_for(found, recorded, {"t::slow": 1}) == ["t::slow", "t::fast"]


def verdict(finder: object, tests: list[str]) -> str:
    trial = tool.start(None, finder, tests)
    while (found := trial.verdict()) is None:
        time.sleep(0.02)
    return str(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("VALUE = 1", "survived"),
        ("VALUE = 3", "tests/test_it.py::test_value[1::a b]"),
        ("VALUE = 1 / 0", "no import"),
        ("", "tests/test_it.py"),
        ("import os; os._exit(3)", "a crash"),
        ("VALUE = 2  # the test has another name", "survived"),
    ],
)
def test_verdicts(tmp_path, monkeypatch, text, expected) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "mutated_here.py").write_text("VALUE = 0")
    (tmp_path / "tests" / "test_it.py").write_text(
        "import pytest\n"
        "from mutated_here import VALUE\n"
        "@pytest.mark.parametrize('n', [1], ids=[f'{VALUE % 2}::a b'])\n"
        "def test_value(n): assert VALUE == n\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    finder = tool.Finder("mutated_here.py", compile(text, "mutated_here.py", "exec"))
    assert verdict(finder, ["tests/test_it.py::test_value[1::a b]"]) == expected


def test_a_run_that_says_nothing_of_the_mutant_is_an_error(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="no test failed"):
        verdict(None, ["tests/test_nowhere.py::test_nothing"])
