"""The switches of fast paths: a test compares a program with each of them on and off."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Final

from relaxpy.support.scopes import setting


class FastPath:
    """A path that changes no result; it is true while compiled programs may take it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_on: ContextVar[bool] = ContextVar(name, default=True)

    def __bool__(self) -> bool:
        return self._is_on.get()

    def off(self) -> AbstractContextManager[None]:
        """Programs that are compiled in this context do not take the path."""
        return setting(self._is_on, False)


ONLY_KERNEL: Final = FastPath("only kernel")
"""A function that only calls a kernel on its own arguments is replaced by that kernel."""
WHOLE_GRAPH: Final = FastPath("whole graph")
"""A function whose kernels are native is native, too."""
PACKED_CALLS: Final = FastPath("packed calls")
"""Calls of packed functions that have plans are steps of native functions."""
DIRECT_CALLS: Final = FastPath("direct calls")
"""Calls of packed functions in the text of a program are in machine code."""
OUTLINING: Final = FastPath("outlining")
"""Successive native kernels in a function that is not native are a native function."""
PACKED_WEIGHTS: Final = FastPath("packed weights")
"""Constants are kept in the layout in which a kernel reads them."""
SHARED_WEIGHTS: Final = "shared_weights"
"""The attribute of functions that never pack their constants, as others have the same ones: then
they are in memory once."""
ONLY_PACKED: Final = FastPath("only packed weights")
"""A kernel whose weights are constants in all calls has no code for others."""
VIEWS: Final = FastPath("views")
"""A kernel that only reshapes its operand is a view of it."""
SHARED_MEMORY: Final = FastPath("shared memory")
"""Tensors with disjoint live ranges share memory."""
KERNEL_CLASSES: Final = FastPath("kernel classes")
"""Kernels that differ in sizes and numbers alone are one kernel, which takes these as arguments."""
LENIENT_TESTS: Final = FastPath("lenient tests")
"""Tests before the first write ignore conditions that a kernel computes: NumPy runs what fails."""

FAST_PATHS: Final = (
    ONLY_KERNEL,
    WHOLE_GRAPH,
    PACKED_CALLS,
    DIRECT_CALLS,
    OUTLINING,
    PACKED_WEIGHTS,
    ONLY_PACKED,
    VIEWS,
    SHARED_MEMORY,
    KERNEL_CLASSES,
    LENIENT_TESTS,
)
