"""Emits the dequantisation of packed elements in registers, and exact dot products of digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import TypeAlias

from relaxpy.exec.loops.nest.nodes import loads
from relaxpy.exec.machine.tuning import Weights
from relaxpy.exec.native.llvm.interleave import columns_of
from relaxpy.exec.native.llvm.writer import I8, Function, Type, Value
from relaxpy.exec.native.trees.lanes import step_of
from relaxpy.exec.native.trees.repeated import Digits, RepeatedLoads, Table
from relaxpy.exec.native.values.datatypes import value_type
from relaxpy.exec.native.values.expressions import Values
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var

Place: TypeAlias = Mapping[Var, Value]
"""The values of variables in an iteration."""
_PERMUTATIONS = {16: "llvm.x86.avx512.permvar.sf.512", 8: "llvm.x86.avx2.permps"}
"""The permutation of the floats of a register (a table lookup), by its lanes."""


class Decoder:
    """The values of factors in vectors of a block, whose iterations are lanes in some `order`."""

    def __init__(self, frame: Values, repeated: RepeatedLoads) -> None:
        self._frame, self._function, self.repeated = frame, frame.function, repeated
        self.order: Sequence[int] = range(repeated.count)

    @contextmanager
    def numbered(self, first: int) -> Iterator[None]:
        """A context in which variables have the values of the lanes from `first` on."""
        frame, f, repeated = self._frame, self._function, self.repeated
        stored, frame.stored = frame.stored, dict(frame.stored)
        with frame.level(), frame.conditionally():
            for var, numbers in repeated.numbers.items():
                frame.bind(var, f.constants(value_type(var.dtype), self._lanes(numbers, first)))
            yield
        frame.stored = stored

    def _lanes(self, numbers: Sequence[int], first: int) -> list[int]:
        """The numbers of a block that belong to the lanes from `first` on."""
        return [numbers[n] for n in self.order[first : first + self.repeated.lanes]]

    def read(
        self,
        factor: PrimExpr,
        place: Place,
        first: int,
        tables: Mapping[Var, Table],
        ahead: int = 0,
    ) -> Value:
        """The value of a factor in the lanes from `first` on."""
        frame = self._frame
        with frame.level(place):
            for var, table in tables.items():
                self._load(table.value, first, ahead)
                frame.bind(var, self._entries(table, first))
            self._load(factor, first, ahead)
            value = frame.wide(frame.value(factor), self.repeated.lanes)
        frame.pin([value])
        return value

    def read_columns(self, places: Sequence[Place]) -> Iterator[Value]:
        """The values of the shared factor in each iteration of a block, with columns as the lanes.

        Elements of memory are transposed, as they have fewer bytes than these values.
        """
        frame, repeated = self._frame, self.repeated
        found = {
            load: self._of_columns(load, places) for load in dict.fromkeys(loads(repeated.decoded))
        }
        for n in range(repeated.count):
            stored, frame.stored = frame.stored, dict(frame.stored)
            with frame.level(), frame.conditionally():
                for var, numbers in repeated.numbers.items():
                    frame.bind(var, self._function.const(value_type(var.dtype), numbers[n]))
                for load, elements in found.items():
                    value = elements[repeated.offsets[load][n]]
                    frame.stored[load.buffer, load.indices] = value
                for var, table in repeated.tables.items():
                    digit = table.digit
                    shifts = digit and [repeated.numbers[digit.shift][n]] * len(places)
                    frame.bind(var, self._converted(table, shifts or ()))
                yield frame.wide(frame.value(repeated.shared), len(places))
            frame.stored = stored

    def _of_columns(self, load: BufferLoad, places: Sequence[Place]) -> Mapping[int, Value]:
        """The elements of some columns as the lanes of vectors, by their offsets."""
        frame, f, inner, lanes = self._frame, self._function, self.repeated.inner, len(places)
        offsets, rows, columns = sorted(set(self.repeated.offsets[load])), [], self.repeated.columns
        step = (columns and step_of(load, columns)) or 0
        ahead = Weights.PANEL * step * load.buffer.dtype.bits // 8  # the next panel
        count = 1 << (len(offsets) - 1).bit_length()
        for place in places:
            with frame.level(place):
                padded = [*offsets, *offsets[-1:] * (count - len(offsets))]
                rows.append(frame.load_offsets(load, padded, inner, ahead))
        element = rows[0].type
        together = max(1, min(count, 32 // element.bits))  # Bytes are moved as words.
        if together > 1:
            word = Type(f"i{element.bits * together}", count // together)
            rows = [f.new(word, f"bitcast {x} to {word}") for x in rows]
        words, found = columns_of(f, rows), dict[int, Value]()
        for n, offset in enumerate(offsets):
            value = words[n // together]
            if together > 1:
                whole = Type(element.element, lanes * together)
                value = f.new(whole, f"bitcast {value} to {whole}")
                value = f.shuffle(value, None, range(n % together, whole.lanes, together))
            frame.pin([value])
            found[offset] = frame.widened(value, load.buffer.dtype)
            frame.pin([found[offset]])
        return found

    def _load(self, value: PrimExpr, first: int, ahead: int) -> None:
        """Load the elements of memory that a value needs."""
        frame, repeated = self._frame, self.repeated
        for load in dict.fromkeys(loads(value)):
            offsets = self._lanes(repeated.offsets[load], first)
            loaded = frame.load_offsets(load, offsets, repeated.inner, ahead)
            frame.stored[load.buffer, load.indices] = frame.widened(loaded, load.buffer.dtype)

    def _entries(self, table: Table, first: int) -> Value:
        """The entries of a table, which are in one register if there is an instruction for that."""
        frame, f, lanes, digit = self._frame, self._function, self.repeated.lanes, table.digit
        if not f.module.has_avx512 or table.count > lanes:
            shifts = digit and self._lanes(self.repeated.numbers[digit.shift], first)
            return self._converted(table, shifts or ())
        index = frame.wide(frame.value(table.index), lanes)
        # The instruction reads as many bits as the number of lanes has, so entries are repeated.
        numbers = [lane % table.count for lane in range(lanes)]
        with frame.level({table.number: f.constants(Type("i32"), numbers)}):
            entries = frame.wide(frame.value(table.entry), lanes)
        name = _PERMUTATIONS[lanes]
        f.module.declare(name, entries.type, [entries.type, index.type])
        result = f.new(entries.type, f"call {entries.type} @{name}({entries}, {index})")
        frame.pin([result])
        return result

    def _converted(self, table: Table, shifts: Sequence[int]) -> Value:
        """The entries of a table, whose digits are `shifts` bits above the lowest.

        Digits are converted to floats without shifting each lane, and scaled by a power of two when
        `start` is added, which is exact and saves an instruction, unless they have the sign bit.
        """
        frame, f, digit, lanes = self._frame, self._function, table.digit, len(shifts)
        if digit is None:
            return frame.value(table.value)
        is_high = table.count << max(shifts) > 1 << 31
        least = min(shifts) if is_high else 0
        fields = [table.count - 1 << shift - least for shift in shifts]
        if max(fields) >= 1 << 31:
            return frame.value(table.value)
        packed = frame.wide(frame.value(digit.packed), lanes)
        if least:
            packed = f.arithmetic("lshr", packed, least)
        packed = f.arithmetic("and", packed, f.constants(packed.type, fields))
        type = Type("float", lanes)
        scales = f.constants(type, [0.5 ** (shift - least) for shift in shifts])
        value = f.fma(f.cast("uitofp", packed, "float"), scales, f.const(type, digit.start))
        frame.pin([value])
        with frame.level({digit.value: value}):
            entries = frame.wide(frame.value(digit.scaled), lanes)
        frame.pin([entries])
        return entries

    def fields(self, digits: Digits, column: Place, size: int) -> Value:
        """The bytes with the packed integers of some blocks."""
        packed = digits.packed
        count = size * self.repeated.count * digits.bits // packed.buffer.dtype.bits
        with self._frame.level(column):
            value = self._frame.load_offsets(
                packed, range(count), self.repeated.inner, Weights.AHEAD
            )
        type = Type("i8", value.type.lanes * value.type.bits // 8)
        return self._function.new(type, f"bitcast {value} to {type}")

    def scales(self, digits: Digits, column: Place, size: int, lanes: int) -> Value:
        """The scales of some blocks, each in as many of the lanes."""
        frame = self._frame
        with frame.level(column):
            for load, step in digits.steps.items():
                offsets = [step * (lane * size // lanes) for lane in range(lanes)]
                loaded = frame.load_offsets(load, offsets, self.repeated.inner)
                frame.stored[load.buffer, load.indices] = frame.widened(loaded, load.buffer.dtype)
            value = frame.wide(frame.value(digits.scale), lanes)
        frame.pin([value])
        return value


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
    """Sums of `(digit - zero) * factor`, one for each eight successive digits.

    The halves of a byte are two digits, the even ones are the low halves: `parts` are the factors
    of these and of the odd ones, as many as fit into a vector, and `starts` the zero-point
    corrections.
    """

    def __init__(
        self, f: Function, parts: Sequence[tuple[Value, Value]], starts: Sequence[Value]
    ) -> None:
        self._f, self._parts, self._starts = f, parts, starts
        self._size = parts[0][0].type.lanes

    @classmethod
    def of(cls, f: Function, zero: int, factors: Value) -> DigitSums:
        """The sums for int8 factors."""
        digits = factors.type.lanes
        even, odd = (f.shuffle(factors, None, range(n, digits, 2)) for n in range(2))
        size = min(digits // 2, f.module.vector_bits // 8)
        parts = [
            (_part(even, first, size), _part(odd, first, size))
            for first in range(0, digits // 2, size)
        ]
        return cls(f, parts, [_start(zero, *factors) for factors in parts])

    @classmethod
    def load(cls, f: Function, memory: Value, digits: int) -> DigitSums:
        """The sums for the stored factors of a number of digits."""
        size = min(digits // 2, f.module.vector_bits // 8)
        byte, start = Type("i8", size), Type("i32", size // 4)
        if "vpdpbusd" not in f.module.instructions:
            start = Type("i16", size // 2)
        rows = [
            [
                f.load(type, f.element(memory, (first + n) * size, I8))
                for n, type in enumerate((byte, byte, start))
            ]
            for first in range(0, digits // 2 // size * 3, 3)
        ]
        return cls(f, [(even, odd) for even, odd, _ in rows], [start for *_, start in rows])

    def store(self, memory: Value) -> None:
        """Store the factors and starts, three vectors a part."""
        f = self._f
        vectors = [
            v for part, start in zip(self._parts, self._starts, strict=True) for v in (*part, start)
        ]
        for number, vector in enumerate(vectors):
            f.store(vector, f.element(memory, number * self._size, I8))

    def sums(self, fields: Value) -> Value:
        """The sums for the digits that are the halves of the bytes `fields`.

        If there are more than a vector has, those of all vectors are added.
        """
        f = self._f
        found: list[Value] = []
        for number, ((even, odd), start) in enumerate(zip(self._parts, self._starts, strict=True)):
            packed = _part(fields, number * self._size, self._size)
            low, high = f.arithmetic("and", packed, 15), f.arithmetic("lshr", packed, 4)
            if "vpdpbusd" in f.module.instructions:
                found.append(dots(dots(start, low, even), high, odd))
                continue
            found.append(fours(pairs(low, even) + pairs(high, odd) - start))
        return reduce(add, found)


def _part(values: Value, first: int, size: int) -> Value:
    """The lanes from the first one on, `size` of them."""
    if values.type.lanes == size:
        return values
    return values.function.shuffle(values, None, range(first, first + size))


def _start(zero: int, even: Value, odd: Value) -> Value:
    """The zero-point correction: the start of dots, or the number subtracted from pairs."""
    f = even.function
    digit = f.const(even.type, zero)
    if "vpdpbusd" not in f.module.instructions:
        return pairs(digit, even) + pairs(digit, odd)
    none = f.const(Type("i32", even.type.lanes // 4), 0)
    return 0 - dots(dots(none, digit, even), digit, odd)
