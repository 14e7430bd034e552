"""Instruments, which observe the calls of a running program, and profiles."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import field
from enum import IntEnum
from time import perf_counter
from typing import TypeAlias

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.exec.runtime.packed import call_users
from relaxpy.exec.runtime.values import Value
from relaxpy.screen import Table

Instrument: TypeAlias = Callable[..., object]
"""Called before and after each call with (function, its name, whether before, result, *args)."""


class VMInstrumentReturnKind(IntEnum):
    """The result of an instrument before a call: run the call, or skip it."""

    NO_OP = 0
    SKIP_RUN = 1


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A function that reports its calls to `instrument`, with the first `count` arguments.

    Exceptions of a user's function become PackedFuncErrors; those of the instrument do not.
    """

    function: Callable[..., Value]
    symbol: str
    instrument: Instrument
    count: int | None = None
    is_user_function: bool = False
    is_kernel: bool = False

    def __call__(self, *args: Value, **named: Value) -> Value:
        """The result, or None if the instrument skips the call."""
        _calls_users = True
        shown = args[: self.count]
        kind = self.instrument(self.function, self.symbol, True, None, *shown)
        if isinstance(kind, int) and kind == VMInstrumentReturnKind.SKIP_RUN:
            return None
        if self.is_user_function:
            result = call_users(self.function, self.symbol, args, named)
        else:
            result = self.function(*args, **named)
        # As in TVM, what a kernel without a result returns is shown as None.
        seen = None if self.is_kernel and result == () else result
        self.instrument(self.function, self.symbol, False, seen, *shown)
        return result


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The time of all calls of one function, without the calls inside them.

    Units: seconds.
    """

    name: str
    count: int
    duration: float


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """The time of one call of a function by callee, the longest first; `str` is a table.

    Units: seconds.
    """

    rows: tuple[ProfileRow, ...]
    duration: float

    def table(self) -> str:
        """The rows in columns, and their total."""
        return str(self._table)

    @property
    def _table(self) -> Table:
        total = ProfileRow("total", sum(row.count for row in self.rows), self.duration)
        return Table(
            _COLUMNS, tuple(map(self._cells, (*self.rows, total))), text_columns=1, totals=1
        )

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
    """An instrument that measures the time of each function outside the calls that it makes."""

    _own_times: dict[str, list[float]] = field(default_factory=dict)
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
        """Begin a call."""
        self._inside.append(0.0)
        self._open.append((perf_counter(), symbol))

    def end(self) -> float:
        """End the innermost call, and return its seconds."""
        start, symbol = self._open.pop()
        taken = perf_counter() - start
        self._own_times.setdefault(symbol, []).append(taken - self._inside.pop())
        if self._inside:
            self._inside[-1] += taken
        return taken

    def report(self, duration: float) -> ProfileReport:
        """The profile of a call that took `duration`."""
        rows = (ProfileRow(name, len(times), sum(times)) for name, times in self._own_times.items())
        return ProfileReport(tuple(sorted(rows, key=lambda row: -row.duration)), duration)
