"""Checks of the strides of arrays in native code."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from relaxpy.exec.native.llvm.function import BOOL, I64, Function, Value
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """An array at run time: its dimensions, and its strides in bytes."""

    dims: Sequence[Value]
    strides: Sequence[Value]
    itemsize: int

    @property
    def function(self) -> Function:
        """The function that has the values."""
        return self.strides[0].function

    def span(self, data: Value) -> tuple[Value, Value]:
        """The addresses of the first byte, and of the one after the last byte."""
        f = self.function
        first = f.cast("ptrtoint", data, "i64")
        last = first + self.itemsize
        for dim, stride in zip(self.dims, self.strides, strict=True):
            reach = (dim - 1) * stride
            first = first + f.intrinsic("smin", reach, 0)
            last = last + f.intrinsic("smax", reach, 0)
        empty = self._is_empty()
        return first, f.select(empty, first, last)

    def matches(
        self, expected: Sequence[int | str], known: MutableMapping[str, Value]
    ) -> list[Value]:
        """The conditions that the strides are the expected ones, where they matter.

        They do not matter along a dimension with one element, or if the array is empty.
        """
        f = self.function
        conditions = []
        for dim, stride, wanted in zip(self.dims, self.strides, expected, strict=True):
            if isinstance(wanted, str):
                shift = self.itemsize.bit_length() - 1
                number = known.setdefault(wanted, f.arithmetic("ashr", stride, shift))
            else:
                number = f.const(I64, wanted)
            same = f.compare("eq", stride, number * self.itemsize)
            one = f.arithmetic("or", f.compare("sle", dim, 1), self._is_empty())
            conditions.append(f.arithmetic("or", same, one))
        return conditions

    def is_injective(self) -> Value:
        """The condition that no two elements share an address, in row- or column-major order."""
        f = self.function
        axes = list(zip(self.dims, self.strides, strict=True))
        result = self._is_empty()
        for order in (axes, axes[::-1]):
            reach = f.const(I64, self.itemsize)
            nests = f.const(BOOL, 1)
            for dim, stride in reversed(order):
                size = f.intrinsic("smax", stride, 0 - stride)
                apart = f.compare("sge", size, reach)
                apart = f.arithmetic("or", apart, f.compare("sle", dim, 1))
                nests = f.arithmetic("and", nests, apart)
                reach = reach + size * (dim - 1)
            result = f.arithmetic("or", result, nests)
        return result

    def _is_empty(self) -> Value:
        f = self.function
        empty = f.const(BOOL, 0)
        for dim in self.dims:
            empty = f.arithmetic("or", empty, f.compare("eq", dim, 0))
        return empty
