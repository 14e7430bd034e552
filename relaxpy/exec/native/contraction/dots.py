"""Dot products of int8, bfloat16 and float8 by instructions that add several products to a lane.

Those of int8 are exact: 16-bit vectors hold every int8 and uint8 (PMADDWD of x86-64,
i32x4.dot_i16x8_s of WebAssembly), and the instructions that add four products do not saturate.
AArch64 has one for each pair of types; VNNI of x86-64 multiplies uint8 by int8. Where both operands
are of the same kind, the packed first one is offset by 128, and every sum starts from the zero-
point correction. Products of bfloat16, which has all floats of 8 bits, are exact too, and each is
rounded once with its sum, as by FMA, but for subnormal numbers, which are zeros. VDPBF16PS adds the
odd product of a pair first, so the elements of pairs are swapped in copies: sums have the same
order as elsewhere. Matrix tiles have another one, but are many times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from relaxpy.exec.machine.platforms import TILE
from relaxpy.exec.native.contraction.blocking import Columns
from relaxpy.exec.native.contraction.operands import (
    GemmAxis,
    Matrix,
    Size,
    ceil_div,
    combine,
    convert,
    digits,
    offset,
)
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.narrow_floats import IN_BFLOAT16
from relaxpy.exec.native.llvm.writer import F32, I8, I16, I32, Function, Type, Value
from relaxpy.exec.native.machine_code.machine import is_current_here, tiles_are_confirmed
from relaxpy.support.dataclass import dataclass, replace

_PAIRS: Final = {
    "pmaddwd": {4: "x86.sse2.pmadd.wd", 8: "x86.avx2.pmadd.wd", 16: "x86.avx512.pmaddw.d.512"},
    "dot_i16x8_s": {4: "wasm.dot"},
}
"""The instructions for pairs of 16 bits, by the lanes of the sums."""
Read: TypeAlias = Callable[[Value, int, Value | None], Value]
"""The elements of a row in a vector of columns by its number; 0 if a condition does not hold."""
_PAIRED: Final = {**dict.fromkeys(_PAIRS, "int16"), "dpbf16ps": "bfloat16", "tdpbf16ps": "bfloat16"}
"""The instructions that add two products to a lane, and the datatype of their operands."""
_MOVED: Final = -128
"""XOR with it offsets a byte by 128, and turns signed bytes into unsigned ones or back."""


@dataclass(frozen=True, slots=True)
class Dots:
    """The dot-product instruction of a contraction; rows of the second operand are joined for it.

    Fields:
        instruction: adds products to a lane: 2 of int16 (pmaddwd and dot_i16x8_s) or bfloat16
            (dpbf16ps), or 4 of int8; in tiles, tdpb.
        moves: whether the values of the first operand are offset by 128.
        b_is_unsigned: whether the second operand is uint8 and the copy of the first one int8, or
            vice versa.
        of_pairs: the instruction for two rows by two columns at a time, if there is one.
    """

    instruction: str
    moves: bool
    b_is_unsigned: bool
    of_pairs: str = ""

    @property
    def count(self) -> int:
        """The products that the instruction adds to a lane."""
        return 2 if self.instruction in _PAIRED else 4

    @property
    def dtype(self) -> str:
        """The datatype of the elements of copies, but for the sign of bytes."""
        return _PAIRED.get(self.instruction, "int8")

    @property
    def has_floats(self) -> bool:
        """True if the operands are floats."""
        return self.dtype == "bfloat16"

    @property
    def swaps(self) -> bool:
        """True if the instruction adds the last product of a pair first."""
        return self.instruction == "dpbf16ps"

    @property
    def in_tiles(self) -> bool:
        """True if the instruction adds products to all lanes of matrix tiles."""
        return self.instruction.startswith(TILE)

    @property
    def packed(self) -> Type:
        """The type of the elements of copies."""
        return I8 if self.count == 4 else I16

    @property
    def moved(self) -> int:
        """The factor of the second operand's sums in the zero-point correction."""
        return (-_MOVED if self.b_is_unsigned else _MOVED) if self.moves else 0

    def first(self, a: Matrix) -> Matrix:
        """The first operand, read as the type of copies."""

        def moved(raw: Value) -> Value:
            return raw.function.arithmetic("xor", raw, _MOVED)

        return replace(self.second(a), convert=moved) if self.moves else self.second(a)

    def second(self, b: Matrix) -> Matrix:
        """The second operand, read as the type of copies."""

        def narrowed(raw: Value) -> Value:
            f, lanes = raw.function, raw.type.lanes
            if not self.has_floats:
                return f.cast("trunc", convert(b, raw, Type("i32", lanes)), "i16")
            bits = f.cast("bitcast", convert(b, raw, Type("float", lanes)), "i32")
            return f.cast("trunc", f.arithmetic("lshr", bits, 16), "i16")  # the number is as long

        return replace(b, convert=None if b.type == self.packed else narrowed)

    def add(self, factor: Value, vector: Value, value: Value) -> Value:
        """`value` plus the products of `factor`, or its lanes, with the lanes of `vector`."""
        f, lanes = value.function, vector.type.lanes
        factor = f.splat(factor, lanes)
        if vector.type.lanes * 32 > f.module.vector_bits:
            ends = (range(lanes // 2), range(lanes // 2, lanes))
            low, high = (
                self.add(*(f.shuffle(x, None, end) for x in (factor, vector, value)))
                for end in ends
            )
            return f.shuffle(low, high, range(lanes))
        both = (vector, factor) if self.b_is_unsigned else (factor, vector)
        if self.instruction == "vpdpbusd":
            return f.call(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", value.type, value, *both)
        element = "bfloat" if self.swaps else self.packed.element
        type = Type(element, self.count * lanes)
        parts = [f.new(type, f"bitcast {x} to {type}") for x in both]
        if self.swaps:
            return f.call(f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", value.type, value, *parts)
        if self.count == 2:
            return value + f.call(f"llvm.{_PAIRS[self.instruction][lanes]}", vector.type, *parts)
        name = f"llvm.aarch64.neon.{self.instruction}.v{lanes}i32.v{4 * lanes}i8"
        return f.call(name, value.type, value, *parts)

    def add_moved(self, vector: Value, value: Value) -> Value:
        """`value` plus the excess of dot products with `vector` if the other operand is offset."""
        return self.add(value.function.const(vector.type, _REPEATED), vector, value)

    def join_rows(
        self, f: Function, read: Read, target: Value, rows: Size, pitch: int, columns: Columns
    ) -> list[Value]:
        """Store `count` rows of the second operand as one, in which their elements are adjacent.

        A joined row has room for `pitch` columns, and those that are missing are zeros. The result
        is the zero-point correction for each vector of `columns`; empty if there is none.
        """
        count = self.count
        whole = combine(f, "sdiv", rows, count)
        types = [Type("i32", lanes) for lanes in columns.lanes]

        def join(number: Value, moved: Sequence[Value], *, is_last: bool) -> list[Value]:
            first, found = number * count, []
            present = [
                f.compare("slt", first + r, f.index(rows)) if is_last else None
                for r in range(count)
            ]
            for n, (column, type) in enumerate(zip(columns.offsets, types, strict=True)):
                vectors = [read(first + r, n, exists) for r, exists in enumerate(present)]
                whole_groups = _joined(f, vectors[::-1] if self.swaps else vectors)
                joined = f.new(type, f"bitcast {whole_groups} to {type}")
                f.store(joined, f.element(target, number * pitch + column, type))
                if moved:
                    found.append(self.add_moved(joined, moved[n]))
            return found

        found = [f.const(type, 0) for type in types] if self.moves else []
        found = f.loop(0, whole, 1, found, lambda n, *moved: join(n, moved, is_last=False))
        end = ceil_div(f, rows, count)
        found = f.loop(whole, end, 1, found, lambda n, *moved: join(n, moved, is_last=True))
        return [0 - value for value in found]


_REPEATED: Final = int.from_bytes(bytes([_MOVED % 256] * 4), "little", signed=True)
"""`_MOVED` in each byte of an int32."""


def _joined(f: Function, vectors: list[Value]) -> Value:
    """The first lanes of the vectors one after the other, then the second ones and so on."""
    while len(vectors) > 1:
        lanes = vectors[0].type.lanes
        order = [n // 2 + n % 2 * lanes for n in range(2 * lanes)]
        both = [f.shuffle(a, b, order) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
        # Two adjacent elements, which stay together from now on.
        type = Type(f"i{2 * both[0].type.bits}", lanes)
        vectors = [f.new(type, f"bitcast {x} to {type}") for x in both]
    return vectors[0]


def rows_in_place(b: Matrix, axes: Sequence[GemmAxis], columns: Columns) -> Read:
    """Read the rows of bytes in the iterations of axes."""

    def read(row: Value, number: int, exists: Value | None) -> Value:
        f, type = row.function, Type(b.type.element, columns.lanes[number])
        indices = digits(f, row, [axis.extent for axis in axes])
        place = offset(f, (*indices, 1), (*(axis.b for axis in axes), columns.places[number]))
        pointer = f.element(b.pointer, f.index(place), type)
        return columns.load(replace(b, pointer=pointer, convert=None), type, number, exists)

    return read


def rows_in_copy(copy: Matrix, width: int, columns: Columns) -> Read:
    """Read rows of a copy that are `width` elements apart; it has room for missing ones."""

    def read(row: Value, number: int, exists: Value | None) -> Value:
        f, type = row.function, Type(copy.type.element, columns.lanes[number])
        pointer = f.element(copy.pointer, row * width + columns.offsets[number], type)
        value = f.load(type, pointer)
        return value if exists is None else f.select(f.splat(exists, type.lanes), value, 0)

    return read


def dots_of(
    module: Module, accumulator: Type, a: Matrix, b: Matrix, *, in_tiles: bool = False
) -> Dots | None:
    """The dot-product instruction for two operands, if there is one; `in_tiles`, others too."""
    are_floats = accumulator == F32 and {a.dtype, b.dtype} <= IN_BFLOAT16
    if not are_floats and (accumulator != I32 or not a.type == b.type == I8):
        return None
    present = module.instructions
    kinds = "".join("u" if operand.is_unsigned else "s" for operand in (a, b))
    in_tile = "tdpbf16ps" if are_floats else f"tdpb{kinds}d"
    if in_tiles and in_tile in present and (not is_current_here() or tiles_are_confirmed()):
        return Dots(in_tile, moves=False, b_is_unsigned=b.is_unsigned)
    if are_floats:
        is_present = in_tiles and "dpbf16ps" in present
        return Dots("dpbf16ps", moves=False, b_is_unsigned=False) if is_present else None
    is_same = a.is_unsigned == b.is_unsigned
    of_pair = ("udot" if a.is_unsigned else "sdot") if is_same else "usdot"
    if of_pair in present:
        kind = ("ummla" if a.is_unsigned else "smmla") if is_same else "usmmla"
        has_pairs = kind in present and (is_same or a.is_unsigned)
        return Dots(of_pair, moves=False, b_is_unsigned=b.is_unsigned, of_pairs=kind * has_pairs)
    if "vpdpbusd" in present:
        return Dots("vpdpbusd", is_same, b.is_unsigned)
    pairs = next((name for name in _PAIRS if name in present), None)
    return Dots(pairs, moves=False, b_is_unsigned=b.is_unsigned) if pairs else None
