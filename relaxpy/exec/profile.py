"""The time of a call by kernel, with the work of each and its share of what the machine can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError
from relaxpy.exec.kernel.operations import Shape, operation_count, shape_of
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.exec.native.peak import peak_bytes, peak_operations
from relaxpy.exec.report import ExecutionReport
from relaxpy.exec.runtime.instrument import Instrument, Profiler
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.screen import ShownAsTable, Table


@dataclass(frozen=True, slots=True)
class KernelRow:
    """What all calls of a kernel, or of another function, took and did.

    Fields:
        backend: "native" or "numpy"; empty for what is not a kernel.
        bytes: the sizes of the arrays that are arguments of the calls.
        flops: the operations as the text of the kernel says; None if that depends on data.
        share: the time that a machine at its measured peak, of memory or of arithmetic, needs,
            as a share of the time taken; None if that is not known.
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


@dataclass(frozen=True, slots=True, repr=False)
class KernelProfile(ShownAsTable):
    """One call, the quickest of several; the row with the longest time first. `str` is a table.

    Units:
        seconds
    """

    rows: tuple[KernelRow, ...]
    duration: float

    def __iter__(self) -> Iterator[KernelRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    @override
    def _table(self) -> Table:
        header = (
            "kernel",
            "back end",
            "calls",
            "us",
            "%",
            "MB",
            "Mflop",
            "GB/s",
            "Gflop/s",
            "peak",
        )
        count = sum(row.calls for row in self.rows)
        total = KernelRow("total", "", count, self.duration)
        rows = tuple(map(self._cells, (*self.rows, total)))
        return Table(header, rows, text_columns=2, totals=1)

    def _cells(self, row: KernelRow) -> tuple[str, ...]:
        rate = 1e-9 / row.duration if row.duration else 0.0
        return (
            row.name,
            row.backend,
            str(row.calls),
            f"{row.duration * 1e6:.1f}",
            f"{100 * row.duration / self.duration if self.duration else 0:.1f}",
            f"{row.bytes / 1e6:.3f}" if row.bytes else "",
            f"{row.flops / 1e6:.3f}" if row.flops else "",
            f"{row.bytes * rate:.1f}" if row.bytes else "",
            f"{row.flops * rate:.1f}" if row.flops else "",
            "" if row.share is None else f"{100 * row.share:.0f} %",
        )


@dataclass(slots=True)
class _Calls:
    """The calls of the kernels of a module, with their work, and the time of all functions."""

    module: IRModule
    profiler: Profiler = field(default_factory=Profiler)
    bytes: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, Counter[tuple[Shape, ...]]] = field(default_factory=dict)
    dtypes: dict[str, set[str]] = field(default_factory=dict)

    def __call__(
        self, function: object, symbol: str, before: bool, result: Value, *args: Value
    ) -> object:
        if before and isinstance(self.module.functions_by_name.get(symbol), PrimFunc):
            arrays = {id(arg): arg for arg in args if isinstance(arg, np.ndarray)}.values()
            self.bytes[symbol] += sum(array.nbytes for array in arrays)
            self.shapes.setdefault(symbol, Counter())[tuple(map(shape_of, args))] += 1
            self.dtypes.setdefault(symbol, set()).update(array.dtype.name for array in arrays)
        return self.profiler(function, symbol, before, result, *args)

    def row(self, name: str, backend: str, calls: int, duration: float) -> KernelRow:
        """The row of one function."""
        func = self.module.functions_by_name.get(name)
        if not isinstance(func, PrimFunc):
            return KernelRow(name, "", calls, duration)
        flops: int | None = 0
        for shapes, number in self.shapes[name].items():
            count = operation_count(func, shapes)
            flops = None if flops is None or count is None else flops + number * count
        size = self.bytes[name]
        if obstacle() or not duration:
            return KernelRow(name, backend, calls, duration, size, flops)
        least = size / peak_bytes(size // calls) if size else 0.0
        if flops and "float64" in self.dtypes[name]:
            least = max(least, flops / peak_operations("double"))
        elif flops and self.dtypes[name] & _FLOATS:
            least = max(least, flops / peak_operations("float"))
        return KernelRow(name, backend, calls, duration, size, flops, least / duration)


_FLOATS: Final = frozenset({"float16", "bfloat16", "float32"})


def profile_call(
    module: IRModule,
    report: ExecutionReport,
    instrumented: Callable[[Instrument], Mapping[str, Callable[..., Value]]],
    name: str,
    args: Sequence[object],
    repeat: int,
) -> KernelProfile:
    """The quickest of `repeat` calls of a function, whose kernels run one by one.

    Errors:
        MisuseError: `repeat` is not a positive integer.
        RuntimeCheckError: a check of the program failed.
    """
    if type(repeat) is not int or repeat < 1:
        raise MisuseError(f"repeat is a positive integer, found {repeat!r:.60}", about=repeat)
    current = _Calls(module)
    function = instrumented(lambda *call: current(*call))[name]
    function(*args)
    runs: list[tuple[float, _Calls]] = []
    for _ in range(repeat):
        current = _Calls(module)
        current.profiler.begin(name)
        function(*args)
        runs.append((current.profiler.end(), current))
    duration, calls = min(runs, key=lambda run: run[0])
    backends = {row.kernel: row.backend for row in report}
    rows = calls.profiler.report(duration).rows
    return KernelProfile(
        tuple(calls.row(r.name, backends.get(r.name, ""), r.count, r.duration) for r in rows),
        duration,
    )
