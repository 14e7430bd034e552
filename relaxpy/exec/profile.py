"""Profiles: the time of a call by kernel, with the work of each and its share of the peaks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unknown_attribute
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.exec.native.peak import peak_bytes, peak_operations
from relaxpy.exec.paths import as_path
from relaxpy.exec.report import source_column
from relaxpy.exec.trace import TraceEvent, chrome_trace
from relaxpy.ir import hooks
from relaxpy.ir.relax.op.definition.registry import registered_ops
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import ShownAsTable, Table

#: The kind of the row of a Relax function of the module.
BETWEEN_KERNELS: Final = "between kernels"


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The time and work of all calls of a kernel, or of another function.

    The calls that it makes itself have their own rows: the row of a Relax function is the time
    between its kernels, with that of the checks, and of measuring.

    Fields:
        backend: "native" or "numpy"; empty for functions that are not kernels.
        bytes: the sizes of the arrays that are arguments of the calls.
        flops: the operations according to the kernel's source; None if they depend on data.
        share: the time that a machine at its measured peak, of memory or of arithmetic, needs,
            as a share of the time taken; None if that is not known. It is 1 also for a kernel that
            takes less, as its arguments are in a cache or it does not read all of them.
        kind: "kernel", "between kernels" for a Relax function, empty for others.
        source: where the program calls it, as file:line; the first of several lines.
    Units:
        seconds; bytes
    """

    name: str
    backend: str
    calls: int
    duration: float
    bytes: int = 0
    flops: int | None = None
    share: float | None = None
    kind: str = ""
    source: str = ""

    @property
    def count(self) -> int:
        """The number of calls, by TVM's name."""
        return self.calls


