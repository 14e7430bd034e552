"""What the Python that the oracle writes calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.fuzz.kernels.memory import Buffer, View, scratch
from tests.fuzz.kernels.semantics import FLOATS, RefusedError, Semantics, UndefinedError, digest

STEPS = 10_000
"""Iterations after which a program is taken not to end."""


class Machine:
    """What the written Python calls."""

    def __init__(self) -> None:
        self.semantics = Semantics()
        self.binary = self.semantics.binary
        self.unary = self.semantics.unary
        self.compare = self.semantics.compare
        self.cast = self.semantics.cast
        self.isnan = self.semantics.isnan
        self.scratch = scratch
        self.View = View
        self.left = STEPS

    def tick(self) -> None:
        """One iteration of some loop."""
        self.left -= 1
        if self.left < 0:
            raise UndefinedError("the program does not end")

    def loop(self, start: int, extent: int) -> Iterator[int]:
        """The iterations of a loop."""
        for number in range(start, start + extent):
            self.tick()
            yield number

    def argument(self, name: str, array: Any, dtype: str, rank: int) -> Buffer:
        """An array that is passed, if it is one of `rank` dimensions of `dtype`."""
        if not isinstance(array, np.ndarray) or array.ndim != rank or array.dtype.name != dtype:
            raise RefusedError(f"kind: {name} is not an array of {dtype} of rank {rank}")
        return Buffer(name, array)

    def scalar(self, name: str, value: Any, dtype: str) -> Any:
        """A number that is passed."""
        if dtype in FLOATS:
            return FLOATS[dtype](float(value))
        return bool(value) if dtype == "bool" else int(value)

    def digest(self, buffer: Buffer | View) -> int:
        """What the function that is called with a buffer returns."""
        return digest(buffer.load(*place) for place in np.ndindex(buffer.size))

    def dropped(self, compute: Callable[[], Any]) -> Any:
        """A value that is folded while the text is read: whether its operands fail is open."""
        try:
            return compute()
        except RefusedError as error:
            raise UndefinedError("an operand that folding may drop") from error

    def require(self, held: bool, message: str) -> None:
        """An assertion of the program."""
        if not held:
            raise RefusedError(f"assertion: {message}")
