"""The pytest plugin: reports of errors in programs, and of assertions that compare programs."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from typing_extensions import override

from relaxpy.errors import RelaxpyError, add_quotation_hint

#: The attribute of a report with the IDs of the rules; pytest-xdist transfers it.
_RULES: Final = "relaxpy_rules"
#: The first words of the lines of a unified diff that name its two sides.
_FILES: Final = ("---", "+++")
#: The parameter of tests that run on each target without an argument for it.
_DEFAULT_TARGET: Final = "_relaxpy_default_target"
_VARIABLE: Final = "RELAXPY_TARGET"
#: The attribute of a report with the golden files of the test, and hashes of what it has written;
#: pytest-xdist transfers it.
_GOLDEN: Final = "relaxpy_golden"
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden files."""
    group = parser.getgroup("relaxpy")
    text = "write the files that the fixture `golden` compares, instead of comparing"
    group.addoption("--update-golden", action="store_true", help=text)


class _WithoutRewriting(MetaPathFinder):
    """Finds the modules of relaxpy as Python does, before pytest rewrites their assertions.

    It rewrites all modules of a package with a plugin, which has to compile them again each time
    that no bytecode is written.
    """

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_ours = fullname.startswith("relaxpy.")
        return PathFinder.find_spec(fullname, path, target) if is_ours else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Import relaxpy as a program does."""
    finder = _WithoutRewriting()
    sys.meta_path.insert(0, finder)
    early_config.add_cleanup(lambda: sys.meta_path.remove(finder))


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of tests that run on each target, and the look at golden files."""
    config.pluginmanager.register(_GoldenFiles())
    config.addinivalue_line(
        "markers",
        "relaxpy_targets(*names): run the test on each target, which the argument `target` names; "
        "without the argument, it is the default target",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare the text of a program with a file beside the test: `golden(program, name=None)`.

    The file is golden/<file of the test>/<test>.txt, or the `name` instead of that of the test; of
    arrays, whose tolerances `rtol` and `atol` are options, the name of the file ends in .npz.
    """
    from relaxpy.plugins.testing.golden import assert_golden, is_array

    written: set[str] = set()

    def compare(value: object, name: str | None = None, **tolerances: float) -> None:
        __tracebackhide__ = True
        stem = _NOT_IN_NAMES.sub("-", request.node.name if name is None else name)[:100]
        ending = "npz" if is_array(value) else "txt"
        path = request.path.parent / "golden" / request.path.stem / f"{stem}.{ending}"
        frame = sys._getframe(1)
        line = f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
        if stem in written:
            pytest.fail(
                f"{line}: golden compares two texts with {path}; golden(program, name=...) gives "
                "each a file",
                pytrace=False,
            )
        written.add(stem)
        update = bool(request.config.getoption("--update-golden")) or None
        hint = f"to accept it: pytest --update-golden {shlex.quote(request.node.nodeid)}"
        problem = None
        try:
            assert_golden(value, path, update=update, hint=hint, **tolerances)
        except AssertionError as error:
            problem = str(error)
        if problem is not None:  # outside of the handler, so that one failure is shown
            pytest.fail(f"{line}: {problem}", pytrace=False)

    return compare


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Set the default target while a test runs that has the marker, and no argument `target`."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    name, before = params.get(_DEFAULT_TARGET), os.environ.get(_VARIABLE)
    if name is None:
        return (yield)
    os.environ[_VARIABLE] = name
    try:
        return (yield)
    finally:
        del os.environ[_VARIABLE]
        os.environ |= {} if before is None else {_VARIABLE: before}


def _each_target(metafunc: pytest.Metafunc) -> None:
    """Run a test with the marker on each target."""
    marker = metafunc.definition.get_closest_marker("relaxpy_targets")
    if marker is None:
        return
    from relaxpy.ir.core.target import target_facts
    from relaxpy.plugins.testing.targets import TARGETS, available_targets

    here = available_targets()
    takes_name = "target" in metafunc.fixturenames
    names = marker.args or [
        name for name in here if takes_name or not target_facts(name).runs_as_written
    ]
    rows = []
    for name in names:
        if name not in TARGETS:
            pytest.fail(
                f"{metafunc.definition.nodeid}: the marker relaxpy_targets takes names of "
                f"{', '.join(TARGETS)}, found {name!r:.60}",
                pytrace=False,
            )
        skip = pytest.mark.skipif(name not in here, reason=f"{name} is not available")
        rows.append(pytest.param(name, marks=skip))
    if takes_name:
        metafunc.parametrize("target", rows)
    else:
        metafunc.fixturenames.append(_DEFAULT_TARGET)
        metafunc.parametrize(_DEFAULT_TARGET, rows)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pass the rows of `relaxpy.testing.parameters` to its fixtures, and targets to their tests."""
    _each_target(metafunc)
    groups: dict[Any, list[tuple[str, int]]] = {}
    for name, definitions in metafunc._arg2fixturedefs.items():
        group, column = getattr(definitions[-1].func, "relaxpy_column", (None, 0))
        if group is not None:
            groups.setdefault(group, []).append((name, column))
    for group, columns in groups.items():
        rows = [[row[column] for _, column in columns] for row in group.rows]
        names = [name for name, _ in columns]
        metafunc.parametrize(names, rows, ids=group.ids)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a RelaxpyError without relaxpy's frames and with one line per frame (`--tb=short`).

    The message shows the position in the program and the source line. Other values of `--tb` and
    `RELAXPY_FULL_TRACEBACK` take precedence.
    """
    error = None if call.excinfo is None else call.excinfo.value
    if isinstance(error, NameError):
        add_quotation_hint(error)
    if not isinstance(error, RelaxpyError):
        report = yield
        _shorten_arguments(report, item)
        return report
    error.hide_internal_frames()
    call.excinfo = pytest.ExceptionInfo.from_exception(error)
    option = item.config.option
    chosen = option.tbstyle
    option.tbstyle = "short" if chosen == "auto" else chosen
    try:
        report = yield
    finally:
        option.tbstyle = chosen
    setattr(report, _RULES, [d.rule for d in error.diagnostics if d.rule])
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Report an error of a module that is collected as that of a test."""
    report = yield
    info: pytest.ExceptionInfo[BaseException] | None
    info = getattr(getattr(report, "call", None), "excinfo", None)
    if info is not None and isinstance(info.value, NameError):
        add_quotation_hint(info.value)
        report.longrepr = collector.repr_failure(info)
    elif info is not None and isinstance(info.value, RelaxpyError):
        setattr(report, _RULES, [d.rule for d in info.value.diagnostics if d.rule])
    return report


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain a failed `assert left == right` of programs by their first difference and a diff."""
    if op != "==" or not (_is_program(left) and _is_program(right)):
        return None
    # Only after a failure: pytest starts without the rest of relaxpy.
    from relaxpy.ir import hooks
    from relaxpy.ir.equality.structural import first_mismatch

    mismatch = first_mismatch(left, right)
    if mismatch is None:
        return [
            f"{_summary(left)} and {_summary(right)} are structurally equal, but two objects",
            "write: relaxpy.ir.assert_structural_equal(left, right)",
        ]
    diff: str = hooks.call("program_diff", left, right, ("left", "right"))
    # Without `-vv` pytest shows eight lines: those of the diff that differ tell the most.
    changes = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in _FILES]
    return [*str(mismatch).splitlines(), *changes]


def _is_program(value: object) -> bool:
    """True if the value is a module or a function of relaxpy."""
    return any(
        base.__module__.startswith("relaxpy.ir.") and base.__name__ in ("IRModule", "BaseFunc")
        for base in type(value).__mro__
    )


def _summary(program: Any) -> str:
    """The kind of a program and, of a module, the names of its functions."""
    names = ", ".join(getattr(program, "functions_by_name", ()))
    return f"<{type(program).__name__}{names and f' of {names}'}>"


def _shorten_arguments(report: pytest.TestReport, item: pytest.Item) -> None:
    """Show arguments of the test that are programs in a line, not as the beginning of a text."""
    values = {k: v for k, v in getattr(item, "funcargs", {}).items() if _is_program(v)}
    traceback = getattr(report.longrepr, "reprtraceback", None)
    for entry in getattr(traceback, "reprentries", ()) if values else ():
        shown = getattr(entry, "reprfuncargs", None)
        if shown is not None:
            shown.args = [(k, _summary(values[k]) if k in values else v) for k, v in shown.args]


class _GoldenFiles:
    """Notes the golden files of each test, and fails tests that write different texts to one."""

    def __init__(self) -> None:
        self.written: dict[str, str] = {}
        """The hash of each file that this run has written, in all processes of pytest-xdist."""

    @pytest.hookimpl(wrapper=True)  # before pytest counts failures, and pytest-xdist sends reports
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        compared = getattr(sys.modules.get("relaxpy.plugins.testing.golden"), "COMPARED", None)
        if compared and not hasattr(report, _GOLDEN):
            setattr(report, _GOLDEN, {str(path): text for path, text in sorted(compared.items())})
            compared.clear()
        for path, text in getattr(report, _GOLDEN, {}).items():
            if text and self.written.setdefault(path, text) != text and report.passed:
                report.outcome = "failed"
                report.longrepr = (
                    f"another test has written another text to {path}; give each a name of its own"
                )
        yield


def _stale_files(terminalreporter: pytest.TerminalReporter) -> list[str]:
    """The golden files that no test has compared, if all tests of their files have run."""
    config = terminalreporter.config
    is_part = any("::" in arg for arg in config.args) or config.getoption("maxfail")
    if is_part or any(config.getoption(n, None) for n in ("keyword", "markexpr", "lf", "stepwise")):
        return []
    compared: set[Path] = set()
    for reports in terminalreporter.stats.values():
        for report in reports:
            compared.update(map(Path, getattr(report, _GOLDEN, ())))
    unfinished = {
        Path(report.nodeid.partition("::")[0]).stem
        for outcome in ("failed", "error", "skipped", "deselected")
        for report in terminalreporter.stats.get(outcome, ())
    }
    folders = {path.parent for path in compared if path.parent.parent.name == "golden"}
    return sorted(
        os.path.relpath(file)
        for folder in folders
        if folder.name not in unfinished
        for file in folder.iterdir()
        if file.suffix in (".txt", ".npz") and file not in compared
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the golden files that nothing compares, and the rules that failed tests broke."""
    for file in _stale_files(terminalreporter):
        terminalreporter.write_line(f"no test compares the golden file {file}: remove it")
    failed = (*terminalreporter.getreports("failed"), *terminalreporter.getreports("error"))
    rules = dict.fromkeys(rule for report in failed for rule in getattr(report, _RULES, ()))
    if rules:
        first = next(iter(rules))
        terminalreporter.write_line(f'about {", ".join(rules)}: relaxpy.explain("{first}")')
