"""The parameters of a program: how its entry checks them, and the sizes that they define."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeGuard

from relaxpy.exec.native.calls.entry import Anything, Array, Fields, Integer, Tree
from relaxpy.exec.native.calls.interpreter import DTYPES
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.program.graph.program import Passed, Shape, Tensor, Value
from relaxpy.exec.program.memory import Memory
from relaxpy.exec.runtime.conditions import Component, components
from relaxpy.exec.runtime.values import Category
from relaxpy.ir.arith.algebra.folding import operands_of_choice
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace

_LIMITS: Final = (1 << 31, 1 << 20, 1 << 15)
"""Upper bounds to try for shape variables, so that no computed size overflows."""


class Parameters:
    """The parameters that were added, which may be tuples, with the fields of these.

    Fields:
        params: how the entry checks them.
        tensors: those that are tensors, by number among all without the tuples.
        given: the shape variables, and the other dimensions, which have to be equal.
        sizes: what the program computes; readers add to it.
        found: the largest values of sizes that depend on data; readers add to it.
    """

    def __init__(self) -> None:
        self.params: list[Tree] = []
        self.tensors: dict[int, Tensor] = {}
        self.given: dict[tir.PrimExpr, None] = {}
        self.sizes: set[tir.PrimExpr] = set()
        self.found: dict[tir.Var, tir.PrimExpr] = {}
        self._count = 0
        self._positions: dict[int, int] = {}

    def add(self, sinfo: rx.StructInfo | None) -> Value:
        """The value of a parameter with this struct info.

        Errors:
            RefusedError: the entry cannot check it.
        """
        if sinfo is None:
            raise RefusedError(f"native code has no tensors of {sinfo}")
        number = self._count
        param, value = self._read(components(sinfo))
        if not isinstance(param, Fields):
            self._positions[number] = len(self.params)
        self.params.append(param)
        return value

    def position(self, number: int) -> int:
        """The position of a parameter with this number.

        Errors:
            RefusedError: it is a field of one.
        """
        if number not in self._positions:
            raise RefusedError("the object of a packed function is a field of a parameter")
        return self._positions[number]

    def written(self, memory: Memory) -> int:
        """The position of a parameter that a kernel writes, which the entry then checks."""
        position = self._positions.get(memory.index, -1)
        param = self.params[position] if position >= 0 else None
        if not isinstance(param, Array):
            raise RefusedError("a kernel writes a field of a parameter")
        self.params[position] = replace(param, written=True)
        return position

    def limit(self) -> int:
        """The exclusive upper bound of the absolute values of shape variables.

        Errors:
            RefusedError: a size may overflow or divide by 0, or a variable is unknown.
        """
        sizes = {*self.sizes, *self.given}
        for limit in _LIMITS:
            if all(self._limit(size, limit) <= 1 << 62 for size in sizes):
                return limit
        raise RefusedError("a size may overflow")

    def _read(self, parts: Iterator[Component]) -> tuple[Tree, Value]:
        """The next parameter as the entry checks it, and its value."""
        part = next(parts)
        sizes, number = part.sizes, self._count
        if part.categories == (Category.TUPLE,):
            fields = [self._read(parts) for _ in range(part.count)]
            return Fields(tuple(p for p, _ in fields)), tuple(value for _, value in fields)
        if part.categories == (Category.SHAPE,) and sizes is not None:
            self._count += len(sizes)
            self._add(sizes)
            return Fields(tuple(map(Integer, sizes)), "shape"), Shape(sizes)
        self._count += 1
        if not part.categories:
            return Anything(), Passed(number)
        if part.categories == (Category.PRIM,):
            return self._integer(part), Passed(number)
        tensor = self.tensors[number] = tensor_of(Memory("parameter", number), part.sinfo)
        self._add(tensor.shape)
        return Array(str(tensor.sinfo.dtype), tensor.shape), tensor

    def _add(self, sizes: Iterable[tir.PrimExpr]) -> None:
        self.given |= dict.fromkeys(size for size in sizes if not isinstance(size, tir.IntImm))

    def _integer(self, part: Component) -> Integer:
        [value] = part.sizes or (None,)
        if part.dtype != "int64" or not isinstance(value, tir.Var):
            raise RefusedError('a number is not a variable of 64 bits, such as R.Prim(value="n")')
        if value in self.given:
            raise RefusedError("two parameters are the same variable")
        self._add([value])
        return Integer(value)

    def _limit(self, size: tir.PrimExpr, limit: int) -> int:
        """The absolute value that a size does not exceed, if variables do not exceed `limit`."""
        match size:
            case tir.IntImm(value=value):
                return abs(value)
            case tir.Var() if size in self.given:
                return limit
            case tir.Var() if size in self.found:
                return self._limit(self.found[size], limit)
            case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b):
                return self._limit(a, limit) + self._limit(b, limit)
            case tir.Mul(a=a, b=b):
                return self._limit(a, limit) * self._limit(b, limit)
            case tir.FloorDiv(a=a, b=tir.IntImm(value=divisor)) if divisor > 0:
                return self._limit(a, limit)
            case tir.FloorMod(a=a, b=tir.IntImm(value=divisor)) if divisor > 0:
                return max(self._limit(a, limit), divisor)
            case tir.Min(a=a, b=b) | tir.Max(a=a, b=b):
                return max(self._limit(a, limit), self._limit(b, limit))
            case tir.CmpExpr(a=a, b=b) | tir.Junction(a=a, b=b):
                return max(self._limit(a, limit), self._limit(b, limit))
            case tir.Not(a=a):
                return self._limit(a, limit)
            case _ if choice := operands_of_choice(size):
                return max(self._limit(operand, limit) for operand in choice)
            case _:
                raise RefusedError(f"the size {size} is computed when it runs")


def tensor_of(memory: Memory, sinfo: rx.StructInfo | None) -> Tensor:
    """The tensor in some memory.

    Errors:
        RefusedError: its rank or its datatype is not that of native arrays.
    """
    if not is_native(sinfo):
        raise RefusedError(f"native code has no tensors of {sinfo}")
    return Tensor(memory, sinfo)


def is_native(sinfo: rx.StructInfo | None) -> TypeGuard[rx.TensorStructInfo]:
    """True if struct info is that of tensors that native code takes."""
    if not isinstance(sinfo, rx.TensorStructInfo) or not isinstance(sinfo.shape, rx.ShapeExpr):
        return False
    return str(sinfo.dtype) in DTYPES
