"""Profiles: the time of a call by kernel, with the work of each and its share of the peaks.

Native code notes the times of its steps, and what runs in Python has an instrument. Calls get
copies of mutable arguments.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import threading
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from operator import itemgetter
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected, unknown_attribute
from relaxpy.exec.api.assembled import timed
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.loops.report import Shape, operation_count, shape_of
from relaxpy.exec.machine.process import process
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.exec.native.peak import peak_bytes, peak_operations
from relaxpy.exec.program.graph.times import Times
from relaxpy.exec.runtime.instrument import Profiler, VMInstrumentReturnKind
from relaxpy.exec.runtime.report import ExecutionReport, kernel_sources, source_column
from relaxpy.exec.runtime.threads import WorkerTime, worker_times
from relaxpy.exec.runtime.values import Value, as_tensor
from relaxpy.exec.store.container import as_path
from relaxpy.ir import hooks
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import ShownAsTable, Table

#: Further calls are counted in a profile, but are not in its trace.
MAX_EVENTS: Final = 200_000


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One call of a function, with the arrays among its arguments, as in "float32[2, 3]".

    If it has a `worker` (a native thread id), it is that thread's share of a loop of the innermost
    call.

    Units:
        seconds, the start from that of the profiled call
    """

    name: str
    start: float
    duration: float
    arrays: tuple[str, ...] = ()
    is_finished: bool = True
    worker: int | None = None


def chrome_trace(
    events: Sequence[TraceEvent], kinds: Mapping[str, Mapping[str, object]], dropped: int = 0
) -> str:
    """The events in the JSON format of Chrome's trace viewer; `kinds` are facts by name.

    A call that did not return, since it or one inside of it failed, is marked as failed.
    """
    number, thread = os.getpid(), process().thread_id()
    process_name = {"ph": "M", "name": "process_name", "args": {"name": "relaxpy"}}
    rows: list[dict[str, Any]] = [process_name | {"pid": number, "tid": thread}]
    threads = {thread: threading.current_thread().name}
    workers = sorted({event.worker for event in events if event.worker is not None})
    threads.update((worker, f"worker {number}") for number, worker in enumerate(workers, 1))
    for tid, name in threads.items():
        title = {"ph": "M", "name": "thread_name", "args": {"name": name}}
        rows.append(title | {"pid": number, "tid": tid})
    for event in sorted(events, key=lambda event: (event.start, -event.duration)):
        facts = dict(kinds.get(event.name, {}))
        if event.arrays:
            facts["arguments"] = ", ".join(event.arrays)
        if not event.is_finished:
            facts["failed"] = True
        place = {"pid": number, "tid": thread if event.worker is None else event.worker}
        row = {"ph": "X", "name": event.name, "cat": facts.pop("kind", "") or "call", "args": facts}
        rows.append(row | {"ts": event.start * 1e6, "dur": event.duration * 1e6} | place)
    data: dict[str, object] = {"traceEvents": rows, "displayTimeUnit": "ms"}
    if dropped:
        data["otherData"] = {"calls that are not shown": dropped}
    return json.dumps(data)


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
            name = operators_of(row.name) if row.kind == "kernel" else row.name
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


def operators_of(kernel: str) -> str:
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


_NEAR: Final = 64
"""The number of last calls that are searched for that of a worker's loop."""

_Array: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]
"""The datatype and the shape of an array."""


