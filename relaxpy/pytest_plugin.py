"""The pytest plugin: reports of errors in programs with short tracebacks and the rules."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import pytest

from relaxpy.errors import RelaxpyError

#: The attribute of a report with the IDs of the rules; pytest-xdist transfers it.
_RULES: Final = "relaxpy_rules"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pass the rows of `relaxpy.testing.parameters` to the fixtures of its columns."""
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
    if not isinstance(error, RelaxpyError):
        return (yield)
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line with the rules that failed tests broke and the call that explains them."""
    failed = (*terminalreporter.getreports("failed"), *terminalreporter.getreports("error"))
    rules = dict.fromkeys(rule for report in failed for rule in getattr(report, _RULES, ()))
    if rules:
        first = next(iter(rules))
        terminalreporter.write_line(f'about {", ".join(rules)}: relaxpy.explain("{first}")')
