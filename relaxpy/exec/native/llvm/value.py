"""Values of a function in LLVM IR, whose operators write instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import override

from relaxpy.exec.native.llvm.types import Type

if TYPE_CHECKING:
    from relaxpy.exec.native.llvm.function import Function


class Value:
    """A value in a function. The operators of Python write an instruction.

    A number as the other operand becomes a constant of the same type, and a scalar is broadcast.
    `+`, `-` and `*` work on floats and on integers of either sign, `/` on floats. An i64 is
    divisible by its `multiple`, a power of two.
    """

    __slots__ = ("function", "multiple", "name", "type")

    def __init__(self, function: Function, type: Type, name: str) -> None:
        self.function, self.type, self.name, self.multiple = function, type, name, 1

    @override
    def __str__(self) -> str:
        return f"{self.type} {self.name}"

    def __add__(self, other: Operand) -> Value:
        return self.function.arithmetic("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.function.arithmetic("add", self.function.like(self, other), self)

    def __sub__(self, other: Operand) -> Value:
        return self.function.arithmetic("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.function.arithmetic("sub", self.function.like(self, other), self)

    def __mul__(self, other: Operand) -> Value:
        return self.function.arithmetic("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.function.arithmetic("mul", self.function.like(self, other), self)

    def __truediv__(self, other: Operand) -> Value:
        return self.function.arithmetic("div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.function.arithmetic("div", self.function.like(self, other), self)

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.function.computed(self.type, f"fneg {self}")
        return 0 - self


Operand: TypeAlias = Value | int | float