@dataclass(frozen=True, slots=True, repr=False)
class Profile(ShownAsTable):
    """One call, the fastest of several; the row with the longest time first. `str` is a table.

    `events` are the single calls of functions and kernels, up to a bound, and the work of workers
    on their loops; `dropped_events` is the number of calls beyond.

    Units:
        seconds
    """

    rows: tuple[ProfileRow, ...]
    duration: float
    events: tuple[TraceEvent, ...] = ()
    dropped_events: int = 0

    def __iter__(self) -> Iterator[ProfileRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    if not TYPE_CHECKING:  # it would make a type checker accept every name

        @user_facing
        def __getattr__(self, name):
            """Errors: UnknownAttributeError (also AttributeError), with a replacement."""
            raise unknown_attribute(self, name, "profile", ())

    def table(self) -> str:
        """The rows in columns, and their total."""
        return str(self)

    def csv(self) -> str:
        """The rows as comma-separated values, under a header."""
        out = io.StringIO()
        records = [_record(row, self._percent(row)) for row in self.rows]
        writer = csv.DictWriter(out, _record(_EMPTY, 0.0), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return out.getvalue()

    def json(self) -> str:
        """The rows as a JSON list of objects."""
        return json.dumps([_record(row, self._percent(row)) for row in self.rows])

    #: Aliases by the names of other libraries.
    to_json, to_csv = json, csv

    @user_facing
    def to_pandas(self) -> Any:
        """The rows as a DataFrame of pandas.

        Errors:
            MisuseError: pandas is not installed.
        """
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise MisuseError("pandas is not installed", hint="pip install pandas") from None
        return pandas.DataFrame([_record(row, self._percent(row)) for row in self.rows])

    @user_facing
    def to_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Write the calls as a time line, which chrome://tracing and ui.perfetto.dev show.

        Errors:
            MisuseError (also TypeError, ValueError): `path` is not a path, or this profile is a sum
                or was read, so that it has no single calls.
            OSError: the file cannot be written.
        """
        if not self.events:
            raise MisuseError(
                "this profile has no single calls",
                hint="write the trace of what ex.profile returns",
            )
        facts = {
            row.name: {"kind": row.kind, "back end": row.backend, "source": row.source}
            for row in self.rows
        }
        text = chrome_trace(self.events, facts, self.dropped_events)
        as_path(path).write_text(text, encoding="utf-8")

    @user_facing
    def plot(self, kind: str = "bars") -> Any:
        """A picture, which notebooks show and `save` writes: "bars" of time, or a "roofline".

        The roofline has the kernels' operations per second over operations per byte, below the
        measured peaks of float32 and of copying as much memory as the largest call uses.

        Errors:
            MisuseError (also ValueError): the kind is another one, or there is no native code here,
                which measures the peaks.
        """
        peaks = None
        if kind == "roofline" and not obstacle():
            largest = max((row.bytes // row.calls for row in self.rows if row.calls), default=0)
            peaks = peak_operations("float"), peak_bytes(max(largest, 1))
        return hooks.call("profile_chart", self.rows, self.duration, kind, peaks)

    def by_line(self) -> Profile:
        """The profile with one row for each line of the program that calls kernels.

        Rows without a line keep their names.
        """
        sums: dict[str, ProfileRow] = {}
        for row in self.rows:
            name = row.source or row.name
            sums[name] = _sum(sums[name], row) if name in sums else replace(row, name=name)
        return self._summed(sums.values())

    def _summed(self, sums: Iterable[ProfileRow]) -> Profile:
        return Profile(tuple(sorted(sums, key=lambda row: -row.duration)), self.duration)

    @user_facing
    def compare(self, other: Profile) -> ProfileComparison:
        """The times of this profile beside those of another, by the names of rows.

        Errors:
            MisuseError (also TypeError): `other` is not a profile.
        """
        check_type(other, Profile, "expected a profile")
        return ProfileComparison(self, other)

    def by_operator(self) -> Profile:
        """The profile with one row for all kernels of the same operators.

        Their names differ only in the numbers that make names unique.
        """
        sums: dict[tuple[str, str, str], ProfileRow] = {}
        for row in self.rows:
            name = _operators(row.name) if row.kind == "kernel" else row.name
            key = name, row.backend, row.kind
            sums[key] = _sum(sums[key], row) if key in sums else replace(row, name=name)
        return self._summed(sums.values())

    def _percent(self, row: ProfileRow) -> float:
        return 100 * row.duration / self.duration if self.duration else 0.0

    @property
    @override
    def _table(self) -> Table:
        total = ProfileRow("total", "", sum(row.calls for row in self.rows), self.duration)
        cells = [self._cells(row) for row in (*self.rows, total)]
        header: tuple[str, ...] = _HEADER
        if any(row.source for row in self.rows):
            title, sources = source_column([row.source for row in (*self.rows, total)])
            header = (*header, title)
            cells = [(*row, source) for row, source in zip(cells, sources, strict=True)]
        return Table(header, tuple(cells), text_columns=2, totals=1)

    def _cells(self, row: ProfileRow) -> tuple[str, ...]:
        rate = 1e-9 / row.duration if row.duration else 0.0
        return (
            f"{row.name} ({BETWEEN_KERNELS})" if row.kind == BETWEEN_KERNELS else row.name,
            row.backend,
            str(row.calls),
            f"{row.duration * 1e6:.1f}",
            f"{self._percent(row):.1f}",
            f"{row.bytes / 1e6:.3f}" if row.bytes else "",
            f"{row.flops / 1e6:.3f}" if row.flops else "",
            f"{row.bytes * rate:.1f}" if row.bytes else "",
            f"{row.flops * rate:.1f}" if row.flops else "",
            "" if row.share is None else f"{100 * row.share:.0f} %",
        )


@dataclass(frozen=True, slots=True, repr=False)
class ProfileComparison(ShownAsTable):
    """Two profiles side by side; the row with the longest time in either one first.

    The ratio is the time of the first divided by that of the second: below 1, the first is faster.

    Units:
        microseconds in the table
    """

    profile: Profile
    other: Profile

    @property
    def ratio(self) -> float:
        """The time of the whole call divided by that of the other one."""
        return self.profile.duration / self.other.duration if self.other.duration else float("inf")

    def rows(self) -> list[tuple[str, float | None, float | None]]:
        """The names of rows, with their seconds in both profiles; None where it has no such row."""
        one, other = ({row.name: row.duration for row in p} for p in (self.profile, self.other))
        names = sorted({**one, **other}, key=lambda n: -max(one.get(n, 0.0), other.get(n, 0.0)))
        return [(name, one.get(name), other.get(name)) for name in names]

    @property
    @override
    def _table(self) -> Table:
        total = ("total", self.profile.duration, self.other.duration)
        cells = tuple(
            (name, _microseconds(one), _microseconds(other), _ratio(one, other))
            for name, one, other in (*self.rows(), total)
        )
        return Table(("kernel", "us", "other us", "ratio"), cells, text_columns=1, totals=1)


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.1f}"


def _ratio(one: float | None, other: float | None) -> str:
    return f"{one / other:.2f}" if one is not None and other else ""


_HEADER: Final = (
    *("kernel", "back end", "calls", "us", "%"),
    *("MB", "Mflop", "GB/s", "Gflop/s", "peak"),
)
_EMPTY: Final = ProfileRow("", "", 0, 0.0)


def _numbered() -> frozenset[str]:
    """The operators whose own names end with a number, such as log2."""
    leaves = (name.rpartition(".")[2] for name in registered_ops())
    return frozenset(leaf for leaf in leaves if leaf[-1].isdigit())


def _operators(kernel: str) -> str:
    """The name of a kernel without the numbers that make it unique."""
    return "_".join(map(_operator, kernel.split("_")))


def _operator(word: str) -> str:
    known = [name for name in _numbered() if word.startswith(name)]
    return max(known, key=len) if known else word.rstrip("0123456789")


def _record(row: ProfileRow, percent: float) -> dict[str, Any]:
    """A row by the names of TVM's columns, and further ones."""
    return {
        "Name": row.name,
        "Duration (us)": row.duration * 1e6,
        "Percent": percent,
        "Count": row.calls,
        "Kind": row.kind,
        "Back end": row.backend,
        "Bytes": row.bytes,
        "Operations": row.flops,
        "Peak": row.share,
        "Source": row.source,
    }


def _sum(one: ProfileRow, other: ProfileRow) -> ProfileRow:
    """The row of two sets of calls."""
    duration = one.duration + other.duration
    shares = [row.share * row.duration for row in (one, other) if row.share is not None]
    flops = None if one.flops is None or other.flops is None else one.flops + other.flops
    return replace(
        one,
        calls=one.calls + other.calls,
        duration=duration,
        bytes=one.bytes + other.bytes,
        flops=flops,
        share=sum(shares) / duration if len(shares) == 2 and duration else None,
        source=one.source if one.source == other.source else "",
    )
