"""Emits contractions with few rows (GEMV).

They are bound by the bandwidth of the second operand, which is read once, in memory order: along
the sum if that is contiguous, otherwise along the columns.

A few rows can also fill the lanes of one register. Then the second operand has another datatype and
is contiguous along the sum, like the keys of attention. Tiles would transpose it; here the few rows
and the results are transposed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.machine.tuning import Gemv
from relaxpy.exec.native.contraction.blocking import up
from relaxpy.exec.native.contraction.dots import dots_of
from relaxpy.exec.native.contraction.operands import (
    Gemm,
    GemmAxis,
    Matrix,
    Size,
    ceil_div,
    combine,
    convert,
    converts,
    digits,
    equals,
    initial_values,
    load,
    merged,
    moved,
    multiply_add,
    offset,
    store,
    total,
    whole_steps,
)
from relaxpy.exec.native.contraction.panels import Block, pack, transpose
from relaxpy.exec.native.llvm.writer import I8, Function, Type, Value

_Add: TypeAlias = Callable[[Sequence[Value], Sequence[Value], Sequence[Value]], list[Value]]
"""The sums plus the products of vectors of rows and columns."""


class FewRows:
    """The tasks of a contraction, each of `width` columns of `rows` rows."""

    def __init__(self, f: Function, contraction: Gemm, width: int, rows: int) -> None:
        self.f, self.contraction, self.width, self.rows = f, contraction, width, rows
        self.columns, self.row_stride = contraction.column.extent, contraction.row.a
        self.over = merged(contraction.over)
        self.sizes = [axis.extent for axis in contraction.outer]
        self.sizes.append(ceil_div(f, self.columns, width))
        self.tasks = total(f, self.sizes)

    def start(self, task: Value) -> tuple[list[Size], Size, Size, Matrix, Matrix]:
        """The outer indices, first column and columns of a task, and its operands."""
        f, contraction = self.f, self.contraction
        *outer, block = digits(f, task, self.sizes)
        first = combine(f, "mul", block, self.width)
        count: Size = self.width
        if isinstance(self.columns, Value) or self.columns % self.width:
            left = combine(f, "add", combine(f, "mul", first, -1), self.columns)
            count = combine(f, "smin", left, self.width)
        axes = contraction.outer
        a = moved(f, contraction.a, offset(f, outer, [axis.a for axis in axes]))
        b = moved(f, contraction.b, offset(f, outer, [axis.b for axis in axes]))
        b = moved(f, b, combine(f, "mul", first, contraction.column.b))
        return outer, first, count, a, b

    def each_row(self, a: Matrix, rows: Sequence[Size]) -> list[Matrix]:
        """The first operand in some rows."""
        f, stride = self.f, self.row_stride
        return [moved(f, a, combine(f, "mul", row, stride)) for row in rows]

    def each(
        self,
        axes: Sequence[GemmAxis],
        a: Sequence[Matrix],
        b: Sequence[Matrix],
        values: Sequence[Value],
        body: Callable[[Sequence[Matrix], Sequence[Matrix], Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """`values = body(a, b, values)` in each iteration of `axes`, with the operands there."""
        if not axes:
            return body(a, b, values)

        def iteration(index: Value, *current: Value) -> Sequence[Value]:
            return self.each(axes[1:], *self.at(a, b, index, axes[0]), current, body)

        return self.f.loop(0, axes[0].extent, 1, values, iteration)

    def at(
        self, a: Sequence[Matrix], b: Sequence[Matrix], index: Size, axis: GemmAxis
    ) -> tuple[list[Matrix], list[Matrix]]:
        """The operands in one iteration of an axis."""
        f = self.f
        there = combine(f, "mul", index, axis.a), combine(f, "mul", index, axis.b)
        return [moved(f, m, there[0]) for m in a], [moved(f, m, there[1]) for m in b]


class DotEmitter(FewRows):
    """The second operand, and the first one, are contiguous along the innermost axis of the sum.

    The products of an element are accumulated in the lanes of a 512-bit register, which are reduced
    at the end; of several registers where no other sums hide the latency of an addition. Several
    columns at a time are not in memory order: the next ones are prefetched. So is what comes after
    a part of a single one, as hardware prefetches only within a page. Rows whose number is known
    only in a call are computed a few at a time, while the columns that they share are in the L1
    cache; the last group is filled up by repeating the last row, which is not stored.
    """

    def __init__(self, f: Function, contraction: Gemm) -> None:
        rows, bits = contraction.row.extent, f.module.vector_bits
        # The second operand is the one with the offset: its vectors are read only once.
        accumulator, a, b = contraction.accumulator, contraction.a, contraction.b
        self.dots = dots_of(f.module, accumulator, b, a)
        self.is_converted = any(converts(m, contraction) for m in (a, b))
        if not isinstance(rows, int):
            rows = Gemv.CONVERTED_ROWS[bits] if self.is_converted else Gemv.DYNAMIC_ROWS
            if self.dots is not None:
                rows = Gemv.DIGIT_ROWS[bits]
        super().__init__(f, contraction, Gemv.DOTS, rows)
        self.vector = Type(accumulator.element, 512 // accumulator.bits)
        self.group = min(Gemv.GROUP, max(1, Gemv.SUMS[bits] // self.rows))
        self.ahead: Size = 0
        """The distance in elements of what is prefetched; 0 if nothing is."""
        if self._is_large() and self.rows > Gemv.STREAMED_ROWS:
            self.ahead = combine(f, "mul", contraction.column.b, self.group)
        elif self._is_large():
            self.group, self.ahead = 1, 8 * Gemv.AHEAD // b.type.bits
            self.vector = Type(self.vector.element, Gemv.STREAMED_SUMS * self.vector.lanes)

    def _is_large(self) -> bool:
        """True if the second operand is too large to stay cached between calls."""
        sizes = [self.columns, *(axis.extent for axis in self.over)]
        known = [size for size in sizes if isinstance(size, int)]
        most = Gemv.CONVERTED_ELEMENTS if self.is_converted else Gemv.STREAMED_ELEMENTS
        return len(known) == len(sizes) and prod(known) > most

    def emit(self, task: Value) -> None:
        """Emit the task of that number."""
        f, stride, extent = self.f, self.contraction.column.b, self.contraction.row.extent
        outer, first, count, a, b = self.start(task)
        a = self._converted_once(a)
        starts: list[Value] = []
        if isinstance(extent, int):
            starts = self._starts(self.each_row(a, range(self.rows)))

        def block(begin: Size, columns: Sequence[Matrix], start: Size) -> None:
            rows = [combine(f, "add", begin, row) for row in range(self.rows)]
            near = rows
            if isinstance(extent, Value):
                near = [combine(f, "smin", row, extent - 1) for row in rows]
            here = self.each_row(a, near)
            found, size = self._sums(here, columns), len(columns)
            moved_by = starts or self._starts(here)

            def finish(number: int) -> None:
                values = self._joined(found[number * size : (number + 1) * size])
                indices = (*outer, rows[number], start)
                values = initial_values(f, self.contraction, indices, values.type, None) + values
                values = values - moved_by[number] if moved_by else values
                store(f, self.contraction, indices, values, None)

            finish(0)
            for number, row in enumerate(rows[1:], 1):
                if isinstance(extent, Value):
                    f.branch(f.compare("slt", f.index(row), extent), partial(finish, number))
                else:
                    finish(number)

        def group(column: Size, size: int) -> None:
            there = moved(f, b, combine(f, "mul", column, stride))
            columns = [moved(f, there, combine(f, "mul", n, stride)) for n in range(size)]
            start = combine(f, "add", first, column)
            if isinstance(extent, Value):
                f.loop(0, extent, self.rows, [], lambda row: block(row, columns, start))
            else:
                block(0, columns, start)

        most = self.group
        whole = whole_steps(f, count, most)
        f.loop(0, whole, most, [], lambda column: group(column, most))
        f.loop(whole, count, 1, [], lambda column: group(column, 1))

    def _converted_once(self, a: Matrix) -> Matrix:
        """The first operand, whose rows are copied if they are converted, not once a column."""
        f, row = self.f, self.contraction.row
        most = row.most if isinstance(row.extent, Value) else row.extent
        depth = self.over[0].extent if len(self.over) == 1 else 0
        if self.dots or not converts(a, self.contraction) or most is None:
            return a
        if isinstance(depth, Value) or not 0 < depth <= Gemv.CONVERTED:
            return a
        pitch, element = up(depth, self.vector.lanes), self.contraction.accumulator
        copy = Matrix(f.alloca(element, most * pitch), element)
        pack(
            f,
            a,
            Block(a.pointer, row.extent, depth, self.row_stride, 1),
            copy.pointer,
            pitch,
            self.vector,
        )
        self.row_stride = pitch
        return copy

    def _starts(self, rows: Sequence[Matrix]) -> list[Value]:
        """The zero-point correction of each row: empty if the second operand has no offset."""
        dots = self.dots
        if dots is None or not dots.moves:
            return []

        def add(a: Sequence[Value], _: Sequence[Value], values: Sequence[Value]) -> list[Value]:
            return [dots.add_moved(x, value) for x, value in zip(a, values, strict=True)]

        return self._folded(rows, (), len(rows), add)

    def _sums(self, rows: Sequence[Matrix], columns: Sequence[Matrix]) -> list[Value]:
        """The sum for each row and column, in this order."""
        f, dots = self.f, self.dots

        def add(a: Sequence[Value], b: Sequence[Value], values: Sequence[Value]) -> list[Value]:
            pairs = zip(((x, y) for x in a for y in b), values, strict=True)
            if dots is None:
                return [multiply_add(f, x, y, value) for (x, y), value in pairs]
            return [dots.add(y, x, value) for (x, y), value in pairs]

        return self._folded(rows, columns, len(rows) * len(columns), add)

    def _folded(
        self, rows: Sequence[Matrix], columns: Sequence[Matrix], count: int, add: _Add
    ) -> list[Value]:
        """`count` sums, to which `add` adds the products of each vector of rows and columns."""
        f, dots = self.f, self.dots
        step = self.vector.lanes * (1 if dots is None else dots.count)
        *outer, axis = self.over or (GemmAxis(1, 1, 1),)

        def vector(memory: Matrix, index: Size, mask: Value | None) -> Value:
            there = moved(f, memory, index)
            if dots is None:
                return load(f, there, self.vector, there.pointer, mask)
            raw = load(f, there, Type(dots.packed.element, step), there.pointer, mask)
            return f.new(self.vector, f"bitcast {raw} to {self.vector}")

        def along(
            a: Sequence[Matrix], b: Sequence[Matrix], values: Sequence[Value]
        ) -> Sequence[Value]:
            def at(index: Size, mask: Value | None, current: Sequence[Value]) -> list[Value]:
                for memory in () if equals(self.ahead, 0) else b:
                    there = moved(f, moved(f, memory, index), self.ahead).pointer
                    for line in range(0, step * memory.type.bits // 8, LINE_BYTES):
                        f.prefetch(f.element(there, line, I8))
                return add(
                    [vector(m, index, mask) for m in a],
                    [vector(m, index, mask) for m in b],
                    current,
                )

            extent = axis.extent
            if isinstance(extent, int):
                whole: Size = extent // step * step
            else:
                whole = f.arithmetic("and", extent, -step)
            values = f.loop(0, whole, step, values, lambda i, *v: at(i, None, v))
            if isinstance(extent, int) and extent % step == 0:
                return values
            rest = combine(f, "add", combine(f, "mul", whole, -1), extent)
            return at(whole, f.lanes_below(f.index(rest), step), values)

        if dots is not None:
            rows = [dots.second(m) for m in rows]
            columns = [dots.first(m) for m in columns]
        zeros = [f.const(self.vector, 0)] * count
        sums = self.each(outer, rows, columns, zeros, along)
        return f.fold_lanes(sums, lambda x, y: x + y)

    def _joined(self, scalars: Sequence[Value]) -> Value:
        return self.f.joined(scalars) if len(scalars) > 1 else scalars[0]


class SpanEmitter(FewRows):
    """The second operand is contiguous along the columns.

    The sums of a task's columns stay in the L1 cache. Several rows of the operand are added
    at a time.
    """

    def __init__(self, f: Function, contraction: Gemm, lanes: int) -> None:
        rows = contraction.row.extent
        assert isinstance(rows, int)
        columns, width = contraction.column.extent, Gemv.SPAN // rows
        if isinstance(columns, int):
            width = min(width, max(Gemv.LEAST_SPAN, -(-columns // 2 // lanes) * lanes))
        super().__init__(f, contraction, width // lanes * lanes, rows)
        self.group = max(4, 8 // rows)
        self.vector = Type(contraction.accumulator.element, lanes)

    def emit(self, task: Value) -> None:
        """Emit the task of that number."""
        f, contraction = self.f, self.contraction
        sums = f.alloca(contraction.accumulator, self.rows * self.width)
        outer, first, count, a, b = self.start(task)
        rows = self.each_row(a, range(self.rows))

        def vectors(body: Callable[[Value, Value | None], None]) -> None:
            lanes = self.vector.lanes
            exact = isinstance(count, int) and count % lanes == 0

            def at(column: Value) -> None:
                left = combine(f, "add", 0 - column, count)
                body(column, None if exact else f.lanes_below(f.index(left), lanes))

            f.loop(0, count, lanes, [], at)

        def place(row: int, column: Value) -> Value:
            return f.element(sums, column + row * self.width, self.vector)

        def begin(column: Value, mask: Value | None) -> None:
            for row in range(self.rows):
                indices = (*outer, row, combine(f, "add", first, column))
                values = initial_values(f, contraction, indices, self.vector, mask)
                f.store(values, place(row, column))

        def end(column: Value, mask: Value | None) -> None:
            for row in range(self.rows):
                indices = (*outer, row, combine(f, "add", first, column))
                store(f, contraction, indices, f.load(self.vector, place(row, column)), mask)

        def add(a: Sequence[Matrix], b: Sequence[Matrix], start: Size, size: int) -> None:
            scalar, lanes = Type(self.vector.element), self.vector.lanes
            group = [self.at(a, b, combine(f, "add", start, n), axis) for n in range(size)]
            _, [first_row] = group[0]
            for line in range(Gemv.AHEAD, Gemv.AHEAD + size * short_row, LINE_BYTES):
                f.prefetch(f.element(first_row.pointer, line, I8))
            factors = [
                [f.splat(convert(m, f.load(m.type, m.pointer), scalar), lanes) for m in there]
                for there, _ in group
            ]

            def step(column: Value, mask: Value | None) -> None:
                there = [
                    load(f, m, self.vector, moved(f, m, column).pointer, mask) for _, (m,) in group
                ]
                for row in range(self.rows):
                    value = f.load(self.vector, place(row, column))
                    for factor, vector in zip(factors, there, strict=True):
                        value = multiply_add(f, factor[row], vector, value)
                    f.store(value, place(row, column))

            vectors(step)

        vectors(begin)
        *before, axis = self.over or (GemmAxis(1),)
        short_row = 0
        if isinstance(self.columns, int) and axis.b == self.columns:
            length = self.columns * contraction.b.type.bits // 8
            short_row = length if length <= Gemv.SHORT_BYTES else 0

        def body(a: Sequence[Matrix], b: Sequence[Matrix], _: Sequence[Value]) -> Sequence[Value]:
            extent = axis.extent
            if isinstance(extent, int):
                whole: Size = extent // self.group * self.group
            else:
                whole = f.arithmetic("and", extent, -self.group)
            f.loop(0, whole, self.group, [], lambda i: add(a, b, i, self.group))
            f.loop(whole, extent, 1, [], lambda i: add(a, b, i, 1))
            return ()

        self.each(before, rows, [b], (), body)
        vectors(end)


class RowLanesEmitter(FewRows):
    """Emits contractions with rows as lanes, a vector of columns at a time."""

    def __init__(self, f: Function, contraction: Gemm) -> None:
        rows = contraction.row.extent
        lanes = f.module.vector_bits // contraction.accumulator.bits
        super().__init__(f, contraction, Gemv.COLUMNS, rows if isinstance(rows, int) else lanes)
        self.vector = Type(contraction.accumulator.element, lanes)

    def suits(self, most: int) -> bool:
        """True if `most` rows fill a register, and sums are short, of converted elements."""
        contraction, lanes = self.contraction, self.vector.lanes
        if len(self.over) != 1 or not lanes // 2 < most <= lanes:
            return False
        [axis] = self.over
        is_short = isinstance(axis.extent, int) and axis.extent <= Gemv.LONGEST
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
            whole = depth // Gemv.UNROLL * Gemv.UNROLL
            sums: Sequence[Value] = [f.const(vector, 0)] * lanes
            sums = f.loop(0, whole, Gemv.UNROLL, sums, partial(products, size=Gemv.UNROLL))
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

        whole = whole_steps(f, count, lanes)
        f.loop(0, whole, lanes, [], partial(columns, are_all=True))
        f.loop(whole, count, lanes, [], partial(columns, are_all=False))
