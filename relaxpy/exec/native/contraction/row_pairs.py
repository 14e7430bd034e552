"""Int8 products of two rows by two columns in one instruction of AArch64 (smmla).

A register has four sums, two of each row, and each is a sum of eight products. The operands are the
copies that the dot products of `dots.py` read, whose groups of four are joined here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from relaxpy.exec.native.contraction.operands import GemmAxis, Matrix, Size, combine, moved
from relaxpy.exec.native.llvm.writer import I64, Function, Type, Value

_SUMS: Final = Type("i32", 4)
_BYTES: Final = Type("i8", 16)
# Of two registers: the first and the last halves, and their elements in turn.
_FIRST, _LAST, _LOW, _HIGH = (0, 1, 4, 5), (2, 3, 6, 7), (0, 4, 1, 5), (2, 6, 3, 7)


def add_products(
    f: Function,
    instruction: str,
    axis: GemmAxis,
    rows: Sequence[Matrix],
    columns: Sequence[Matrix],
    values: Sequence[Value],
) -> list[Value]:
    """The values of an even number of rows plus the products of the groups along an axis.

    There is a vector of four columns for each of `columns` in each row.
    """
    width = len(columns)
    blocks: Sequence[Value] = [
        f.shuffle(values[r * width + n], values[(r + 1) * width + n], half)
        for r in range(0, len(rows), 2)
        for n in range(width)
        for half in (_FIRST, _LAST)
    ]

    def two_groups(index: Value, *sums: Value, is_last: bool = False) -> list[Value]:
        f.barrier()  # operands that are loaded early take registers that the sums need
        operands = []
        for memory in columns:
            here = [moved(f, memory, combine(f, "mul", index + n, axis.b)) for n in range(2)]
            first = f.load(_SUMS, here[0].pointer)
            second = f.const(_SUMS, 0) if is_last else f.load(_SUMS, here[1].pointer)
            operands += [f.shuffle(first, second, half) for half in (_LOW, _HIGH)]
        found = []
        for r in range(0, len(rows), 2):
            # The last bytes of a row that has only one group more are multiplied by zeros.
            pair = [f.load(I64, moved(f, rows[r + n], index).pointer, 4) for n in range(2)]
            both = f.const(Type("i64", 2), 0)
            for n, value in enumerate(pair):
                both = f.new(both.type, f"insertelement {both}, {value}, i64 {n}")
            for n, operand in enumerate(operands):
                total = sums[r // 2 * len(operands) + n]
                found.append(_multiplied(f, instruction, total, both, operand))
        return found

    whole = combine(f, "mul", combine(f, "sdiv", axis.extent, 2), 2)
    blocks = f.loop(0, whole, 2, blocks, two_groups)
    blocks = f.loop(whole, axis.extent, 1, blocks, partial(two_groups, is_last=True))
    pairs = [*zip(blocks[::2], blocks[1::2], strict=True)]
    return [
        f.shuffle(first, last, half)
        for r in range(0, len(pairs), width)
        for half in (_FIRST, _LAST)
        for first, last in pairs[r : r + width]
    ]


def _multiplied(f: Function, instruction: str, total: Value, a: Value, b: Value) -> Value:
    parts = [f.new(_BYTES, f"bitcast {x} to {_BYTES}") for x in (a, b)]
    return f.call(f"llvm.aarch64.neon.{instruction}.v4i32.v16i8", _SUMS, total, *parts)


def rows_of(f: Function, first: Matrix, count: int, pitch: Size) -> list[Matrix]:
    """Rows that are a pitch apart."""
    return [moved(f, first, combine(f, "mul", r, pitch)) for r in range(count)]
