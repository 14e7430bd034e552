"""What pytest shows of an error in a program: the lines that led there, the message, the rules."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import pytest

from relaxpy.errors import RelaxpyError

#: The attribute of a report that has the IDs of the rules; pytest-xdist sends it along.
_RULES: Final = "relaxpy_rules"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report an error of ours without our frames, and with a line of each, as `--tb=short` does.

    The message has the place in the program and its line; whole functions would push it away.
    `--tb` with another word, and `RELAXPY_FULL_TRACEBACK`, mean what they say.
    """
    error = None if call.excinfo is None else call.excinfo.value
    if not isinstance(error, RelaxpyError):
        return (yield)
    error.leave_insides()
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
    """Write one line, how the rules that failed tests broke can be looked up."""
    failed = (*terminalreporter.getreports("failed"), *terminalreporter.getreports("error"))
    rules = dict.fromkeys(rule for report in failed for rule in getattr(report, _RULES, ()))
    if rules:
        first = next(iter(rules))
        terminalreporter.write_line(f'about {", ".join(rules)}: relaxpy.explain("{first}")')
