"""Exact sums of products of integers of 4 bits with int8, by instructions of x86-64."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.exec.native.llvm.function import Function, Type, Value

_PAIRS = {16: "ssse3.pmadd.ub.sw.128", 32: "avx2.pmadd.ub.sw", 64: "avx512.pmaddubs.w.512"}
"""The instructions that add two products of bytes, by the number of bytes."""
_BYTES = 16
"""The bytes of digits of a column that are added at a time."""
_FOURS = {8: "sse2.pmadd.wd", 16: "avx2.pmadd.wd", 32: "avx512.pmaddw.d.512"}


class DigitSums:
    """Sums of `(digit - zero) * factor`, of four bytes each, for several columns at once."""

    def __init__(self, f: Function, zero: int) -> None:
        self._f, self._zero = f, zero
        self._factors: dict[tuple[str, int, int], tuple[Value, Value, Value]] = {}

    def sums(self, factors: Value, fields: Sequence[Value]) -> Value:
        """Four sums for each of some columns, whose digits are the halves of the bytes `fields`."""
        f, size = self._f, len(fields) * _BYTES
        result: Value | None = None
        for first in range(0, fields[0].type.lanes, _BYTES):
            even, odd, start = self._prepared(factors, first, len(fields))
            some = [f.shuffle(x, None, range(first, first + _BYTES)) for x in fields]
            packed = joined(f, some)
            low, high = f.arithmetic("and", packed, 15), f.arithmetic("lshr", packed, 4)
            if f.module.has_byte_dots:
                value = self._dot(self._dot(start, low, even), high, odd)
            else:
                sums = self._pairs(low, even) + self._pairs(high, odd) - start
                name, ones = f"llvm.x86.{_FOURS[size // 2]}", f.const(sums.type, 1)
                value = f.call(name, Type("i32", size // 4), sums, ones)
            result = value if result is None else result + value
        assert result is not None
        return result

    def _prepared(self, factors: Value, first: int, count: int) -> tuple[Value, Value, Value]:
        """The factors of even and of odd digits, and what sums start from, or have too much."""
        key = factors.name, first, count
        if key not in self._factors:
            f, size = self._f, _BYTES * count
            even, odd = (
                f.shuffle(factors, None, [2 * (first + n) + half for n in range(_BYTES)] * count)
                for half in range(2)
            )
            zero = f.const(even.type, self._zero)
            if f.module.has_byte_dots:
                none = f.const(Type("i32", size // 4), 0)
                start = 0 - self._dot(self._dot(none, zero, even), zero, odd)
            else:
                start = self._pairs(zero, even) + self._pairs(zero, odd)
            self._factors[key] = even, odd, start
        return self._factors[key]

    def _pairs(self, digits: Value, factors: Value) -> Value:
        size = digits.type.lanes
        return self._f.call(f"llvm.x86.{_PAIRS[size]}", Type("i16", size // 2), digits, factors)

    def _dot(self, start: Value, digits: Value, factors: Value) -> Value:
        type = start.type
        words = [self._f.new(type, f"bitcast {x} to {type}") for x in (digits, factors)]
        return self._f.call(f"llvm.x86.avx512.vpdpbusd.{32 * type.lanes}", type, start, *words)


def joined(f: Function, values: Sequence[Value]) -> Value:
    """The lanes of all values, which have the same number of them, one after the other."""
    found = list(values)
    while len(found) > 1:
        pairs = [found[n : n + 2] for n in range(0, len(found), 2)]
        if len(pairs[-1]) < 2:
            pairs[-1] = [*pairs[-1], pairs[-1][0]]
        found = [f.shuffle(a, b, range(2 * a.type.lanes)) for a, b in pairs]
    [result] = found
    count = sum(v.type.lanes for v in values)
    return result if result.type.lanes == count else f.shuffle(result, None, range(count))
