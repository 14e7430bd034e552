"""The calls that a running program makes, for who watches them: instruments and profiles."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from time import perf_counter
from typing import TypeAlias

from typing_extensions import override

from relaxpy.exec.runtime.packed import call_users
from relaxpy.exec.runtime.values import Value
from relaxpy.screen import Table

Instrument: TypeAlias = Callable[..., object]
"""Called before and after a call, with (function, its name, whether before, result, *arguments)."""


class VMInstrumentReturnKind(IntEnum):
    """What an instrument says before a call: let it run, or go on without it."""

    NO_OP = 0
    SKIP_RUN = 1


@dataclass(frozen=True, slots=True)
class Watched:
    """A function whose calls `instrument` sees, with the first `count` of their arguments.

    What the function raises is a PackedFuncError where it `is_users`; what the instrument raises
    passes as it is.
    """

    function: Callable[..., Value]
    symbol: str
    instrument: Instrument
    count: int | None = None
    is_users: bool = False

    def __call__(self, *args: Value, **named: Value) -> Value:
        """The result, or None where the instrument let the call be skipped."""
        _calls_users = True
        shown = args[: self.count]
        kind = self.instrument(self.function, self.symbol, True, None, *shown)
        if isinstance(kind, int) and kind == VMInstrumentReturnKind.SKIP_RUN:
            return None
        if self.is_users:
            result = call_users(self.function, self.symbol, args, named)
        else:
            result = self.function(*args, **named)
        self.instrument(self.function, self.symbol, False, result, *shown)
        return result


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """What all calls of one function took, calls inside them apart.

    Units: seconds.
    """

    name: str
    count: int
    duration: float


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """Where the time of one call of a function went, the longest first; `str` lays out a table.

    Units: seconds.
    """

    rows: tuple[ProfileRow, ...]
    duration: float

    def table(self) -> str:
        """The rows in columns, and their sum."""
        return str(self._table)

    @property
    def _table(self) -> Table:
        total = ProfileRow("total", sum(row.count for row in self.rows), self.duration)
        return Table(_COLUMNS, tuple(map(self._cells, (*self.rows, total))), words=1, totals=1)

    def _repr_html_(self) -> str:
        return self._table.html()

    def csv(self) -> str:
        """The rows as comma-separated values, under a header."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([_COLUMNS, *map(self._cells, self.rows)])
        return out.getvalue()

    def json(self) -> str:
        """The rows as a JSON list of objects."""
        return json.dumps([dict(zip(_COLUMNS, self._cells(row), strict=True)) for row in self.rows])

    def _cells(self, row: ProfileRow) -> tuple[str, ...]:
        share = 100 * row.duration / self.duration if self.duration else 0.0
        return row.name, f"{row.duration * 1e6:.2f}", f"{share:.2f}", str(row.count)

    @override
    def __str__(self) -> str:
        return self.table()


_COLUMNS = ("Name", "Duration (us)", "Percent", "Count")


@dataclass(slots=True)
class Profiler:
    """An instrument that measures; what runs between the calls is that of the function itself."""

    _own: dict[str, list[float]] = field(default_factory=dict)
    _open: list[tuple[float, str]] = field(default_factory=list)
    _inside: list[float] = field(default_factory=list)

    def __call__(
        self, function: object, symbol: str, before: bool, result: Value, *args: Value
    ) -> VMInstrumentReturnKind:
        """Begin or end the measurement of one call."""
        if before:
            self.begin(symbol)
        else:
            self.end()
        return VMInstrumentReturnKind.NO_OP

    def begin(self, symbol: str) -> None:
        """A call begins."""
        self._inside.append(0.0)
        self._open.append((perf_counter(), symbol))

    def end(self) -> float:
        """The call that began last ends; the seconds it took."""
        start, symbol = self._open.pop()
        taken = perf_counter() - start
        self._own.setdefault(symbol, []).append(taken - self._inside.pop())
        if self._inside:
            self._inside[-1] += taken
        return taken

    def report(self, duration: float) -> ProfileReport:
        """What was measured in a call that took `duration`."""
        rows = (ProfileRow(name, len(own), sum(own)) for name, own in self._own.items())
        return ProfileReport(tuple(sorted(rows, key=lambda row: -row.duration)), duration)
