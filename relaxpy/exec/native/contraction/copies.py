"""Packs the operands of a task of a contraction into scratch memory.

Rows of the first operand and blocks of columns of the second one are copied in the order in which
tiles read them. Successive int8 values of a column are adjacent, for dot-product instructions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from relaxpy.exec.native.contraction.blocking import Columns, each, merged_strides, packed, up
from relaxpy.exec.native.contraction.dots import Dots, Read, rows_in_copy, rows_in_place
from relaxpy.exec.native.contraction.geometry import RegisterTile, folded_rows
from relaxpy.exec.native.contraction.operands import (
    Gemm,
    GemmAxis,
    Matrix,
    Size,
    advance,
    combine,
    convert,
    equals,
    extents,
    moved,
    total,
)
from relaxpy.exec.native.contraction.panels import Block, pack
from relaxpy.exec.native.llvm.writer import I32, Function, Type, Value
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """The block sizes: steps of the sum (k-blocking), columns of a block, and rows of a task."""

    depth: int
    width: int
    height: int


class Copies:
    """The packed copies of a task of `contraction`; `dots` are its int8 dot products, if any.

    Memory has to be allocated before copying.
    """

    band: Matrix
    """The rows of the first operand, `pitch` elements apart."""

    def __init__(
        self,
        f: Function,
        contraction: Gemm,
        tile: RegisterTile,
        dots: Dots | None,
        sizes: BlockSizes,
    ) -> None:
        self.f, self.contraction, self.dots, self.sizes = f, contraction, dots, sizes
        self.lanes = tile.lanes
        self.packed = dots.packed if dots else contraction.accumulator
        # Rows of a copy begin in different cache sets.
        self.pitch = up(sizes.depth, self._wide()) + self._wide()

    def allocate_rows(self) -> None:
        """Allocate memory for rows of the first operand."""
        rows = up(self.sizes.height, self.lanes)
        self.band = Matrix(self.f.alloca(self.packed, rows * self.pitch), self.packed)

    def allocate_columns(self) -> None:
        """Allocate memory for a block of columns of the second operand."""
        f, width = self.f, self.sizes.width
        size = (up(self.sizes.depth, self.lanes) + self.lanes) * width
        self.panel = f.alloca(self.packed, size)
        if self.dots:
            self.joined = f.alloca(self.packed, size)
            self.moved = f.alloca(self.contraction.accumulator, width)

    @property
    def joins_in_place(self) -> bool:
        """True if rows of the second operand are joined without another copy."""
        contraction, dots = self.contraction, self.dots
        has_type = dots is not None and dots.packed == contraction.b.type
        return has_type and equals(contraction.column.b, 1) and self.f.module.has_avx512

    def _wide(self) -> int:
        """The elements of a copy in a vector."""
        return self.f.module.vector_bits // self.packed.bits

    def _lanes_along(self, extent: Size) -> int:
        """The vector length for copying rows of this extent: AVX-512 has masks for all."""
        is_whole = isinstance(extent, Value) or extent % self._wide() == 0
        return self._wide() if is_whole or self.f.module.has_avx512 else self.lanes

    def joined_rows(
        self,
        dots: Dots,
        b: Matrix,
        axes: Sequence[GemmAxis],
        columns: Columns,
        number: Value | None,
    ) -> list[Value]:
        """The addresses of the joined rows of a k-block, and of its zero-point corrections.

        If the whole operand is packed already, they are parts of that.
        """
        f, whole = self.f, self.contraction.b
        if whole.is_packed:
            groups = up(self.sizes.depth, dots.count) // dots.count
            height = groups + dots.moves
            stretches = int(math.prod(extents(self.contraction.over))) // self.sizes.depth
            place = combine(f, "mul", columns.start, stretches * height)
            before = combine(f, "mul", 0 if number is None else number, height * self.sizes.width)
            joined = advance(f, whole.pointer, combine(f, "add", place, before), I32)
            return [joined, advance(f, joined, groups * self.sizes.width, I32)]
        rows = total(f, [x.extent for x in axes])
        read = self._read_rows(dots, b, axes, columns)
        starts = dots.join_rows(f, read, self.joined, rows, self.sizes.width, columns)
        for before, start in zip(columns.offsets, starts, strict=False):
            f.store(start, advance(f, self.moved, before, I32))
        return [self.joined, self.moved]

    def _read_rows(self, dots: Dots, b: Matrix, axes: Sequence[GemmAxis], columns: Columns) -> Read:
        """The reader of rows of the second operand to be joined: in place, or from a copy."""
        f = self.f
        over = merged_strides(f, [GemmAxis(x.extent, 0, x.b) for x in axes])
        if self.joins_in_place:
            return rows_in_place(b, over, columns)
        self._copy_columns(b, axes, columns)
        return rows_in_copy(Matrix(self.panel, dots.packed), self.sizes.width, columns)

    def panel_of(
        self, b: Matrix, axes: Sequence[GemmAxis], columns: Columns, before: Size
    ) -> Matrix:
        """A copy of a block, whose rows follow `before` others of the same columns.

        If the whole operand is packed already, it is a part of that.
        """
        if self.contraction.b.is_packed:
            return self.packed_panel(columns, before)
        self._copy_columns(b, axes, columns)
        return Matrix(self.panel, self.packed)

    def packed_panel(self, columns: Columns, before: Size, *, is_next: bool = False) -> Matrix:
        """That part of a packed operand; the k-block after it, or the first after the last one."""
        f, width, extent = self.f, self.sizes.width, self.contraction.column.extent
        rows = int(math.prod(extents(self.contraction.over)))
        place = combine(f, "mul", columns.start, rows)
        place = combine(f, "add", place, combine(f, "mul", before, width))
        if is_next:
            assert isinstance(extent, int)
            place = combine(f, "add", place, self.sizes.depth * width)
            place = combine(f, "srem", place, up(extent, width) * rows)
        return moved(f, self.contraction.b, place)

    def copy_rows(self, a: Matrix, axes: Sequence[GemmAxis], start: Size, height: Size) -> None:
        """Copy rows from `a` on; if rows are folded, from the one of number `start` on."""
        f, row, fold = self.f, self.contraction.row, self.contraction.row_fold
        a = self.dots.first(a) if self.dots else a
        axes = merged_strides(f, [GemmAxis(x.extent, 0, x.a) for x in axes])
        extent, stride = (axes[-1].extent, axes[-1].b) if axes else (1, 1)
        is_along = axes and equals(stride, 1)
        lanes = self._lanes_along(extent) if is_along else self.lanes
        swaps = self.dots is not None and self.dots.swaps
        swaps_here = swaps and is_along and len(axes) == 1
        if swaps_here:
            a = replace(a, convert=partial(_with_swapped_pairs, a))
        vector = Type(self.packed.element, lanes)

        def copy(at: Size, target: Size) -> None:
            block = Block(moved(f, a, at).pointer, height, extent, row.a, stride)
            there = advance(f, self.band.pointer, target, vector)
            if fold is None:
                pack(f, a, block, there, self.pitch, vector)
                return

            def copy_row(number: Value) -> None:
                [place] = folded_rows(f, fold, combine(f, "add", start, number), 1, row.a)
                one = replace(
                    block, pointer=moved(f, a, combine(f, "add", at, place)).pointer, rows=1
                )
                pack(f, a, one, advance(f, there, number * self.pitch, vector), self.pitch, vector)

            f.loop(0, height, 1, [], copy_row)

        each(f, axes[:-1], [axis.b for axis in axes[:-1]], packed(axes)[:-1], copy)
        if swaps and not swaps_here:
            self._swap_pairs(height, total(f, [axis.extent for axis in axes]))

    def _swap_pairs(self, height: Size, depth: Size) -> None:
        """Exchange the elements of each pair in the copied rows."""
        f, lanes = self.f, self._wide()
        vector = Type(self.packed.element, lanes)

        def swap(row: Value, column: Value) -> None:
            place = advance(f, self.band.pointer, row * self.pitch + column, vector)
            f.store(_swapped_pairs(f.load(vector, place)), place)

        f.loop(
            *(0, height, 1, []),
            lambda row: f.loop(0, depth, lanes, [], lambda column: swap(row, column)) and None,
        )

    def _copy_columns(self, b: Matrix, axes: Sequence[GemmAxis], columns: Columns) -> None:
        f, column = self.f, self.contraction.column
        b = self.dots.second(b) if self.dots else b
        vector = Type(self.packed.element, self.lanes)
        extent: Size = sum(columns.lanes)
        if isinstance(column.extent, Value):
            left = column.extent - f.index(columns.start)
            extent = combine(f, "smin", left, extent)
        elif not isinstance(columns.start, Value):
            extent = min(sum(columns.lanes), column.extent - columns.start)

        axes = merged_strides(f, [GemmAxis(x.extent, 0, x.b) for x in axes])

        def copy(at: Size, target: Size) -> None:
            rows, stride = (axes[-1].extent, axes[-1].b) if axes else (1, 1)
            block = Block(moved(f, b, at).pointer, rows, extent, stride, column.b)
            place = advance(f, self.panel, combine(f, "mul", target, self.sizes.width), vector)
            pack(f, b, block, place, self.sizes.width, vector)

        each(f, axes[:-1], [axis.b for axis in axes[:-1]], packed(axes)[:-1], copy)
        if isinstance(extent, Value) and not self.dots:
            self._clear_columns(extent, total(f, [axis.extent for axis in axes]))

    def _clear_columns(self, first: Value, rows: Size) -> None:
        """Store zeros in the vectors of a block after those that begin before column `first`.

        Tiles multiply these as well: the values that memory had before may be subnormal, and slow.
        """
        f, width = self.f, self.sizes.width
        vector = Type(self.packed.element, self.lanes)

        def store(column: Value, row: Value) -> None:
            f.store(f.const(vector, 0), advance(f, self.panel, row * width + column, vector))

        def clear(column: Value) -> None:
            f.loop(0, rows, 1, [], partial(store, column))

        start = f.arithmetic("and", first + (self.lanes - 1), -self.lanes)
        f.loop(start, width, self.lanes, [], clear)


def _with_swapped_pairs(memory: Matrix, raw: Value) -> Value:
    return _swapped_pairs(convert(memory, raw, Type("i16", raw.type.lanes)))


def _swapped_pairs(value: Value) -> Value:
    return value.function.shuffle(value, None, [n ^ 1 for n in range(value.type.lanes)])
