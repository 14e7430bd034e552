"""Arrays whose memory was returned, and which are computed again when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias
from weakref import ref

import numpy as np

from relaxpy.ir.core.fork_lock import ForkLock
from relaxpy.ir.core.tensor import Tensor

Array: TypeAlias = np.ndarray[Any, Any]


class Released:
    """The elements of an array that is computed by `restore` each time that it is read.

    Those who read it at the same time share one array, which is read-only.
    """

    __slots__ = ("_last", "_lock", "_restore", "dtype", "shape")

    def __init__(self, array: Tensor, restore: Callable[[], Array]) -> None:
        self.shape: Final = array.shape
        self.dtype: Final = array.dtype
        self._lock, self._restore = ForkLock(), restore
        self._last = self._noted(array)

    def __call__(self) -> Tensor:
        """The array."""
        with self._lock:
            array = self._last()
            if array is None:
                elements = self._restore()
                elements.flags.writeable = False
                array = elements.view(Tensor)
                self._last = self._noted(array)
            return array

    def _noted(self, array: Tensor) -> ref[Tensor]:
        """A reference to an array, which others may read here after it."""
        array.released = self
        return ref(array)
