"""Native kernels that Python calls, and the functions of the run time that native code replaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from relaxpy.exec.native.calls.copies import WithCopies
from relaxpy.exec.native.calls.entry import empty_builtin, entry_name
from relaxpy.exec.native.calls.static_entry import StaticEntry, make_kernel_entry
from relaxpy.exec.native.machine_code.objects import Library
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class CalledKernel:
    """A native kernel that Python calls by its name, through the common entry if it has one.

    The arguments at the positions `kept` are not copied.
    """

    name: str
    symbol: str
    entry: StaticEntry | None
    kept: Sequence[int]

    @property
    def export(self) -> str:
        """The name that its library exports."""
        return entry_name(self.symbol) if self.entry is None else self.entry.function

    def linked(self, library: Library, python: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a library, which calls the kernel in Python if it refuses arguments."""
        from relaxpy.exec.runtime.support import run_kernel  # and run-time operators

        last = partial(run_kernel, python)
        make = partial(make_kernel_entry, library, self.symbol, self.entry)
        return make(WithCopies(partial(make, last), last, self.kept))


def changed_runtime() -> dict[str, Any]:
    """The functions of `rx` that native code replaces."""
    return {"empty": empty_builtin()}
