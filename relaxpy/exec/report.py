"""What became of each kernel, as a table to read and as data."""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.screen import Table


@dataclass(frozen=True, slots=True)
class ReportRow:
    """The method by which one block of a kernel runs, with the reason if it is a scalar loop.

    For an operator that is lowered at run time, `block` is the function that calls it.
    """

    kernel: str
    block: str
    method: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """One row for each block of each kernel; `str` is a table.

    `not_native` is the reason why the default target of this machine is not "native", and `remark`
    why machine code of a file is not used.
    """

    rows: tuple[ReportRow, ...]
    not_native: str = ""
    remark: str = ""

    def __iter__(self) -> Iterator[ReportRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def _table(self) -> Table:
        header = ("kernel", "block", "runs as", "because")
        rows = tuple((row.kernel, row.block, row.method, row.reason) for row in self.rows)
        count = 4 if any(row.reason for row in self.rows) else 3
        return Table(header[:count], tuple(row[:count] for row in rows), text_columns=count)

    @override
    def __str__(self) -> str:
        lines = [str(self._table), *self._remarks]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        remarks = Table(("remarks",), tuple((text,) for text in self._remarks), text_columns=1)
        return self._table.html() + (remarks.html() if self._remarks else "")

    @property
    def _remarks(self) -> tuple[str, ...]:
        reason = f"not native: {self.not_native}" if self.not_native else ""
        return tuple(filter(None, (reason, self.remark)))
