"""Dot products of 4-bit integers with int8, by instructions of x86-64; they are exact."""

from __future__ import annotations

from functools import reduce
from operator import add

from relaxpy.exec.native.llvm.function import Function, Type, Value

_PAIRS = {16: "ssse3.pmadd.ub.sw.128", 32: "avx2.pmadd.ub.sw", 64: "avx512.pmaddubs.w.512"}
"""The instructions that add two int8 products (PMADDUBSW), by the number of bytes."""
_FOURS = {8: "sse2.pmadd.wd", 16: "avx2.pmadd.wd", 32: "avx512.pmaddw.d.512"}


def pairs(digits: Value, factors: Value) -> Value:
    """The sums of two products each; digits are unsigned."""
    f, lanes = digits.function, digits.type.lanes
    return f.call(f"llvm.x86.{_PAIRS[lanes]}", Type("i16", lanes // 2), digits, factors)


def fours(sums: Value) -> Value:
    """The sums of two `pairs` each."""
    f, lanes = sums.function, sums.type.lanes
    type, ones = Type("i32", lanes // 2), f.const(sums.type, 1)
    return f.call(f"llvm.x86.{_FOURS[lanes]}", type, sums, ones)


def dots(start: Value, digits: Value, factors: Value) -> Value:
    """`start` plus the sums of four products each."""
    f, type = start.function, start.type
    words = [f.new(type, f"bitcast {x} to {type}") for x in (digits, factors)]
    return f.call(f"llvm.x86.avx512.vpdpbusd.{32 * type.lanes}", type, start, *words)


class DigitSums:
    """Sums of `(digit - zero) * factor`, one for each eight successive digits."""

    def __init__(self, f: Function, zero: int, factors: Value) -> None:
        self._f = f
        # The halves of a byte are two digits: the even ones are the low halves.
        digits = factors.type.lanes
        even, odd = (f.shuffle(factors, None, range(n, digits, 2)) for n in range(2))
        self._size = min(digits // 2, f.module.vector_bits // 8)
        self._parts = [
            (self._part(even, first), self._part(odd, first))
            for first in range(0, digits // 2, self._size)
        ]
        self._starts = [self._start(zero, *factors) for factors in self._parts]

    def sums(self, fields: Value) -> Value:
        """The sums for the digits that are the halves of the bytes `fields`.

        If there are more than a vector has, those of all vectors are added.
        """
        f = self._f
        found: list[Value] = []
        for number, ((even, odd), start) in enumerate(zip(self._parts, self._starts, strict=True)):
            packed = self._part(fields, number * self._size)
            low, high = f.arithmetic("and", packed, 15), f.arithmetic("lshr", packed, 4)
            if "vpdpbusd" in f.module.instructions:
                found.append(dots(dots(start, low, even), high, odd))
                continue
            found.append(fours(pairs(low, even) + pairs(high, odd) - start))
        return reduce(add, found)

    def _part(self, values: Value, first: int) -> Value:
        if values.type.lanes == self._size:
            return values
        return self._f.shuffle(values, None, range(first, first + self._size))

    def _start(self, zero: int, even: Value, odd: Value) -> Value:
        """The zero-point correction: the start of dots, or the number subtracted from pairs."""
        digit = self._f.const(even.type, zero)
        if "vpdpbusd" not in self._f.module.instructions:
            return pairs(digit, even) + pairs(digit, odd)
        none = self._f.const(Type("i32", self._size // 4), 0)
        return 0 - dots(dots(none, digit, even), digit, odd)
