"""A compiled program is a table, from which `link` makes functions that can be called.

Compilation makes it, and the disk cache and saved files contain it. That of code for another CPU is
not linked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from relaxpy.exec.native.calls.called import CalledKernel
from relaxpy.exec.program.graph.link import NativeFunction
from relaxpy.exec.runtime.checks import PublicFunctions
from relaxpy.exec.runtime.registry import Answer
from relaxpy.exec.runtime.report import ReportRow
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.exec.program.graph.times import Times
    from relaxpy.exec.program.lower.text import Text


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CompiledProgram:
    """The functions of a module after compilation, as data.

    Constants and Python objects are slots of it: arrays and objects in memory, numbers in a file.

    Fields:
        functions: the Relax functions in the machine code, by name.
        python_names: the names of these in the text.
        kernels: those kernels in the machine code that the text or a caller of the program calls.
        code: the machine code, an object file; empty if there is none.
        reports: whether the code reports obligations of kernels that do not hold.
        text: what runs in Python, if anything does.
        public: the names and signatures of the functions that can be called, by symbol.
        private: the names of the other functions of the module.
        rows: how each kernel runs.
        answers: what compilation has asked the registry of packed functions.
        times: those that the code notes, if it does; they are not saved.
        problem: why there is no machine code where there should be, or why part of it is missing.
    """

    functions: Mapping[str, NativeFunction]
    python_names: Mapping[str, str]
    kernels: Sequence[CalledKernel]
    code: bytes
    reports: bool
    text: Text | None
    public: PublicFunctions
    private: frozenset[str]
    rows: tuple[ReportRow, ...]
    answers: Sequence[Answer] = ()
    problem: str = ""
    times: Times | None = None

    def without_code(self, problem: str) -> CompiledProgram:
        """The program whose machine code is not used, because of a problem."""
        rows = (
            replace(
                row,
                method=row.method.removeprefix("native, "),
                reason=row.reason or problem,
                backend="numpy",
                threads="",
                varies="",
            )
            if row.threads  # of a kernel
            else row
            for row in self.rows
        )
        return replace(self, code=b"", rows=tuple(rows), problem=problem)

    @override
    def __repr__(self) -> str:
        values = () if self.text is None else self.text.values
        called = {kernel.name for kernel in self.kernels}
        native = {*self.functions, *(v.name for v in values if v.python_name in called)}
        lines = [
            f"  {signature}: {'native' if self.code and name in native else 'Python'}"
            for name, signature in self.public.values()
        ]
        lines.append(f"  kernels that Python calls: {', '.join(sorted(called)) or 'none'}")
        lines.append(f"  machine code: {len(self.code)} bytes")
        length = 0 if self.text is None else self.text.source.count("\n")
        lines.append(f"  Python: {length} lines")
        return "\n".join(["<CompiledProgram>", *lines])
