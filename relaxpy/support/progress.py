"""One line about long work, on a terminal or in a notebook, from half a second on, and its stages.

The line is gone when the work is done. Nothing is shown if standard error is not a terminal, in
tests of pytest, or if the environment variable RELAXPY_PROGRESS is 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from time import monotonic, perf_counter
from typing import Any, Protocol

from relaxpy.support.scopes import setting
from relaxpy.support.screen import ipython, takes_colour

SETTING = "RELAXPY_PROGRESS"
DELAY = 0.5
"""The seconds after which work is long."""
_INTERVAL = 0.2
"""The least seconds between two changes of the line in a notebook."""
_LONGEST = 60
"""The most characters of what the work does now."""

_current: ContextVar[Work | None] = ContextVar("work", default=None)
_one_line = Lock()
"""Whoever shows a line holds it: there is one."""


class _Line(Protocol):
    def show(self, text: str, done: int) -> None:
        """Change the line."""

    def close(self) -> None:
        """Take it away."""


class Work:
    """Work under way, `done` of `total` parts of it if that is known."""

    def __init__(
        self, title: str, total: int | None, shown: bool | None, delay: float | None = None
    ) -> None:
        self.title, self.total, self.done = title, total, 0
        self._shown_from = monotonic() + (DELAY if delay is None else delay)
        self._line: _Line | None = None
        self._is_shown = _is_wanted() if shown is None else shown

    def now(self, text: str) -> None:
        """Say what the work does now."""
        if not self._is_shown:
            return
        if self._line is None:
            if monotonic() < self._shown_from or not _one_line.acquire(blocking=False):
                return
            self._line = _notebook_line(self) if _is_notebook() else _terminal_line(self)
        self._line.show(text[:_LONGEST], self.done)

    def advance(self, text: str = "") -> None:
        """Say that one more part is done, and what comes now."""
        self.done += 1
        self.now(text)

    def end(self) -> None:
        """Take the line away."""
        line, self._line, self._is_shown = self._line, None, False
        if line is not None:
            try:
                line.close()
            finally:
                _one_line.release()


@contextmanager
def long_work(
    title: str, total: int | None = None, *, shown: bool | None = None, delay: float | None = None
) -> Iterator[Work]:
    """A context of work that may take long; inside other work, it is a part of that.

    `shown` decides whether there is a line, None where it can be seen, and `delay`
    after how many seconds, None for `DELAY`.
    """
    outer = _current.get()
    if outer is not None:
        part = Work(title, total, shown=False)
        outer.now(title)
        yield part
        return
    work = Work(title, total, shown, delay)
    try:
        with setting(_current, work):
            yield work
    finally:
        work.end()


def now(text: str) -> None:
    """Say what the work of this thread does now, if it is under way."""
    work = _current.get()
    if work is not None:
        work.now(text)


class _Stages:
    """The seconds of each stage of work, without those of stages inside of it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stage, self._since = "other", perf_counter()

    def enter(self, stage: str) -> str:
        """Begin a stage; return the one before it."""
        now, before = perf_counter(), self._stage
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._stage, self._since = stage, now
        return before


_stages: ContextVar[_Stages | None] = ContextVar("stages", default=None)


@contextmanager
def timed() -> Iterator[Mapping[str, float]]:
    """A context of work with stages, whose seconds are in the table when it ends.

    Inside of other such work, the stages count for the work inside alone.
    """
    stages = _Stages()
    try:
        with setting(_stages, stages):
            yield stages.seconds
    finally:
        stages.enter("other")


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A context of a stage of the work of this thread."""
    now(name)
    stages = _stages.get()
    if stages is None:
        yield
        return
    before = stages.enter(name)
    try:
        yield
    finally:
        stages.enter(before)


def _is_wanted() -> bool:
    if os.environ.get(SETTING) == "0" or "PYTEST_CURRENT_TEST" in os.environ:
        return False
    return _is_notebook() or takes_colour(sys.stderr)


def _is_notebook() -> bool:
    return hasattr(ipython(), "kernel")


def _terminal_line(work: Work) -> _Line:
    # Imported here, since rich takes long to load and is needed for long work only.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    parts = () if work.total is None else (BarColumn(bar_width=20), MofNCompleteColumn())
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        *parts,
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(work.title, total=work.total, now="")
    bar.start()

    class Line:
        def show(self, text: str, done: int) -> None:
            bar.update(task, completed=done, now=text)

        def close(self) -> None:
            bar.stop()

    return Line()


def _notebook_line(work: Work) -> _Line:
    from IPython import display as shown_by

    display: Any = shown_by.display

    def bundle(text: str) -> dict[str, str]:
        return {"text/plain": text}

    handle: Any = display(bundle(work.title), raw=True, display_id=True)
    began = shown = monotonic()

    class Line:
        def show(self, text: str, done: int) -> None:
            nonlocal shown
            if monotonic() - shown < _INTERVAL:
                return
            shown = monotonic()
            count = "" if work.total is None else f" {done}/{work.total}"
            handle.update(bundle(f"{work.title}{count} {shown - began:.0f} s {text}"), raw=True)

        def close(self) -> None:
            handle.update(bundle(""), raw=True)

    return Line()
