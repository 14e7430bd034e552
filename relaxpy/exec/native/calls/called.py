"""Native kernels that Python calls, and the functions of the run time that native code replaces.

Arrays that are not contiguous are copied for code that takes only contiguous ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from relaxpy.exec.machine.tuning import Allocations
from relaxpy.exec.native.calls.entry import empty_builtin
from relaxpy.exec.native.calls.entry_table import EntryTable
from relaxpy.exec.native.machine_code.objects import Library
from relaxpy.exec.runtime.values import with_originals
from relaxpy.support.dataclass import dataclass


class WithCopies:
    """A fallback of native code that first tries it with copies of arrays.

    `native()` returns the native function with the fallback `function`. The arguments at the
    positions `kept` are passed unchanged; so are all if one of these may share memory with an
    array that would be copied, since it may be written, or a copy would take much more memory than
    an array whose elements share it. Where a result is a copy, it is replaced by the argument.
    """

    __slots__ = ("function", "kept", "native", "prepared")

    def __init__(
        self,
        native: Callable[[], Callable[..., Any]],
        function: Callable[..., Any],
        kept: Collection[int] = (),
    ) -> None:
        self.native, self.function, self.kept = native, function, kept
        self.prepared: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The result of native code for copies, or of the function."""
        copies = None if keywords else self._copies(args)
        if copies is None:
            return self.function(*args, **keywords)
        if self.prepared is None:
            self.prepared = self.native()
        originals = {id(copy): item for copy, item in zip(copies, args, strict=True)}
        return with_originals(self.prepared(*copies), originals)

    def _copies(self, args: tuple[Any, ...]) -> list[Any] | None:
        """The arguments, with copies of some; None if there is no copy."""
        copied = {
            n: item
            for n, item in enumerate(args)
            if n not in self.kept and type(item) is np.ndarray and not _is_plain(item)
        }
        if not copied or any(map(_grows, copied.values())):
            return None
        written = [args[n] for n in self.kept if n < len(args)]
        for item in written:
            if any(np.may_share_memory(item, other) for other in copied.values()):
                return None
        return [
            np.require(item, requirements=("C", "A")) if n in copied else item
            for n, item in enumerate(args)
        ]


def _is_plain(array: np.ndarray[Any, Any]) -> bool:
    return array.flags.c_contiguous and array.flags.aligned


def _grows(array: np.ndarray[Any, Any]) -> bool:
    """True if a contiguous copy would be large and take more memory than the array does."""
    steps = zip(array.strides, array.shape, strict=True)
    memory: int = array.itemsize + sum(abs(stride) * (size - 1) for stride, size in steps)
    return array.nbytes > max(memory, Allocations.LARGEST_COPY)


@dataclass(frozen=True, slots=True, eq=False)
class CalledKernel:
    """A native kernel that Python calls by its name.

    The arguments at the positions `kept` are not copied.
    """

    name: str
    symbol: str
    entry: EntryTable
    kept: Sequence[int]

    @property
    def export(self) -> str:
        """The name that its library exports."""
        return self.entry.function

    def linked(self, library: Library, python: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a library, which calls the kernel in Python if it refuses arguments."""
        from relaxpy.exec.runtime.support import run_kernel  # and run-time operators

        last = partial(run_kernel, python)
        make = partial(self.entry.builtin, library, self.symbol)
        return make(WithCopies(partial(make, last), last, self.kept))


def changed_runtime() -> dict[str, Any]:
    """The functions of `rx` that native code replaces."""
    return {"empty": empty_builtin()}
