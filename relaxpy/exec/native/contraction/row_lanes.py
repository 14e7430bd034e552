"""Emits contractions of a few rows that fill the lanes of one register.

The second operand has another datatype and is contiguous along the sum, like the keys of attention.
Tiles would transpose it; here the few rows and the results are transposed instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from relaxpy.exec.native.contraction.blocking import up
from relaxpy.exec.native.contraction.few_rows import FewRows
from relaxpy.exec.native.contraction.operands import (
    Gemm,
    GemmAxis,
    Size,
    combine,
    converts,
    initial_values,
    load,
    moved,
    store,
)
from relaxpy.exec.native.contraction.panels import Block, pack, transpose
from relaxpy.exec.native.llvm.function import Function, Type, Value

_COLUMNS = 64
"""The columns of a task."""
_LONGEST = 256
"""The longest sum: the rows and some columns stay in the L1 cache."""
_UNROLL = 4
"""The unroll factor of the sum."""


class RowLanesEmitter(FewRows):
    """Emits contractions with rows as lanes, a vector of columns at a time."""

    def __init__(self, f: Function, contraction: Gemm) -> None:
        rows = contraction.row.extent
        lanes = f.module.vector_bits // contraction.accumulator.bits
        super().__init__(f, contraction, _COLUMNS, rows if isinstance(rows, int) else lanes)
        self.vector = Type(contraction.accumulator.element, lanes)

    def suits(self, most: int) -> bool:
        """True if `most` rows fill a register, and sums are short, of converted elements."""
        contraction, lanes = self.contraction, self.vector.lanes
        if len(self.over) != 1 or not lanes // 2 < most <= lanes:
            return False
        [axis] = self.over
        is_short = isinstance(axis.extent, int) and axis.extent <= _LONGEST
        return is_short and self.vector.is_float and converts(contraction.b, contraction)

    def emit(self, task: Value) -> None:
        """Emit the task of that number."""
        f, vector, lanes = self.f, self.vector, self.vector.lanes
        [axis], extent = self.over or (GemmAxis(1, 1, 1),), self.contraction.row.extent
        depth = axis.extent
        assert isinstance(depth, int)
        scalar, pitch = Type(vector.element), up(depth, lanes)
        rows, elements = (f.alloca(scalar, pitch * lanes) for _ in range(2))
        outer, first, count, a, b = self.start(task)
        source = Block(a.pointer, depth, extent, 1, self.contraction.row.a)
        pack(f, a, source, rows, lanes, vector)

        def column_of(column: Size, place: Size) -> None:
            """Convert the elements of a column."""
            there = moved(f, b, combine(f, "mul", column, self.contraction.column.b))
            begin = combine(f, "mul", place, pitch)
            for start in range(0, depth, lanes):
                left = depth - start
                mask = f.lanes_below(f.index(left), lanes) if left < lanes else None
                memory = moved(f, there, start)
                values = load(f, memory, vector, memory.pointer, mask)
                f.store(values, f.element(elements, combine(f, "add", begin, start), vector))

        def products(start: Value, *sums: Value, size: int) -> Sequence[Value]:
            found = list(sums)
            for index in (combine(f, "add", start, n) for n in range(size)):
                f.barrier()
                row = f.load(vector, f.element(rows, combine(f, "mul", index, lanes), vector))
                for lane in range(lanes):
                    at = f.element(elements, combine(f, "add", index, lane * pitch), scalar)
                    found[lane] = f.fma(f.splat(f.load(scalar, at), lanes), row, found[lane])
            return found

        def columns(column: Value, *, are_all: bool) -> None:
            left = combine(f, "add", combine(f, "mul", column, -1), count)
            mask = None if are_all else f.lanes_below(f.index(left), lanes)
            present = lanes if are_all else left
            f.loop(0, present, 1, [], lambda n: column_of(column + n, n))
            whole = depth // _UNROLL * _UNROLL
            sums: Sequence[Value] = [f.const(vector, 0)] * lanes
            sums = f.loop(0, whole, _UNROLL, sums, partial(products, size=_UNROLL))
            sums = f.loop(whole, depth, 1, sums, partial(products, size=1))
            results = transpose(f, sums)

            def finish(row: int) -> None:
                indices = (*outer, row, combine(f, "add", first, column))
                start = initial_values(f, self.contraction, indices, vector, mask)
                store(f, self.contraction, indices, start + results[row], mask)

            for row in range(self.rows):
                if isinstance(extent, Value):
                    f.branch(f.compare("slt", f.index(row), extent), partial(finish, row))
                else:
                    finish(row)

        whole = combine(f, "mul", combine(f, "sdiv", count, lanes), lanes)
        f.loop(0, whole, lanes, [], partial(columns, are_all=True))
        f.loop(whole, count, lanes, [], partial(columns, are_all=False))
