"""What pytest shows of an error in a program: the lines that led there, and the message."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from relaxpy.errors import RelaxpyError


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
    if option.tbstyle != "auto":
        return (yield)
    option.tbstyle = "short"
    try:
        return (yield)
    finally:
        option.tbstyle = "auto"
