"""Instruments: observers of the calls of a running program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import IntEnum
from time import perf_counter
from typing import TypeAlias

from relaxpy.exec.runtime.users import call_users
from relaxpy.exec.runtime.values import Value
from relaxpy.support.dataclass import dataclass

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
        # As in TVM, the result of a kernel without one is reported as None.
        seen = None if self.is_kernel and result == () else result
        self.instrument(self.function, self.symbol, False, seen, *shown)
        return result


@dataclass(slots=True)
class Profiler:
    """Measures the time of each function outside the calls that it makes."""

    _own_times: dict[str, list[float]] = field(default_factory=dict)
    _open: list[tuple[float, str]] = field(default_factory=list)
    _inside: list[float] = field(default_factory=list)

    def begin(self, symbol: str) -> None:
        """Begin a call."""
        self._inside.append(0.0)
        self._open.append((perf_counter(), symbol))

    def end(self, stop: float) -> tuple[str, float, float]:
        """End the innermost call at a time; return its function, its start and its seconds."""
        start, symbol = self._open.pop()
        taken = stop - start
        self._own_times.setdefault(symbol, []).append(taken - self._inside.pop())
        if self._inside:
            self._inside[-1] += taken
        return symbol, start, taken

    def note(self, symbol: str, calls: int, seconds: float) -> None:
        """Note calls of a function, which the innermost call made, with their time in sum."""
        self._own_times.setdefault(symbol, []).extend([seconds / calls] * calls)
        if self._inside:
            self._inside[-1] += seconds

    @property
    def is_running(self) -> bool:
        """True if a call has begun and not ended."""
        return bool(self._open)

    def times(self) -> dict[str, list[float]]:
        """The seconds of each call of a function, without those of the calls that it made."""
        return self._own_times
