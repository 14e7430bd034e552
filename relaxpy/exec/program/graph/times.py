"""The times of the steps of native functions, which machine code notes for a profile.

It does so in words of memory: the address of a function that reads the clock, the number of events,
and the address of these; then those of each step: its calls, their nanoseconds, and sizes. An event
is a call: the number of the step, its start and its end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from relaxpy.exec.native.llvm.writer import I64, POINTER, Value
from relaxpy.exec.native.machine_code.objects import Library
from relaxpy.exec.native.threads.pool import pool
from relaxpy.exec.program.graph.program import KernelCall, PackedStep, Tensor
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.exec.native.values.expressions import Values

TIMES: Final = "relaxpy_times"
"""The variable of a module with the address of the words."""
EVENTS: Final = 1 << 17
"""The most calls that are events; others are only counted."""
_CLOCK, _COUNT, _EVENTS, _STEPS = range(4)
"""The positions of these words."""


@dataclass(frozen=True, slots=True, eq=False)
class TimedStep:
    """A call in a native function of what the module, or the registry, calls `name`.

    Fields:
        function: the function in the machine code.
        arguments: a datatype and the dimensions of each tensor, an integer for a number: `~n` is
            size `n` of those that the code notes.
        again: the positions of arguments whose memory is that of another one.
        sizes: these sizes.
        place: the position of its words.
    """

    name: str
    function: str
    arguments: Sequence[tuple[np.dtype[Any], tuple[int, ...]] | int]
    again: frozenset[int]
    sizes: Sequence[PrimExpr]
    place: int


class Noted(NamedTuple):
    """The calls of a step since the times were taken, with their arguments; `nbytes` is of one.

    Units: seconds
    """

    step: TimedStep
    calls: int
    duration: float
    arguments: tuple[tuple[np.dtype[Any], tuple[int, ...]] | int, ...]
    nbytes: int


class Times:
    """The times of the native functions of a program, one call of which runs at a time.

    `names` are those of kernels in the module, by Python name, and `outlined` functions that are
    not in it.
    """

    def __init__(self) -> None:
        self.steps: list[TimedStep] = []
        self.names: Mapping[str, str] = {}
        self.outlined: frozenset[str] = frozenset()
        self._length = _STEPS
        self._words: Any = None
        self._events: Any = None

    def emit(
        self, frame: Values, step: KernelCall | PackedStep, function: str, run: Callable[[], Value]
    ) -> Value:
        """Emit a step, which calls a function, with the times of its calls; return its status."""
        f, timed = frame.function, self._add(step, function)
        f.module.words(TIMES, 1)
        words = f.load(POINTER, Value(f, POINTER, f"@{TIMES}"), 8)
        clock = f.load(POINTER, f.element(words, _CLOCK, I64), 8)
        start = f.new(I64, f"call i64 {clock.name}()")
        status = run()
        stop = f.new(I64, f"call i64 {clock.name}()")
        for n, size in enumerate(timed.sizes):
            f.store(frame.index(size), f.element(words, timed.place + 2 + n, I64))
        for n, more in enumerate((f.const(I64, 1), stop - start)):
            place = f.element(words, timed.place + n, I64)
            f.store(f.load(I64, place) + more, place)
        count = f.element(words, _COUNT, I64)
        index = f.load(I64, count)
        f.store(index + 1, count)

        def note() -> None:
            events = f.load(POINTER, f.element(words, _EVENTS, I64), 8)
            for n, value in enumerate((f.const(I64, len(self.steps) - 1), start, stop)):
                f.store(value, f.element(events, index * 3 + n, I64))

        f.branch(f.compare("ult", index, EVENTS), note)
        return status

    def _add(self, step: KernelCall | PackedStep, function: str) -> TimedStep:
        values: Sequence[Tensor | PrimExpr]
        if isinstance(step, KernelCall):
            name, values = self.names[step.kernel], step.arguments
        else:
            name, values = step.symbol, [*step.inputs, *step.outputs]
        sizes: list[PrimExpr] = []

        def of(size: PrimExpr) -> int:
            if isinstance(size, IntImm):
                return size.value
            if size not in sizes:
                sizes.append(size)
            return ~sizes.index(size)

        memories = [value.memory if isinstance(value, Tensor) else None for value in values]
        timed = TimedStep(
            name,
            function,
            [
                (value.sinfo.dtype.numpy(), tuple(map(of, value.shape)))
                if isinstance(value, Tensor)
                else of(value)
                for value in values
            ],
            frozenset(n for n, memory in enumerate(memories) if memory in memories[:n]),
            sizes,
            self._length,
        )
        self._length += 2 + len(sizes)
        self.steps.append(timed)
        return timed

    def connect(self, library: Library) -> None:
        """Let the code of a library note its times here."""
        if self._words is None:
            self._words = (ctypes.c_int64 * self._length)()
            # These zeros are only allocated when they are written.
            zeros = np.zeros(3 * EVENTS, np.int64)
            self._events = (ctypes.c_int64 * len(zeros)).from_buffer(zeros.data)
            self._words[_CLOCK] = pool().now
            self._words[_EVENTS] = ctypes.addressof(self._events)
        ctypes.c_uint64.from_address(library[TIMES]).value = ctypes.addressof(self._words)
        library.keep(self)

    def take(self) -> tuple[list[Noted], list[tuple[TimedStep, int, float, float]], int]:
        """The calls since the last time by step, the events among them, and how many are missing.

        An event has the position of its step in the first list, its start and its seconds.
        """
        words, events = self._words, self._events
        if words is None or not words[_COUNT]:
            return [], [], 0
        noted, positions = list[Noted](), dict[int, int]()
        for number, step in enumerate(self.steps):
            calls, duration = words[step.place : step.place + 2]
            if calls:
                positions[number] = len(noted)
                noted.append(_noted(step, calls, duration * 1e-9, words))
                words[step.place] = words[step.place + 1] = 0
        kept = min(words[_COUNT], EVENTS)
        missing = words[_COUNT] - kept
        words[_COUNT] = 0
        found = [
            (self.steps[number], positions[number], start * 1e-9, (stop - start) * 1e-9)
            for number, start, stop in _triples(events[: 3 * kept])
        ]
        return noted, found, missing


def _triples(words: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    return zip(words[::3], words[1::3], words[2::3], strict=True)


def _noted(step: TimedStep, calls: int, duration: float, words: Any) -> Noted:
    def value(size: int) -> int:
        return size if size >= 0 else words[step.place + 2 + ~size]

    arguments = tuple(
        value(argument)
        if isinstance(argument, int)
        else (argument[0], tuple(map(value, argument[1])))
        for argument in step.arguments
    )
    nbytes = sum(
        argument[0].itemsize * int(np.prod(argument[1], dtype=np.int64))
        for n, argument in enumerate(arguments)
        if not isinstance(argument, int) and n not in step.again
    )
    return Noted(step, calls, duration, arguments, nbytes)
