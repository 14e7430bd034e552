"""The memory of a function: its stack up to a limit, and other memory beyond that.

Threads may have small stacks, and each function of a call needs some of it. LLVM also spills
registers there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relaxpy.exec.native.llvm.types import POINTER, Type
from relaxpy.exec.native.llvm.value import Value

if TYPE_CHECKING:
    from relaxpy.exec.native.llvm.function import Function
    from relaxpy.exec.native.llvm.instructions import Slot

STACK_BYTES: Final = 1 << 13
"""The most bytes on the stack of a function that has other memory."""
_LINE: Final = 64
"""The alignment in bytes. Anything up to this size is always on the stack."""


class Stack:
    """The memory of `function`: `more` is the number of bytes elsewhere."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.more = 0
        self._left = STACK_BYTES
        self._lines: Slot = []
        self._base, self._elsewhere = "", self._lines
        self._words = 0

    def lines(self) -> Slot:
        """The instructions at the start of the function."""
        words = f"  %shared = alloca i64, i64 {self._words}, align {_LINE}"
        return [words, self._lines] if self._words else self._lines

    def extend(self, base: str, place: Slot | None = None) -> None:
        """Use the memory at `base`, which is known at `place`, by default from the start on."""
        self._base = base
        self._elsewhere = self._lines if place is None else place

    def has(self, size: int) -> bool:
        """True if the stack has so many bytes left."""
        return size <= max(self._left, _LINE)

    def add(self, name: str, type: Type, count: int) -> None:
        """Define `name` as the address of `count` elements."""
        size = -(-max(type.bits, 8) * type.lanes * count // (8 * _LINE)) * _LINE
        if not self._base or self.has(size):
            self._left -= size
            self._lines.append(f"  {name} = alloca {type}, i64 {count}, align {_LINE}")
        else:
            place = f"getelementptr i8, ptr {self._base}, i64 {self.more}"
            self._elsewhere.append(f"  {name} = {place}")
            self.more += size

    def shared(self, words: int) -> Value:
        """The address of `words` words of 64 bits; the next caller may reuse them."""
        self._words = max(self._words, words, 1)
        return Value(self.function, POINTER, "%shared")
