"""Links native functions of Relax functions with their constants, which are packed for them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from relaxpy.exec.machine.tuning import Kept
from relaxpy.exec.native.calls.called import WithCopies
from relaxpy.exec.native.calls.entry_table import EntryTable
from relaxpy.exec.native.machine_code.objects import Library, return_memory
from relaxpy.exec.native.threads.pool import native_threads
from relaxpy.exec.program.graph.program import Constant, constants_name
from relaxpy.exec.program.graph.sessions import Session, WithoutSessions, WithSessions
from relaxpy.exec.runtime.tensors import release
from relaxpy.ir.core.fork_lock import Late
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class NativeFunction:
    """A Relax function in the code of a library, which refers to it as `symbol`.

    It writes the parameters at the positions `written`, which are therefore not copied. Its last
    parameters are the words of `sessions`.
    """

    symbol: str
    constants: Sequence[Constant]
    entry: EntryTable
    written: Sequence[int]
    sessions: Sequence[Session]

    @property
    def exports(self) -> list[str]:
        """The symbols that the library exports for it."""
        return [*self.entry.exports, *([constants_name(self.symbol)] if self.constants else [])]

    def linked(self, library: Library, fallback: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which calls `fallback` if it cannot run.

        Large constants are packed when it is first called: a program that is compiled to be saved
        needs no copy of them.
        """
        count = len(self.sessions)
        if not count:
            return self._with_constants(library, fallback)
        native = self._with_constants(library, WithoutSessions(fallback, count))
        return WithSessions(native, fallback, self.sessions)

    def _with_constants(self, library: Library, fallback: Callable[..., Any]) -> Callable[..., Any]:
        packed = sum(c.literal.nbytes for c in self.constants if c.packing is not None)
        if packed < Kept.PACKED_LAZILY:
            return self._linked(library, fallback, [*map(_in_memory, self.constants)])
        late = lambda: self._linked(library, fallback, _large_in_memory(self.constants))  # noqa: E731
        return _Unlinked(Late(late))

    def _linked(
        self, library: Library, fallback: Callable[..., Any], kept: Sequence[np.ndarray[Any, Any]]
    ) -> Callable[..., Any]:
        table = library[constants_name(self.symbol)] if self.constants else 0
        for index, data in enumerate(kept):
            ctypes.c_uint64.from_address(table + 8 * index).value = data.ctypes.data
        last = _Fallback(fallback, kept)
        make = partial(self.entry.builtin, library, self.symbol)
        return make(WithCopies(partial(make, last), last, self.written))


def _in_memory(constant: Constant, *, releases: bool = False) -> np.ndarray[Any, Any]:
    """The elements of a constant in the order in which the program reads them.

    If `releases`, the literal of a packed copy drops its own array.
    """
    literal, packing = constant.literal, constant.packing
    data = np.require(literal.memory(aligned=packing is None), requirements="C")
    if packing is None:
        return data
    packed = packing.shared(data)
    if not release(data) and releases and packing.has_all(data):
        literal.release(partial(packing.unpacked, packed, data.shape, data.dtype))
    return packed


def _large_in_memory(constants: Sequence[Constant]) -> list[np.ndarray[Any, Any]]:
    """The elements of constants; literals with packed copies drop their own arrays.

    They are packed in small groups, so that only a few elements are in memory twice.
    """
    unpacked = {constant.literal for constant in constants if constant.packing is None}

    def in_memory(constant: Constant) -> np.ndarray[Any, Any]:
        array = _in_memory(constant, releases=constant.literal not in unpacked)
        if constant.packing is not None:
            return_memory()
        return array

    largest = max(constant.literal.nbytes for constant in constants)
    share = sum(constant.literal.nbytes for constant in constants) // Kept.AT_ONCE // largest
    threads = min(native_threads(), max(share, 1))
    if threads == 1:
        return [*map(in_memory, constants)]
    from concurrent.futures import ThreadPoolExecutor  # it is imported as slowly as NumPy

    with ThreadPoolExecutor(threads) as pool:
        return [*pool.map(in_memory, constants)]


@dataclass(frozen=True, slots=True, eq=False)
class _Unlinked:
    """A function that is linked when it is first called."""

    linked: Late[Callable[..., Any]]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The result of the function."""
        return self.linked()(*args, **keywords)


class _Fallback:
    """The Python fallback, and the constants, which live as long as it does."""

    __slots__ = ("constants", "function")

    def __init__(
        self, function: Callable[..., Any], constants: Sequence[np.ndarray[Any, Any]]
    ) -> None:
        self.function, self.constants = function, constants

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)
