"""What became of each kernel, as a table to read and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class ReportRow:
    """How one block of one kernel runs; `reason` says why, where it is a scalar loop.

    An operator that is lowered at run time stands there with the function it is called in.
    """

    kernel: str
    block: str
    method: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """One row for each block of each kernel; `str` lays them out as a table."""

    rows: tuple[ReportRow, ...]

    def __iter__(self) -> Iterator[ReportRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @override
    def __str__(self) -> str:
        table = [("kernel", "block", "runs as", "because")]
        table += [(row.kernel, row.block, row.method, row.reason) for row in self.rows]
        if not any(row.reason for row in self.rows):
            table = [cells[:3] for cells in table]  # type: ignore[misc]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
            for cells in table
        ]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