@dataclass(slots=True)
class _Calls:
    """The calls of the kernels of a module, with their work, and the time of all functions."""

    module: IRModule
    kernels: Collection[str]
    native: Times | None = None
    profiler: Profiler = field(default_factory=Profiler)
    bytes: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, Counter[tuple[Shape, ...]]] = field(default_factory=dict)
    dtypes: dict[str, set[np.dtype[Any]]] = field(default_factory=dict)
    events: list[tuple[str, float, float, tuple[_Array, ...], bool]] = field(default_factory=list)
    dropped: int = 0
    _arguments: list[tuple[_Array, ...]] = field(default_factory=list)

    def __call__(
        self, function: object, symbol: str, before: bool, result: Value, *args: Value
    ) -> VMInstrumentReturnKind:
        if self.native is not None and symbol in self.native.outlined:
            if not before:
                self.drain()
            return VMInstrumentReturnKind.NO_OP
        if not before:
            self.end()
            return VMInstrumentReturnKind.NO_OP
        arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
        if symbol in self.kernels:
            self.bytes[symbol] += sum({id(array): array.nbytes for array in arrays}.values())
            self.shapes.setdefault(symbol, Counter())[tuple(map(shape_of, args))] += 1
            self.dtypes.setdefault(symbol, set()).update([array.dtype for array in arrays])
        self._arguments.append(tuple([(array.dtype, array.shape) for array in arrays]))
        self.profiler.begin(symbol)
        return VMInstrumentReturnKind.NO_OP

    def begin(self, title: str) -> None:
        """Begin the call that is profiled."""
        self._arguments.append(())
        self.profiler.begin(title)

    def end(self, *, is_finished: bool = True) -> float:
        """End the innermost call, and return its seconds."""
        stop = perf_counter()
        self.drain()
        name, start, duration = self.profiler.end(stop)
        arguments = self._arguments.pop()
        if len(self.events) < MAX_EVENTS:
            self.events.append((name, start, duration, arguments, is_finished))
        else:
            self.dropped += 1
        return duration

    def drain(self) -> None:
        """Add the calls that native code has noted, which the innermost call has made."""
        if self.native is None:
            return
        noted, events, missing = self.native.take()
        for step, calls, duration, arguments, nbytes in noted:
            self.profiler.note(step.name, calls, duration)
            if step.name in self.kernels:
                arrays = [arg for arg in arguments if not isinstance(arg, int)]
                shapes = tuple(arg if isinstance(arg, int) else arg[1] for arg in arguments)
                self.bytes[step.name] += calls * nbytes
                self.shapes.setdefault(step.name, Counter())[shapes] += calls
                self.dtypes.setdefault(step.name, set()).update(dtype for dtype, _ in arrays)
        room = max(MAX_EVENTS - len(self.events), 0)
        shown = [tuple(arg for arg in each.arguments if not isinstance(arg, int)) for each in noted]
        self.events += [
            (step.name, start, duration, shown[position], True)
            for step, position, start, duration in events[:room]
        ]
        self.dropped += missing + len(events[room:])

    def fail(self) -> float:
        """End all calls, which have not returned, and return the seconds of the first one."""
        duration = 0.0
        while self.profiler.is_running:
            duration = self.end(is_finished=False)
        return duration

    def profile(
        self, duration: float, report: ExecutionReport, workers: Iterable[WorkerTime]
    ) -> Profile:
        """The rows of all calls, and the calls themselves with the work of workers."""
        backends = {row.kernel: row.backend for row in report}
        sources = kernel_sources(self.module)
        times = sorted(self.profiler.times().items(), key=lambda item: -sum(item[1]))
        rows = (
            self.row(name, backends.get(name, ""), own, sources.get(name, ""))
            for name, own in times
        )
        first = min((start for _, start, *_ in self.events), default=0.0)
        texts: dict[tuple[_Array, ...], tuple[str, ...]] = {}
        for *_, arguments, _ in self.events:
            if arguments not in texts:
                texts[arguments] = tuple(f"{dtype}{list(shape)}" for dtype, shape in arguments)
        events = tuple(
            TraceEvent(name, start - first, seconds, texts[arguments], is_finished)
            for name, start, seconds, arguments, is_finished in self.events
        )
        return Profile(tuple(rows), duration, events + self.shares(workers, first), self.dropped)

    def shares(self, workers: Iterable[WorkerTime], first: float) -> tuple[TraceEvent, ...]:
        """The work of workers, under the name of the innermost call at that time."""
        calls = sorted((start, start + seconds, name) for name, start, seconds, *_ in self.events)
        shares = []
        for worker in workers:
            index = bisect(calls, worker.start, key=itemgetter(0))
            # A loop is in one of the most recent calls, unless that was dropped.
            before = reversed(calls[max(index - _NEAR, 0) : index])
            name = next((name for _, end, name in before if worker.start <= end), None)
            if name is not None:
                begin, seconds = worker.start - first, worker.stop - worker.start
                shares.append(TraceEvent(name, begin, seconds, worker=worker.worker))
        return tuple(shares)

    def row(self, name: str, backend: str, durations: Sequence[float], source: str) -> ProfileRow:
        """The row of one function, by the times of its calls."""
        func = self.module.functions_by_name.get(name)
        calls, duration = len(durations), sum(durations)
        if not isinstance(func, PrimFunc):
            kind = BETWEEN_KERNELS if isinstance(func, rx.Function) else ""
            return ProfileRow(name, "", calls, duration, kind=kind)
        flops: int | None = 0
        for shapes, number in self.shapes[name].items():
            count = operation_count(func, shapes)
            flops = None if flops is None or count is None else flops + number * count
        size = self.bytes[name]
        share: float | None = None
        if not obstacle() and duration:
            least = size / peak_bytes(size // calls) if size else 0.0
            names = {dtype.name for dtype in self.dtypes[name]}
            if flops and "float64" in names:
                least = max(least, flops / peak_operations("double"))
            elif flops and names & _FLOATS:
                least = max(least, flops / peak_operations("float"))
            share = min(1.0, least / duration)
        return ProfileRow(name, backend, calls, duration, size, flops, share, "kernel", source)


_FLOATS: Final = frozenset({"float16", "bfloat16", "float32"})


def profiled(
    executable: Executable, name: str, args: Sequence[object], repeat: int, trace: Path | None
) -> Profile:
    """The fastest of `repeat` calls of a function, by the times of its kernels.

    The program is compiled once more, with code that notes them. The calls are written to the file
    `trace`, also if one of them fails.

    Errors:
        MisuseError: `repeat` is not a positive integer.
        RuntimeCheckError: a check of the program failed.
    """
    if type(repeat) is not int or repeat < 1:
        raise unexpected(repeat, "repeat is a positive integer")
    module, of_thread = executable._program.module, threading.local()

    def report_call(*call: Value) -> object:
        calls: _Calls | None = getattr(of_thread, "calls", None)
        return None if calls is None else calls(*call)

    functions, native = timed(executable, report_call)
    function = functions[name]
    items = module.functions_by_name.items()
    kernels = frozenset(n for n, func in items if isinstance(func, PrimFunc))
    title = f"call of {name}" if name in kernels else name
    writes = may_write_arrays(module, name)
    runs: list[tuple[float, _Calls]] = []
    calls = _Calls(module, kernels, native)
    report = executable._report
    workers: Iterable[WorkerTime] = ()
    try:
        with worker_times() as workers:
            for is_warm_up in (True, *[False] * repeat):
                copies = copied(args, arrays=writes)
                if copies is None and is_warm_up:
                    continue
                calls = of_thread.calls = _Calls(module, kernels, native)
                calls.begin(title)
                function(*(args if copies is None else copies))
                duration = calls.end()
                if not is_warm_up:
                    runs.append((duration, calls))
                if copies is None:
                    break
    finally:
        if calls.profiler.is_running and trace is not None:
            calls.profile(calls.fail(), report, workers).to_chrome_trace(trace)
    duration, calls = min(runs, key=lambda run: run[0])
    profile = calls.profile(duration, report, workers)
    if trace is not None:
        profile.to_chrome_trace(trace)
    return profile


def copied(args: Sequence[object], *, arrays: bool) -> list[Any] | None:
    """Arguments for a call that leaves `args` unchanged: copies of caches and other objects.

    Arrays are copied too if `arrays` is set. The result is None if an object cannot be copied.
    """
    memo = {id(v): np.array(as_tensor(v)) if arrays else v for v in _tensors(args)}
    try:
        return copy.deepcopy(list(args), memo)
    except (TypeError, RuntimeError, copy.Error):
        return None


def _tensors(value: object) -> Iterator[object]:
    """The arrays and tensors of other libraries in arguments, also in tuples."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif not isinstance(value, np.generic) and hasattr(value, "__array__"):
        yield value


def may_write_arrays(module: IRModule, name: str) -> bool:
    """True if a call of a function may store elements in arrays that are its arguments.

    Kernels and impure functions may, and functions that use a parameter in place.
    """
    entry = module.functions_by_name.get(name)
    if not isinstance(entry, rx.Function) or not entry.is_pure:
        return True
    functions = [func for func in module.functions.values() if isinstance(func, rx.Function)]
    return any(map(_writes_parameters, functions))


def _writes_parameters(func: rx.Function) -> bool:
    nodes = list(walk(func))
    values = {node.var: node.value for node in nodes if isinstance(node, rx.VarBinding)}

    def is_parameter(expr: rx.Expr) -> bool:
        while isinstance(expr, rx.TupleGetItem) or expr in values:
            expr = expr.tuple_value if isinstance(expr, rx.TupleGetItem) else values[expr]
        return isinstance(expr, rx.Var)

    for call in nodes:
        if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
            continue
        kind = call.op.record.calls
        if kind is None or not kind.mutates:
            continue
        operands = [
            field
            for arg in call.args[1:]
            for field in (arg.fields if isinstance(arg, rx.Tuple) else (arg,))
        ]
        if any(
            isinstance(o.struct_info, rx.TensorStructInfo) and is_parameter(o) for o in operands
        ):
            return True
    return False
