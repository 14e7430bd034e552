"""The compilation report: how each kernel runs, as a table and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os.path import basename, exists
from typing import Final

from typing_extensions import override

from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import Call, ExternFunc, GlobalVar
from relaxpy.support.dataclass import dataclass
from relaxpy.support.screen import ShownAsTable, Table


@dataclass(frozen=True, slots=True)
class ReportRow:
    """The method by which one block of a kernel runs, with the reason if it is not a fast one.

    For an operator that is lowered at run time, and for a packed function, `block` is the function
    that calls it. The back end is "native", "numpy" or "python". `threads` is their maximum number,
    or "BLAS" where BLAS decides. `source` is where the program calls the kernel, as file:line.
    `varies` is the reason why the bits of results of native code depend on the CPU, if they do.
    """

    kernel: str
    block: str
    method: str
    reason: str = ""
    backend: str = ""
    threads: str = ""
    source: str = ""
    varies: str = ""

    @property
    def depends_on(self) -> str:
        """The reason why the bits of results may depend on the CPU; empty if they do not."""
        others = {"native": self.varies, "numpy": "NumPy", "python": "Python"}
        return others.get(self.backend, self.method)


@dataclass(frozen=True, slots=True, repr=False)
class ExecutionReport(ShownAsTable):
    """One row for each block of each kernel; `str` is a table.

    `not_native` is the reason why the default target of this machine is not "native", and `remark`
    why machine code of a file is not used, or is not that of the whole program. A report that
    `is_native` names the kernels whose bits may depend on the CPU.
    """

    rows: tuple[ReportRow, ...]
    not_native: str = ""
    remark: str = ""
    is_native: bool = False

    def __iter__(self) -> Iterator[ReportRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    @override
    def _table(self) -> Table:
        columns = [
            ("kernel", [row.kernel for row in self.rows]),
            ("block", [row.block for row in self.rows]),
            ("back end", [row.backend for row in self.rows]),
            ("runs as", [row.method.removeprefix("native, ") for row in self.rows]),
            ("threads", [row.threads for row in self.rows]),
            ("because", [row.reason for row in self.rows]),
            source_column([row.source for row in self.rows]),
        ]
        shown = [(head, cells) for head, cells in columns if head in _ALWAYS or any(cells)]
        header = tuple(head for head, _ in shown)
        rows = tuple(zip(*(cells for _, cells in shown), strict=True))
        return Table(header, rows, text_columns=len(shown))

    @override
    def __str__(self) -> str:
        lines = [str(self._table), *self._remarks]
        return "\n".join(lines)

    @override
    def _repr_html_(self) -> str:
        remarks = Table(("remarks",), tuple((text,) for text in self._remarks), text_columns=1)
        return self._table.html() + (remarks.html() if self._remarks else "")

    @property
    def _remarks(self) -> tuple[str, ...]:
        reason = f"not native: {self.not_native}" if self.not_native else ""
        return tuple(filter(None, (reason, self.remark, self._varying if self.is_native else "")))

    @property
    def varying(self) -> Mapping[str, str]:
        """The kernels whose results may have other bits on another CPU, each with the reason.

        The bits of all others do not depend on the CPU, or on the number of threads.
        """
        reasons = {row.kernel: row.depends_on for row in reversed(self.rows) if row.depends_on}
        return {row.kernel: reasons[row.kernel] for row in self.rows if row.kernel in reasons}

    @property
    def _varying(self) -> str:
        names = ", ".join(f"{kernel} ({reason})" for kernel, reason in self.varying.items())
        return f"bits may depend on the CPU: {names}" if names else ""

    def located(self, sources: Mapping[str, str]) -> ExecutionReport:
        """The report with the sources of kernels."""
        rows = (replace(row, source=sources.get(row.kernel, row.source)) for row in self.rows)
        return replace(self, rows=tuple(rows))


@dataclass(frozen=True, slots=True, repr=False)
class CompileReport(ShownAsTable):
    """The time of a compilation by stage, the longest first; `str` is a table.

    LLVM works beside other stages: its stage is the time that they wait for it. A program that is
    found on disk or in memory has few stages. `remark` says why it cannot be kept on disk.

    Units: seconds.
    """

    stages: Mapping[str, float]
    remark: str = ""

    @property
    def seconds(self) -> float:
        """The time of all stages."""
        return sum(self.stages.values())

    @property
    def is_new(self) -> bool:
        """True if passes have run, or kernels were planned: nothing kept it as a whole."""
        return not self.stages.keys().isdisjoint((PASSES, PLANNING))

    @property
    @override
    def _table(self) -> Table:
        longest = sorted(self.stages.items(), key=lambda item: -item[1])
        rows = [(name, f"{seconds * 1e3:.1f}") for name, seconds in longest]
        return Table(("stage", "ms"), (*rows, ("all", f"{self.seconds * 1e3:.1f}")), 1)

    @override
    def __str__(self) -> str:
        return "\n".join(filter(None, (str(self._table), self.remark)))


PASSES: Final = "passes"
PLANNING: Final = "planning of kernels"


def source_column(sources: Sequence[str]) -> tuple[str, list[str]]:
    """The header and cells for positions, each file:line or empty; one file is not repeated.

    The header names that file, unless it is a cell of a notebook or another text.
    """
    split = [source.rpartition(":") for source in sources]
    files = {file for file, _, line in split if line}
    if len(files) == 1:
        [file] = files
        header = f"line of {basename(file)}" if exists(file) else "line"
        return header, [line for _, _, line in split]
    return "at", [f"{basename(file)}:{line}" if line else "" for file, _, line in split]


def kernel_sources(module: IRModule) -> dict[str, str]:
    """The position of the first call of each kernel and packed function, as file:line, if known."""
    sources: dict[str, str] = {}
    for func in module.functions.values():
        for call in walk(func):
            if isinstance(call, Call) and (span := call.span) is not None:
                for callee in (call.op, *call.args[:1]):
                    if isinstance(callee, GlobalVar):
                        sources.setdefault(callee.name_hint, f"{span.file}:{span.line}")
                    elif isinstance(callee, ExternFunc):
                        sources.setdefault(callee.global_symbol, f"{span.file}:{span.line}")
    return sources


_ALWAYS = ("kernel", "block", "runs as")
