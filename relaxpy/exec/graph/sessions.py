"""Calls of packed functions in a native function, which share an object such as a cache.

Before a native function runs, the packed function gets all of its calls at once, and may return a
program for each: records of kernels to call and blocks of memory to copy, which machine code reads
(`records.py`). Without programs, machine code calls the packed function in Python. If anything
fails, the text of the native function runs again, and raises the error where it belongs: only
functions of relaxpy that may be repeated are called in this way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from relaxpy.exec.native.calls.interpreter import DTYPES, address_of
from relaxpy.exec.runtime.registry import with_programs
from relaxpy.exec.runtime.values import Array
from relaxpy.support.dataclass import dataclass

_CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int64
)


_interrupts: Final[dict[int, BaseException]] = {}
"""Exceptions that end a call, by the identity of the callback, until the text raises them."""


@dataclass(frozen=True, slots=True)
class PackedCall:
    """A call of a packed function on an object, numbers and tensors; the last ones are written.

    Each of the `tensors` has a datatype, and a shape that follows the number of rows, which is the
    same for all.
    """

    numbers: tuple[int | float, ...]
    tensors: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Session:
    """The calls of the packed function `symbol` on the argument at a `position`, in their order."""

    position: int
    symbol: str
    calls: tuple[PackedCall, ...]

    @classmethod
    def loaded(cls, position: int, symbol: str, calls: Sequence[Any]) -> Session:
        """The session of a JSON form."""
        return cls(
            position,
            symbol,
            tuple(
                PackedCall(tuple(numbers), tuple((t, tuple(shape)) for t, shape in tensors))
                for numbers, tensors in calls
            ),
        )

    def opened(self, args: Sequence[Any]) -> tuple[Array, object] | None:
        """The words that machine code reads, and what it needs besides; None if it cannot run.

        A callback in Python is called unless its address is 0; then the next word has its identity.
        """
        known = with_programs(self.symbol)
        if known is None or self.position >= len(args):
            return None
        function, programs = known
        item = args[self.position]
        found = programs(item, self.calls)
        if found is None:
            calls = _Callback(function, item, self.calls)
            callback = _CALLBACK(calls)
            address = ctypes.cast(callback, ctypes.c_void_p).value
            return np.array([address, id(calls), 0, 0, 0], np.int64), callback
        constants = found.constants
        words = [0, found.rows, address_of(found.words), address_of(constants), constants.shape[1]]
        return np.array(words, np.int64), found


@dataclass(frozen=True, slots=True, eq=False)
class _Callback:
    """Makes calls of a packed function in Python; the result is 0 unless one fails."""

    function: Callable[..., object]
    item: object
    calls: Sequence[PackedCall]

    def __call__(self, number: int, addresses: Any, rows: int) -> int:
        call = self.calls[number]
        try:
            arrays = [
                _array_at(addresses[n], DTYPES[dtype], (rows, *shape))
                for n, (dtype, shape) in enumerate(call.tensors)
            ]
            self.function(self.item, *call.numbers, *arrays)
        except Exception:  # which the text raises again
            return 1
        except BaseException as error:  # the user ends the call
            _interrupts[id(self)] = error
            return 1
        return 0


def _array_at(address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    content = (ctypes.c_char * (prod(shape) * dtype.itemsize)).from_address(address)
    elements: Array = np.frombuffer(memoryview(content), dtype)
    return elements.reshape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class WithSessions:
    """A native function with sessions, whose words are its last arguments."""

    native: Callable[..., Any]
    fallback: Callable[..., Any]
    sessions: Sequence[Session]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The result of native code, or of the fallback, for the other arguments."""
        opened = [session.opened(args) for session in self.sessions]
        pairs = [pair for pair in opened if pair is not None]
        if keywords or len(pairs) < len(opened):
            return self.fallback(*args, **keywords)
        return self.native(*args, *(words for words, _ in pairs))


@dataclass(frozen=True, slots=True, eq=False)
class WithoutSessions:
    """The fallback of such a function, without the words of `count` sessions."""

    fallback: Callable[..., Any]
    count: int

    def __call__(self, *args: Any) -> Any:
        """The result of the text."""
        for words in args[len(args) - self.count :]:
            if (interrupt := _interrupts.pop(int(words[1]), None)) is not None:
                raise interrupt
        return self.fallback(*args[: len(args) - self.count])
