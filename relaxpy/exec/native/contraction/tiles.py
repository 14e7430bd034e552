"""Emits contractions (GEMM) in register tiles: a few rows by vectors of columns.

A task computes a block of rows by one block of columns. It copies the block of the second operand
into scratch memory where that is faster than to read it in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.machine.tuning import Tiles
from relaxpy.exec.native.contraction import matrix_tiles, row_pairs
from relaxpy.exec.native.contraction.blocking import (
    Columns,
    column_blocks,
    columns_of,
    divisor,
    even,
    is_near,
    packed,
    up,
)
from relaxpy.exec.native.contraction.copies import BlockSizes, Copies
from relaxpy.exec.native.contraction.dots import Dots, dots_of
from relaxpy.exec.native.contraction.geometry import RegisterTile, folded_rows
from relaxpy.exec.native.contraction.operands import (
    Epilogue,
    Gemm,
    GemmAxis,
    Indices,
    Initial,
    Matrix,
    Size,
    advance,
    ceil_div,
    combine,
    convert,
    converts,
    digits,
    elements,
    equals,
    extents,
    initial_values,
    load,
    merged,
    moved,
    moved_ahead,
    multiply_add,
    offset,
    store,
    total,
)
from relaxpy.exec.native.llvm.writer import I32, Function, Type, Value
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """The steps of a k-block: its axes, and the operands there in memory.

    It starts at the iteration `start` of the divided axis, after the steps `before` of the sum.
    """

    axes: Sequence[GemmAxis]
    a: Matrix
    b: Matrix
    start: Size = 0
    before: Size = 0
    is_first: Value | None = None
    is_last: Value | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _KBlock:
    """A k-block: its axes with strides, the operands there, and its position in the sum.

    `is_first` and `is_last` are None if there is only one. The zero-point corrections of columns
    are at `moved`, if that is not None. The tiles prefetch the one that is copied next from
    `after`, if that is not None.
    """

    axes: tuple[GemmAxis, ...]
    a: Matrix
    a_row: Size
    b: Matrix
    is_first: Value | None
    is_last: Value | None
    moved: Value | None = None
    after: Matrix | None = None


class TileEmitter:
    """Emits the tasks of a contraction.

    `tasks` is their number. It follows from the extents alone. The tasks may run in any order and
    in parallel, unless they are all part of a single one, `in_task`. The second operand is packed
    if `packs`; by default its size decides. One that may be packed, and that would be read in place
    otherwise, has an address and a row stride that only a call knows.
    """

    def __init__(
        self,
        f: Function,
        contraction: Gemm,
        tile: RegisterTile,
        *,
        packs: bool | None = None,
        in_task: bool = False,
    ) -> None:
        # A long epilogue has a separate loop.
        self.epilogue = contraction.epilogue
        if self.epilogue is not None and self.epilogue.is_costly:
            contraction = replace(contraction, epilogue=None)
        else:
            self.epilogue = None
        self.f, self.contraction, self.tile = f, contraction, tile
        self.rows, self.columns = contraction.row.extent, contraction.column.extent
        over = merged(contraction.over)
        first = len(over)
        while first and math.prod(extents(over[first - 1 :])) <= Tiles.DEPTH:
            first -= 1
        # Each k-block has the `whole` innermost axes, `chunk` iterations of the axis before them,
        # and one of the others.
        self.whole, self.chunked = over[first:], over[first - 1] if first else None
        self.singles = over[: max(first - 1, 0)]
        inside = int(math.prod(extents(self.whole)))
        self.chunk = max(1, Tiles.DEPTH // max(1, inside))
        if self.chunked is not None and isinstance(self.chunked.extent, int):
            self.chunk = divisor(self.chunked.extent, self.chunk)
        self.depth = inside * (self.chunk if self.chunked else 1)
        # One instruction adds several int8 products.
        operands = contraction.a, contraction.b
        self.dots = dots = dots_of(f.module, contraction.accumulator, *operands, in_tiles=True)
        if dots is not None and dots.in_tiles:
            self.tile = tile = matrix_tiles.SIZE
        self.packed = dots.packed if dots else contraction.accumulator
        self.packs_a = dots is not None or converts(contraction.a, contraction)
        self.packs_b = dots is not None or (
            contraction.b.is_packed or self._copies_b() if packs is None else packs
        )
        most = self.band_rows = self._rows_of_task()
        self.height = min(most, self.rows) if isinstance(self.rows, int) else most
        # A task runs over several iterations of an axis that the second operand does not have, the
        # innermost of the outer axes, if each of them has few rows.
        self.strip, self.strips = self._strip()
        self.outer = contraction.outer[: -1 if self.strip else None]
        self.row_blocks = ceil_div(f, self.rows, self.band_rows)
        repeats = math.prod(extents([GemmAxis(n) for n in self._row_sizes()]))
        self.full, self.tail = column_blocks(self.columns, tile, repeats, scalars=dots is None)
        self.width = up(sum(self.full or self.tail), tile.lanes)
        self.column_blocks = ceil_div(f, self.columns, self.width)
        sizes = BlockSizes(self.depth, self.width, self.height)
        self.copies = Copies(f, self.contraction, tile, self.dots, sizes)
        # A task computes several blocks of columns with one packed copy of its rows.
        self.blocks = self._blocks_of_task(in_task=in_task)
        self.tasks = total(f, self._sizes())

    def _rows_of_task(self) -> int:
        """The most rows of a task, which has whole tiles."""
        tile, columns = self.tile, self.columns
        is_wide = (
            isinstance(columns, int) and columns >= Tiles.MANY_BLOCKS * tile.vectors * tile.lanes
        )
        multiple = Tiles.BANDS.get(self.f.module.vector_registers, tile.rows)
        return up(Tiles.MANY_ROWS if self.packs_b and is_wide else Tiles.ROWS, multiple)

    def _blocks_of_task(self, *, in_task: bool) -> int:
        """The blocks of columns of a task, if enough tasks are left, or none is needed."""
        if not self.packs_a or isinstance(self.column_blocks, Value):
            return 1
        if self.contraction.column.within is not None:
            return 1
        tasks = math.prod(n if isinstance(n, int) else 1 for n in self._row_sizes())
        groups = 1 if in_task else -(-2 * Tiles.BLOCKS // max(1, tasks))
        return max(1, min(Tiles.BLOCKS, self.column_blocks // groups))

    def _sizes(self) -> list[Size]:
        return [*self._row_sizes(), ceil_div(self.f, self.column_blocks, self.blocks)]

    def _row_sizes(self) -> list[Size]:
        """The numbers of tasks along the outer axes and rows."""
        outer = [axis.extent for axis in self.outer]
        strips = [] if self.strip is None else [ceil_div(self.f, self.strip.extent, self.strips)]
        return [*outer, *strips, self.row_blocks]

    def _strip(self) -> tuple[GemmAxis | None, int]:
        """The axis of the strips of rows that a task computes, and their number; or None, 1."""
        axis = self.contraction.outer[-1] if self.contraction.outer else GemmAxis(1)
        if isinstance(axis.b, Value) or axis.b or isinstance(self.rows, Value) or self.packs_a:
            return None, 1
        if axis.extent == 1 or not 0 < self.rows <= Tiles.ROWS // 2:
            return None, 1
        count = Tiles.ROWS // self.rows
        return axis, count if isinstance(axis.extent, Value) else even(axis.extent, count)

    def _copies_b(self) -> bool:
        """True if an unpacked second operand is copied."""
        contraction = self.contraction
        stride = contraction.column.b
        if isinstance(stride, Value) or stride != 1 or converts(contraction.b, contraction):
            return True
        if isinstance(self.rows, int) and self.rows <= self.tile.rows:
            return False
        return not is_near(contraction.over, contraction.b.type.bits // 8)

    @property
    def loads_columns(self) -> bool:
        """True if the columns of the second operand are loaded as vectors where they are."""
        return self.copies.joins_in_place if self.dots else not self.packs_b

    def _allocate(self) -> None:
        """Allocate the memory of a task on the stack."""
        f, accumulator = self.f, self.contraction.accumulator
        if self.packs_a:
            self.copies.allocate_rows()
        if self.packs_b and not self.contraction.b.is_packed:
            self.copies.allocate_columns()
        if self.dots is not None and self.dots.in_tiles:
            self.sums = f.alloca(accumulator, self.tile.rows * self.width)
        if self.chunked or self.epilogue is not None:
            rows = self.blocks * self.strips * self.height
            self.partial = f.alloca(accumulator, rows * self.width)

    def emit(self, task: Value) -> None:
        """Emit the task of that number."""
        f = self.f
        self._allocate()
        *outer, band, group = digits(f, task, self._sizes())
        strips: Size = 1
        if self.strip is not None:
            outer[-1] = combine(f, "mul", outer[-1], self.strips)
            left = combine(f, "add", combine(f, "mul", outer[-1], -1), self.strip.extent)
            exact = isinstance(self.strip.extent, int) and self.strip.extent % self.strips == 0
            strips = self.strips if exact else combine(f, "smin", left, self.strips)
        most = self.band_rows
        start = combine(f, "mul", band, most)
        height = self.rows
        if isinstance(height, Value) or height > most:
            left = combine(f, "add", combine(f, "mul", start, -1), height)
            exact = isinstance(height, int) and height % most == 0
            height = most if exact else combine(f, "smin", left, most)

        first = combine(f, "mul", group, self.blocks)

        def blocks() -> None:
            self._blocks(outer, strips, start, height, first)

        if self.contraction.column.within is None:
            blocks()
            return
        low, high = self.contraction.column.within
        column = f.index(combine(f, "mul", first, self.width))
        is_needed = f.compare("slt", column, high), f.compare("sgt", column + self.width, low)
        f.branch(f.arithmetic("and", *is_needed), blocks)

    def _blocks(
        self, outer: Sequence[Size], strips: Size, start: Size, height: Size, first: Size
    ) -> None:
        """The blocks of columns of a task; `first` is the number of the first one."""
        f = self.f

        def each_block(body: Callable[[Size, Columns], None]) -> None:
            def block(n: Size) -> None:
                self._with_columns(combine(f, "add", first, n), partial(body, n))

            if self.blocks == 1:
                block(0)
                return
            left = combine(f, "add", combine(f, "mul", first, -1), self.column_blocks)
            f.loop(0, combine(f, "smin", left, self.blocks), 1, [], block)

        def k_block(number: Value | None) -> None:
            def products(n: Size, columns: Columns) -> None:
                self._block(outer, strips, start, height, columns, number, n)

            each_block(products)

        def finish(block: Size, columns: Columns) -> None:
            kept = combine(f, "mul", block, self.height)
            f.loop(0, strips, 1, [], lambda n: self._finish(n, outer, start, height, columns, kept))

        if self.chunked is None:
            k_block(None)
        else:
            f.loop(0, self._k_blocks(), 1, [], k_block)
        if self.epilogue is not None:
            each_block(finish)

    def _with_columns(self, block: Size, body: Callable[[Columns], None]) -> None:
        """Call `body` with the columns of the block of that number."""
        f = self.f

        def full(*, is_whole: bool = False) -> None:
            column = combine(f, "mul", block, self.width)
            body(columns_of(f, self.contraction, column, self.full, is_whole=is_whole))

        def tail() -> None:
            body(columns_of(f, self.contraction, self._tail_start(), self.tail))

        if self.full and self.tail:
            is_full = f.compare("slt", f.index(block), self._tail_start() // self.width)
            f.branch(is_full, full, tail)
        elif self.full and isinstance(self.columns, Value) and not f.module.has_avx512:
            # There a masked store takes as long as several unmasked ones.
            stop = f.index(combine(f, "mul", combine(f, "add", block, 1), self.width))
            f.branch(f.compare("sle", stop, self.columns), partial(full, is_whole=True), full)
        elif self.full:
            full()
        elif self.tail:
            tail()

    def _tail_start(self) -> int:
        assert isinstance(self.columns, int)
        return self.columns // self.width * self.width if self.full else 0

    def _block(
        self,
        outer: Sequence[Size],
        strips: Size,
        start: Size,
        height: Size,
        columns: Columns,
        number: Value | None,
        block: Size,
    ) -> None:
        """The products of a k-block for the columns of a block, the task's block of that number."""
        f, contraction = self.f, self.contraction
        place = (contraction.row, contraction.column)
        # The rows of tiles that are folded are counted from the first one of all.
        first = start if contraction.row_fold is None else 0
        a = offset(f, (*outer, first), [x.a for x in (*contraction.outer, place[0])])
        b = offset(f, (*outer, columns.start), [x.b for x in (*contraction.outer, place[1])])
        if (fold := contraction.fold) is not None:
            before = combine(f, "sdiv", columns.start, fold.width)
            b = combine(f, "add", b, combine(f, "mul", before, fold.jump))
        a_start = moved(f, contraction.a, a)
        b_start = moved(f, contraction.b, b)
        part = self._k_block(number, a_start, b_start, (start, height), columns, block)
        if self.strip is None:
            kept = combine(f, "mul", block, self.height)
            self._rows(outer, start, height, columns, part, kept)
        else:
            f.loop(0, strips, 1, [], lambda n: self._strip_rows(n, outer, columns, part))

    def _finish(
        self,
        number: Value,
        outer: Sequence[Size],
        start: Size,
        height: Size,
        columns: Columns,
        kept: Size,
    ) -> None:
        """Store the results of the epilogue for a strip of rows, whose sums are in scratch memory.

        There they are adjacent: rows of the result may be in one cache set. The vectors of columns
        follow each other, since a costly epilogue is much code.
        """
        f, contraction, epilogue = self.f, self.contraction, self.epilogue
        assert epilogue is not None
        if self.strip is not None:
            outer = (*outer[:-1], combine(f, "add", outer[-1], number))
            kept = combine(f, "mul", number, self.rows)

        def vector(before: Size, lanes: int, mask: Value | None) -> None:
            type = Type(contraction.accumulator.element, lanes)
            first = (*outer, start, combine(f, "add", columns.start, before))

            def sums(row: Value) -> Value:
                place = combine(f, "mul", combine(f, "add", kept, row), self.width)
                return f.load(type, self._scratch(combine(f, "add", place, before)))

            finish_rows(f, contraction, epilogue, first, height, lanes, mask, sums)

        lanes, whole = columns.lanes[0], 0
        while columns.lanes[whole : whole + 1] == (lanes,) and columns.masks[whole] is None:
            whole += 1
        f.loop(0, whole * lanes, lanes, [], lambda before: vector(before, lanes, None))
        rest = zip(columns.offsets, columns.lanes, columns.masks, strict=True)
        for before, count, mask in islice(rest, whole, None):
            vector(before, count, mask)

    def _scratch(self, first: Size) -> Value:
        """The address of the sum at `first` there."""
        return advance(self.f, self.partial, first, self.contraction.accumulator)

    def _strip_rows(
        self, number: Value, outer: Sequence[Size], columns: Columns, k_block: _KBlock
    ) -> None:
        """The rows of one strip."""
        f = self.f
        assert self.strip is not None
        assert isinstance(self.rows, int)
        here = (*outer[:-1], combine(f, "add", outer[-1], number))
        a = moved(f, k_block.a, combine(f, "mul", number, self.strip.a))
        there = replace(k_block, a=a)
        self._rows(here, 0, self.rows, columns, there, combine(f, "mul", number, self.rows))

    def _k_blocks(self) -> Value:
        """The number of k-blocks; at least one, which writes the initial values."""
        assert self.chunked is not None
        chunks = ceil_div(self.f, self.chunked.extent, self.chunk)
        count = total(self.f, [chunks, *(axis.extent for axis in self.singles)])
        return self.f.intrinsic("smax", self.f.index(count), 1)

    def _k_block(
        self,
        number: Value | None,
        a: Matrix,
        b: Matrix,
        rows: tuple[Size, Size],
        columns: Columns,
        block: Size,
    ) -> _KBlock:
        """A k-block for a block of columns; `rows` are the first row and their number."""
        whole = _Steps(self.whole, a, b) if number is None else self._chunk(number, a, b)
        steps = self._needed(whole)
        first, first_row, along_first = self._first_operand(steps, rows, block)
        if self.dots is not None:
            return self._joined(self.dots, steps, columns, number)
        second, along_second = self._second_operand(steps, columns)
        strides = zip(steps.axes, along_first, along_second, strict=True)
        axes = merged([GemmAxis(axis.extent, along, other) for axis, along, other in strides])
        ends = steps.is_first, steps.is_last
        after = self._after(steps, columns)
        in_lines = None if after is None else self._in_lines(axes)
        if in_lines is None:
            return _KBlock(axes, first, first_row, second, *ends)
        return _KBlock(in_lines, first, first_row, second, *ends, after=after)

    def _after(self, steps: _Steps, columns: Columns) -> Matrix | None:
        """The block of the second operand that is read next, if tiles prefetch it.

        Memory, or a distant cache, is slower than the first tile that reads a block, and has
        nothing to do while the others read it again.
        """
        is_single = self.chunked is None and equals(self.column_blocks, 1)
        if self.contraction.b.is_packed and not self.packs_a and not is_single:
            return self.copies.packed_panel(columns, steps.before, is_next=True)
        if not self._copies_columns():
            return None
        return moved(self.f, steps.b, self._next_columns(steps.is_last))

    def _copies_columns(self) -> bool:
        """True if the second operand is copied column by column, each of which is contiguous."""
        over, column = self.contraction.over, self.contraction.column.b
        if self.packs_a or not self.packs_b or self.contraction.b.is_packed:
            return False
        source = merged([GemmAxis(axis.extent, 0, axis.b) for axis in over])
        is_whole = len(source) == 1 and equals(source[0].b, 1) and not equals(column, 1)
        return is_whole and not any(isinstance(n, Value) for n in (column, source[0].extent))

    def _next_columns(self, is_last: Value | None) -> Size:
        """The distance to the next k-block of these columns, or to the first of the next ones."""
        columns = combine(self.f, "mul", self.width, self.contraction.column.b)
        if is_last is None:
            return columns
        before = int(math.prod(extents(self.contraction.over))) - self.depth
        there = combine(self.f, "add", columns, -before)
        return self.f.select(is_last, self.f.index(there), self.f.index(self.depth))

    def _in_lines(self, axes: Sequence[GemmAxis]) -> tuple[GemmAxis, ...] | None:
        """The axes, with iterations of the outermost one in which tiles prefetch a few lines.

        These are a line of each of some copied columns, or about a row of a packed block, whose
        tiles each prefetch a part. None if it has no such iterations. The strides are those in a
        copy.
        """
        line = LINE_BYTES * 8 // self.contraction.b.type.bits
        axis, *inner = axes or (GemmAxis(1),)
        if isinstance(axis.extent, Value) or isinstance(axis.b, Value):
            return None
        is_packed = self.contraction.b.is_packed
        steps = min(line, self._tiles) if is_packed else line
        most = max(1, steps * self.width // max(1, axis.b))
        count = next(n for n in range(most, 0, -1) if axis.extent % n == 0)
        if is_packed:
            if axis.b * count > line * self.width:
                return None
        elif axis.extent <= count or axis.b * count * 2 < line * self.width:
            return None
        stride = combine(self.f, "mul", axis.a, count)
        outer = GemmAxis(axis.extent // count, stride, axis.b * count)
        return (outer, *(() if count == 1 else (replace(axis, extent=count),)), *inner)

    @property
    def _tiles(self) -> int:
        """The tiles of a task that read the same block of columns, at most."""
        return self.strips * -(-self.height // self.tile.rows)

    def _chunk(self, number: Value, a: Matrix, b: Matrix) -> _Steps:
        """The steps of the k-block of that number, where the sum has several; `a` and `b` begin it.

        Each has one iteration of the outer axes, `outer`, and the iterations of the divided axis
        from `start` on.
        """
        f, axis = self.f, self.chunked
        assert axis is not None
        chunks = f.intrinsic("smax", f.index(ceil_div(f, axis.extent, self.chunk)), 1)
        start = combine(f, "mul", combine(f, "srem", number, chunks), self.chunk)
        outer = combine(f, "sdiv", number, chunks)
        iterations = combine(f, "add", combine(f, "mul", outer, axis.extent), start)
        inner = total(f, [inside.extent for inside in self.whole])
        before = combine(f, "mul", iterations, inner)
        left = combine(f, "add", combine(f, "mul", start, -1), axis.extent)
        is_exact = isinstance(axis.extent, int) and axis.extent and axis.extent % self.chunk == 0
        extent = self.chunk if is_exact else combine(f, "smin", left, self.chunk)
        a = moved(f, a, combine(f, "mul", start, axis.a))
        b = moved(f, b, combine(f, "mul", start, axis.b))
        for single in reversed(self.singles):
            size = f.intrinsic("smax", f.index(single.extent), 1)
            index = combine(f, "srem", outer, size)
            outer = combine(f, "sdiv", outer, size)
            a = moved(f, a, combine(f, "mul", index, single.a))
            b = moved(f, b, combine(f, "mul", index, single.b))
            # An empty sum has one k-block, which adds nothing.
            extent = combine(f, "mul", extent, combine(f, "smin", single.extent, 1))
        axes = replace(axis, extent=extent), *self.whole
        is_first = f.compare("eq", number, 0)
        is_last = f.compare("eq", number + 1, self._k_blocks())
        return _Steps(axes, a, b, start, before, is_first, is_last)

    def _needed(self, steps: _Steps) -> _Steps:
        """The steps within the bounds of the outermost axis, if it has any."""
        if not steps.axes or steps.axes[0].within is None:
            return steps
        f, (axis, *inner) = self.f, steps.axes
        low, high = steps.axes[0].within
        start = f.intrinsic("smax", low - steps.start, 0)
        stop = f.intrinsic("smin", high - steps.start, axis.extent)
        a = moved(f, steps.a, combine(f, "mul", start, axis.a))
        b = moved(f, steps.b, combine(f, "mul", start, axis.b))
        axis = replace(axis, extent=f.intrinsic("smax", stop - start, 0))
        return replace(steps, axes=(axis, *inner), a=a, b=b)

    def _first_operand(
        self, steps: _Steps, rows: tuple[Size, Size], block: Size
    ) -> tuple[Matrix, Size, Sequence[Size]]:
        """The first operand, its stride of rows and those of axes: in memory, or a copy.

        The first block of columns of a task copies it.
        """
        if not self.packs_a:
            return steps.a, self.contraction.row.a, [axis.a for axis in steps.axes]
        copy = partial(self.copies.copy_rows, steps.a, steps.axes, *rows)
        if isinstance(block, Value):
            self.f.branch(self.f.compare("eq", block, 0), copy)
        else:
            copy()
        return self.copies.band, self.copies.pitch, packed(steps.axes)

    def _second_operand(self, steps: _Steps, columns: Columns) -> tuple[Matrix, Sequence[Size]]:
        """The second operand and its strides of axes: in memory, or packed columns."""
        if self.packs_b:
            panel = self.copies.panel_of(steps.b, steps.axes, columns, steps.before)
            return panel, [step * self.width for step in packed(steps.axes)]
        return steps.b, [axis.b for axis in steps.axes]

    def _joined(self, dots: Dots, steps: _Steps, columns: Columns, number: Value | None) -> _KBlock:
        """The k-block of copies whose elements are joined for instructions that add several."""
        f, copies = self.f, self.copies
        depth = total(f, [axis.extent for axis in steps.axes])
        joined, starts = copies.joined_rows(dots, steps.b, steps.axes, columns, number)
        axes = (GemmAxis(ceil_div(f, depth, dots.count), 1, self.width),)
        rows = replace(copies.band, type=I32), copies.pitch // dots.count
        moved_by = starts if dots.moves else None
        ends = steps.is_first, steps.is_last
        return _KBlock(axes, *rows, Matrix(joined, I32), *ends, moved_by)

    def _rows(
        self,
        outer: Sequence[Size],
        start: Size,
        height: Size,
        columns: Columns,
        k_block: _KBlock,
        kept: Size,
    ) -> None:
        """The tiles of rows, whose partial sums begin at the row `kept`."""
        f, most = self.f, self.tile.rows

        def tile(row: Size, rows: int) -> None:
            self._tile(outer, start, row, rows, columns, k_block, combine(f, "add", kept, row))

        if isinstance(height, int):
            whole = height // most * most
            if whole == most:
                tile(0, most)
            elif whole:
                f.loop(0, whole, most, [], lambda row: tile(row, most))
            if height > whole:
                tile(whole, height - whole)
            return
        rest = self.rows % most if isinstance(self.rows, int) else None
        if rest == 0:
            f.loop(0, height, most, [], lambda row: tile(row, most))
            return
        rest_rows = f.arithmetic("urem", height, most)
        whole_rows = height - rest_rows
        f.loop(0, whole_rows, most, [], lambda row: tile(row, most))
        if rest is not None:
            f.branch(f.compare("slt", whole_rows, height), lambda: tile(whole_rows, rest))
            return
        size = 1 << (most - 1).bit_length() - 1
        while size:
            before = whole_rows + f.arithmetic("and", rest_rows, -2 * size)
            has = f.compare("ne", f.arithmetic("and", rest_rows, size), 0)
            f.branch(has, partial(tile, before, size))
            size //= 2

    def _tile(
        self,
        outer: Sequence[Size],
        start: Size,
        row: Size,
        rows: int,
        columns: Columns,
        k_block: _KBlock,
        kept_row: Size,
    ) -> None:
        f, contraction = self.f, self.contraction
        types = [Type(contraction.accumulator.element, lanes) for lanes in columns.lanes]
        first = combine(f, "add", start, row)
        indices = (*outer, first, columns.start)
        places = [
            (type, mask, (r, before))
            for r in range(rows)
            for before, type, mask in zip(columns.offsets, types, columns.masks, strict=True)
        ]

        def initial() -> list[Value]:
            return [initial_values(f, contraction, indices, *place) for place in places]

        def scratch() -> list[Value]:
            memory = self._scratch(combine(f, "mul", kept_row, self.width))
            return [
                advance(f, memory, r * self.width + before, contraction.accumulator)
                for _, _, (r, before) in places
            ]

        def keep(values: Sequence[Value]) -> None:
            for value, address in zip(values, scratch(), strict=True):
                f.store(value, address)

        def kept() -> list[Value]:
            return [
                f.load(type, address)
                for (type, _, _), address in zip(places, scratch(), strict=True)
            ]

        def finish(values: Sequence[Value]) -> None:
            if self.epilogue is not None:
                keep(values)
                return
            for value, (_, mask, ahead) in zip(values, places, strict=True):
                store(f, contraction, indices, value, mask, ahead)

        a = [moved(f, k_block.a, at) for at in self._row_places(first, row, rows, k_block)]
        b = [moved(f, k_block.b, n) for n in (columns.offsets if self.packs_b else columns.places)]
        values = (
            initial() if k_block.is_first is None else f.branch(k_block.is_first, initial, kept)
        )
        if k_block.moved is not None:
            places_moved = [advance(f, k_block.moved, n, I32) for n in columns.offsets]
            moved_by = [f.load(t, p) for t, p in zip(types, places_moved, strict=True)]
            values = [v + moved_by[n % len(types)] for n, v in enumerate(values)]
        if self.dots is not None and self.dots.in_tiles:
            values = self._in_tiles(self.dots, k_block, a[0], b[0], columns, values)
        elif self.dots is not None and self.dots.of_pairs and rows % 2 == 0:
            a = row_pairs.rows_of(f, a[0], rows, k_block.a_row)
            [axis] = k_block.axes
            values = row_pairs.add_products(f, self.dots.of_pairs, axis, a, b, values)
        else:
            ahead = self._ahead(k_block.axes)
            operands = a, k_block.a_row, b
            after = self._share(k_block, kept_row)
            values = self._accumulate(k_block.axes, *operands, types, columns, values, ahead, after)
        if k_block.is_last is None or self.epilogue is not None:
            finish(values)
        else:
            f.branch(k_block.is_last, lambda: finish(values), lambda: keep(values))

    def _in_tiles(
        self,
        dots: Dots,
        k_block: _KBlock,
        a: Matrix,
        b: Matrix,
        columns: Columns,
        values: Sequence[Value],
    ) -> list[Value]:
        """The values plus the products of a k-block."""
        f, lanes = self.f, columns.lanes
        rows = len(values) // len(lanes)
        starts = [r * sum(lanes) + n for r in range(rows) for n in columns.offsets]
        places = [advance(f, self.sums, start, I32) for start in starts]
        for value, place in zip(values, places, strict=True):
            f.store(value, place)
        shape, pitch = (rows, lanes), self.copies.pitch // dots.count
        operands = (a.pointer, pitch), (b.pointer, self.width)
        matrix_tiles.add_products(f, dots, shape, self.sums, *operands, k_block.axes[0].extent)
        return [f.load(value.type, place) for value, place in zip(values, places, strict=True)]

    def _row_places(self, first: Size, row: Size, rows: int, k_block: _KBlock) -> list[Size]:
        """The positions of the rows of a tile in the first operand; of the first one if all follow.

        `first` is the number of the first row among all, and `row` among those of the k-block.
        """
        if self.contraction.row_fold is None or self.packs_a:
            return [combine(self.f, "mul", row, k_block.a_row)]
        return folded_rows(self.f, self.contraction.row_fold, first, rows, k_block.a_row)

    def _share(self, k_block: _KBlock, row: Size) -> tuple[list[Matrix], int]:
        """The elements after a k-block that the tile from `row` on prefetches.

        These are the starts of adjacent ones, and the number that an iteration prefetches of each.
        """
        f, contraction = self.f, self.contraction
        if k_block.after is None:
            return [], 0
        axis = k_block.axes[0]
        assert isinstance(axis.b, int)
        number = combine(f, "sdiv", row, self.tile.rows)
        if contraction.b.is_packed:
            line = LINE_BYTES * 8 // contraction.b.type.bits
            count = up(-(-axis.b // self._tiles), line)
            before = combine(f, "mul", number, combine(f, "mul", count, axis.extent))
            return [moved(f, k_block.after, before)], count
        count = -(-self.width // self._tiles)
        first = combine(f, "mul", combine(f, "mul", number, count), contraction.column.b)
        after = moved(f, k_block.after, first)
        columns = [combine(f, "mul", n, contraction.column.b) for n in range(count)]
        return [moved(f, after, column) for column in columns], axis.b // self.width

    def _ahead(self, axes: Sequence[GemmAxis]) -> int:
        """The prefetch distance in the second operand, in elements; 0 if it is not prefetched.

        Hardware does not follow the short rows of a window of an image, which another CPU may just
        have written.
        """
        if self.packs_b or len(axes) < 2 or isinstance(axes[0].b, Value):
            return 0
        steps = max(1, math.prod(extents(axes[1:])))  # of an iteration
        return int(-(-Tiles.STEPS_AHEAD // steps)) * axes[0].b

    def _accumulate(
        self,
        axes: Sequence[GemmAxis],
        a: Sequence[Matrix],
        a_row: Size,
        b: Sequence[Matrix],
        types: Sequence[Type],
        columns: Columns,
        values: Sequence[Value],
        ahead: int,
        after: tuple[Sequence[Matrix], int] = ((), 0),
    ) -> list[Value]:
        """The values plus the products of the axes, in their order.

        Rows of the second operand are prefetched `ahead` elements before use, unless that is 0. An
        iteration of the outermost axis prefetches a number of elements `after` some addresses.
        """
        f, rows = self.f, len(values) // len(types)
        if not axes:
            add = self.dots.add if self.dots else partial(multiply_add, f)
            if self.dots:
                types = [type.of("i32") for type in types]
            scalar, copied = Type(types[0].element), self.packs_b
            if not f.module.has_avx512:
                # Factors that are loaded early take registers that the sums need.
                f.barrier()
            vectors = [
                load(f, memory, type, memory.pointer, None)
                if copied
                else columns.load(memory, type, n)
                for n, (memory, type) in enumerate(zip(b, types, strict=True))
            ]
            results = []
            for r in range(rows):
                memory = a[r] if r < len(a) else moved_ahead(f, a[0], combine(f, "mul", r, a_row))
                factor = convert(memory, f.load(memory.type, memory.pointer), scalar)
                for vector, value in zip(vectors, values[r * len(b) :], strict=False):
                    total = add(factor, vector, value)
                    # For some CPUs, LLVM would load the next factors earlier, and spill a sum.
                    is_ordered = not f.module.has_avx512 and _fills_register(total)
                    results.append(f.ordered(total) if is_ordered else total)
            return results
        axis, line = axes[0], LINE_BYTES * 8 // b[0].type.bits
        begins_row, *others = (isinstance(x.b, Value) or abs(x.b) >= line for x in axes)

        def iteration(index: Size, *current: Value) -> list[Value]:
            a_there = [moved(f, memory, combine(f, "mul", index, axis.a)) for memory in a]
            b_there = [moved(f, memory, combine(f, "mul", index, axis.b)) for memory in b]
            if ahead and begins_row and not any(others):
                for memory in b_there:
                    f.prefetch(advance(f, memory.pointer, ahead, memory.type))
            for memory in after[0]:
                first = combine(f, "mul", index, after[1])
                for step in range(0, after[1], line):
                    place = combine(f, "add", first, step)
                    f.prefetch(advance(f, memory.pointer, place, memory.type), level=2)
            rest = axes[1:]
            return self._accumulate(rest, a_there, a_row, b_there, types, columns, current, ahead)

        if math.prod(extents(axes)) * len(values) <= Tiles.UNROLL:
            for number in range(int(extents(axes)[0])):
                values = iteration(number, *values)
            return list(values)
        step = Tiles.STEPS.get(f.module.vector_registers, 1) if len(axes) == 1 else 1
        if step == 1:
            return f.loop(0, axis.extent, 1, values, iteration)

        def iterations(index: Value, *current: Value) -> list[Value]:
            """Several steps, whose addresses are at constant offsets from those of the first."""
            a_there = [moved(f, memory, combine(f, "mul", index, axis.a)) for memory in a]
            b_there = [moved(f, memory, combine(f, "mul", index, axis.b)) for memory in b]
            found = list(current)
            for number in range(step):
                there = [combine(f, "mul", number, stride) for stride in (axis.a, axis.b)]
                a_next = [moved_ahead(f, memory, there[0]) for memory in a_there]
                b_next = [moved_ahead(f, memory, there[1]) for memory in b_there]
                found = self._accumulate((), a_next, a_row, b_next, types, columns, found, 0)
            return found

        whole = combine(f, "mul", combine(f, "sdiv", axis.extent, step), step)
        values = f.loop(0, whole, step, values, iterations)
        return f.loop(whole, axis.extent, 1, values, iteration)


def finish_rows(
    f: Function,
    contraction: Gemm,
    epilogue: Epilogue,
    first: Indices,
    height: Size,
    lanes: int,
    mask: Value | None,
    sums: Callable[[Value], Value],
) -> None:
    """Store the results of an epilogue for a vector of columns, which may have a mask.

    `first` are the indices of the first element; `height` is the number of rows; `sums` are those
    of a row, counted from the first one.
    """
    *outer, start, column = first
    element = contraction.accumulator.element

    def loaded(row: Size, operand: Initial) -> Value:
        """The elements of an operand; a scalar if all columns share it."""
        if equals(operand.strides[-1], 0):
            return elements(f, operand, (*outer, row, column), Type(element), None)
        return elements(f, operand, (*outer, row, column), Type(element, lanes), mask)

    # Values that all rows share are hoisted out of the loop.
    fixed = {
        n: loaded(start, operand)
        for n, operand in enumerate(epilogue.operands)
        if equals(operand.strides[-2], 0)
    }
    frame = epilogue.frame(f)

    def finish(index: Value) -> None:
        row = combine(f, "add", start, index)
        total = sums(index)
        operands = [
            fixed[n] if n in fixed else loaded(row, operand)
            for n, operand in enumerate(epilogue.operands)
        ]
        with frame.level():
            frame.settle([total, *(v for n, v in enumerate(operands) if n not in fixed)])
            value = epilogue.compute(frame, total, operands)
            store(f, contraction, (*outer, row, column), value, mask)

    f.loop(0, height, 1, [], finish)


def _fills_register(value: Value) -> bool:
    return value.type.lanes * value.type.bits >= _LEAST_BITS


_LEAST_BITS = 128
"""The bits of the shortest vector register."""
