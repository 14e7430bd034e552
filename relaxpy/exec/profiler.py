"""Profiles of calls: functions run with an instrument, on copies of mutable arguments."""

from __future__ import annotations

import copy
import threading
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy.errors import unexpected
from relaxpy.exec.kernel.operations import Shape, operation_count, shape_of
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.exec.native.peak import peak_bytes, peak_operations
from relaxpy.exec.profile import BETWEEN_KERNELS, Profile, ProfileRow
from relaxpy.exec.report import ExecutionReport, kernel_sources
from relaxpy.exec.runtime.instrument import Instrument, Profiler, VMInstrumentReturnKind
from relaxpy.exec.runtime.values import Value, as_tensor
from relaxpy.exec.runtime.worker_times import WorkerTime, worker_times
from relaxpy.exec.trace import MAX_EVENTS, TraceEvent
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass

_NEAR: Final = 64
"""The number of last calls that are searched for that of a worker's loop."""

_Array: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]
"""The datatype and the shape of an array."""


@dataclass(slots=True)
class _Calls:
    """The calls of the kernels of a module, with their work, and the time of all functions."""

    module: IRModule
    kernels: Collection[str]
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
        name, start, duration = self.profiler.end()
        arguments = self._arguments.pop()
        if len(self.events) < MAX_EVENTS:
            self.events.append((name, start, duration, arguments, is_finished))
        else:
            self.dropped += 1
        return duration

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


class ProgramProfiler:
    """Profiles calls of the functions of a program, which is compiled once more for it."""

    def __init__(
        self,
        module: Callable[[], IRModule],
        report: ExecutionReport,
        instrumented: Callable[[Instrument], Mapping[str, Callable[..., Value]]],
    ) -> None:
        self._module, self._report, self._instrumented = module, report, instrumented
        self._functions: Mapping[str, Callable[..., Value]] | None = None
        self._per_thread = threading.local()
        """Its attribute `calls` has the calls of a thread that profiles."""

    def __call__(
        self, name: str, args: Sequence[object], repeat: int, trace: Path | None = None
    ) -> Profile:
        """The fastest of `repeat` calls of a function, whose kernels run one by one.

        The calls are written to the file `trace`, also if one of them fails.

        Errors:
            MisuseError: `repeat` is not a positive integer.
            RuntimeCheckError: a check of the program failed.
        """
        if type(repeat) is not int or repeat < 1:
            raise unexpected(repeat, "repeat is a positive integer")
        if self._functions is None:
            self._functions = self._instrumented(self._report_call)
        function, module = self._functions[name], self._module()
        functions = module.functions_by_name
        kernels = frozenset(n for n, func in functions.items() if isinstance(func, PrimFunc))
        title = f"call of {name}" if name in kernels else name
        writes = may_write_arrays(module, name)
        outer = getattr(self._per_thread, "calls", None)
        runs: list[tuple[float, _Calls]] = []
        calls = _Calls(module, kernels)
        workers: Iterable[WorkerTime] = ()
        try:
            with worker_times() as workers:
                for is_warm_up in (True, *[False] * repeat):
                    copies = copied(args, arrays=writes)
                    if copies is None and is_warm_up:
                        continue
                    calls = self._per_thread.calls = _Calls(module, kernels)
                    calls.begin(title)
                    function(*(args if copies is None else copies))
                    duration = calls.end()
                    if not is_warm_up:
                        runs.append((duration, calls))
                    if copies is None:
                        break
        finally:
            self._per_thread.calls = outer
            if calls.profiler.is_running and trace is not None:
                calls.profile(calls.fail(), self._report, workers).to_chrome_trace(trace)
        duration, calls = min(runs, key=lambda run: run[0])
        profile = calls.profile(duration, self._report, workers)
        if trace is not None:
            profile.to_chrome_trace(trace)
        return profile

    def _report_call(self, *call: Value) -> object:
        calls: _Calls | None = getattr(self._per_thread, "calls", None)
        return None if calls is None else calls(*call)


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
    """Return whether a call of a function may store elements in arrays that are its arguments.

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
