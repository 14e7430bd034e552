"""Emits matmuls with packed weights and many rows: weights are dequantised into panels once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Final

from typing_extensions import override

from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Run
from relaxpy.exec.machine.tuning import Weights
from relaxpy.exec.native.contraction.contract import emit_tiles
from relaxpy.exec.native.llvm.interleave import transposed
from relaxpy.exec.native.llvm.writer import I8, I32, Type, Value
from relaxpy.exec.native.loops.axes import Loops
from relaxpy.exec.native.loops.decoding import Decoder, Place, dots, fours, pairs
from relaxpy.exec.native.trees.product import is_factor, product_of
from relaxpy.exec.native.trees.repeated import Digits, RepeatedLoads
from relaxpy.exec.native.values.environment import Lanes
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import Mul, Var
from relaxpy.support.dataclass import replace

_STEP: Final = 32
"""The digits whose products with int8 are added in pairs to int16."""
_SIDE: Final = 8
"""The columns that are transposed together."""
_FLOAT = Type("float")


class _Panels(ABC):
    """The sums of a run for many rows, in panels of decoded columns.

    A panel has a part of the sum; those of several parts add to the target.
    """

    def __init__(self, loops: Loops, run: Run, decoder: Decoder, depth: int) -> None:
        self._loops, self._run, self._decoder = loops, run, decoder
        self._frame, self._function = loops.frame, loops.function
        self._repeated = repeated = decoder.repeated
        self._axis, *self._outer = repeated.outer
        inside = prod(axis.extent.constant or 0 for axis in self._outer)
        count = self._axis.extent.constant or 0
        parts = -(-count * inside * repeated.count // depth)
        self._size = -(-count // parts)
        self._blocks = self._size * inside

    @abstractmethod
    def _part(self, member: Assignment, columns: Axis, over: Sequence[Axis]) -> None:
        """The products with a panel, the part of the sum in these iterations of blocks."""

    def emit(self, columns: Axis) -> None:
        """Emit the products with `columns`, at least `PANEL` of them.

        The last panel overlaps the one before it if necessary.
        """
        frame, loops, f = self._frame, self._loops, self._function
        start, stop = loops.bounds(columns)
        last = f.index(stop) - Weights.PANEL

        def panel(index: Value) -> None:
            low = Var("low", INT64)
            with frame.level({low: f.intrinsic("smin", index, last)}):
                self._panel(Axis(columns.var, low, low + Weights.PANEL))

        loops.stretches(start, stop, Weights.PANEL, (), panel)
        frame.forget()

    def _panel(self, columns: Axis) -> None:
        """The products of all rows with the panels of some columns."""
        f, [member] = self._function, self._run.assignments
        adding = replace(member, initial=None)
        start, stop = self._loops.bounds(self._axis)
        assert isinstance(start, int)
        assert isinstance(stop, int)

        def part(member: Assignment, first: Value, size: int) -> None:
            low = Var("first", INT64)
            with self._frame.level({low: first}):
                axis = Axis(self._axis.var, low, low + size)
                self._part(member, columns, (axis, *self._outer))
            self._frame.forget()

        size = self._size
        whole = stop - (stop - start) % size
        part(member, f.index(start), size)
        f.loop(start + size, whole, size, [], lambda n: part(adding, n, size))
        if whole < stop:
            part(adding, f.index(whole), stop - whole)

    def _number(self, over: Sequence[Axis], factor: int) -> Value:
        """The number of the current block in its panel, times a factor."""
        number = as_poly(0)
        for axis in over:
            number = number * axis.extent + as_poly(axis.var) - as_poly(axis.start)
        return self._frame.index(number * factor)

    def _decode(self, over: Sequence[Axis], side: int, squares: Callable[[Value], None]) -> None:
        """`squares` for each block with the first of each `side` columns of a panel."""

        def block() -> Sequence[Value]:
            self._function.loop(0, Weights.PANEL, side, [], squares)
            return ()

        self._loops.nested(over, block, ())
        self._frame.forget()


class FloatPanels(_Panels):
    """Panels of floats, which are operands of tiled matmuls."""

    def __init__(self, loops: Loops, run: Run, decoder: Decoder) -> None:
        super().__init__(loops, run, decoder, Weights.DEPTH)
        f, elements = self._function, self._blocks * self._repeated.count * Weights.PANEL
        self._memory, self._lanes = f.alloca(_FLOAT, elements), f.module.vector_bits // 32

    @override
    def _part(self, member: Assignment, columns: Axis, over: Sequence[Axis]) -> None:
        repeated, frame = self._repeated, self._frame
        self._decode(over, self._lanes, partial(self._squares, columns, over))
        loops = (*over, *repeated.inner)
        panel = decl_buffer([*(a.extent.expr() for a in loops), Weights.PANEL], "float32", "panel")
        place = [(as_poly(a.var) - as_poly(a.start)).expr() for a in (*loops, columns)]
        assert repeated.own is not None
        value = Mul(repeated.own, BufferLoad(panel, place))
        axes = [columns if a is repeated.columns else a for a in self._run.axes]
        kept = tuple(a for a in axes if a is columns or a is repeated.rows)
        statement = replace(member, value=value)
        product = product_of(replace(self._run, statements=(statement,), axes=kept, over=loops))
        assert product is not None
        frame.pointers[panel] = self._memory
        emit_tiles(product, frame)
        del frame.pointers[panel]

    def _squares(self, columns: Axis, over: Sequence[Axis], column: Value) -> None:
        """Decode a block of some columns."""
        f, start = self._function, self._frame.index(columns.start) + column
        places = [{columns.var: start + lane} for lane in range(self._lanes)]
        row = self._number(over, self._repeated.count * Weights.PANEL) + column
        for n, values in enumerate(self._decoder.read_columns(places)):
            f.store(values, f.element(self._memory, row + n * Weights.PANEL, values.type))


class DigitPanels(_Panels):
    """Panels of scales, and of int8 with four successive values of a column adjacent.

    A block of the sum is exact, and multiplied by the scales of its columns.
    """

    def __init__(
        self,
        loops: Loops,
        run: Run,
        decoder: Decoder,
        digits: Digits,
        finish: Callable[[Run, Sequence[Value]], None],
    ) -> None:
        super().__init__(loops, run, decoder, Weights.DIGIT_DEPTH)
        f, self._digits, self._finish = self._function, digits, finish
        self._lanes = f.module.vector_bits // 32
        self._bytes = f.alloca(I8, self._blocks * self._repeated.count * Weights.PANEL)
        self._scales = f.alloca(_FLOAT, self._blocks * Weights.PANEL)
        self._starts = f.alloca(I32, self._blocks * Weights.ROWS)

    @override
    def _part(self, member: Assignment, columns: Axis, over: Sequence[Axis]) -> None:
        self._decode(over, _SIDE, partial(self._squares, columns, over))
        run = replace(self._run, statements=(member,))
        tile = partial(self._tile, run, columns, over)
        self._loops.several(self._repeated.rows, Weights.ROWS, tile)

    def _squares(self, columns: Axis, over: Sequence[Axis], column: Value) -> None:
        """Decode squares of columns and of four successive digits, and transpose them."""
        f, digits, frame, count = self._function, self._digits, self._frame, self._repeated.count
        stored, frame.stored = frame.stored, dict(frame.stored)
        words, number = [], self._number(over, Weights.PANEL) + column
        for n in range(_SIDE):
            place = {columns.var: frame.index(columns.start) + column + n}
            fields = self._decoder.fields(digits, place, 1)
            halves = f.arithmetic("and", fields, 15), f.arithmetic("lshr", fields, 4)
            order = [n // 2 + n % 2 * (count // 2) for n in range(count)]
            type = Type("i32", count // 4)
            words.append(f.new(type, f"bitcast {f.shuffle(*halves, order)} to {type}"))
            scale = self._decoder.scales(digits, place, 1, 1)
            f.store(scale, f.element(self._scales, number + n, _FLOAT))
        row = self._number(over, count // 4 * Weights.PANEL) + column
        for first in range(0, count // 4, _SIDE):
            parts = [f.shuffle(x, None, range(first, first + _SIDE)) for x in words]
            for n, values in enumerate(transposed(f, parts), first):
                f.store(values, f.element(self._bytes, row + n * Weights.PANEL, values.type))
        frame.stored = stored

    def _tile(self, run: Run, columns: Axis, over: Sequence[Axis], rows: Sequence[Place]) -> None:
        """The sums of some rows for all columns of a panel."""
        f, loops, frame, lanes = self._function, self._loops, self._frame, self._lanes
        vectors = range(0, lanes * Weights.VECTORS, lanes)
        zero = f.const(Type("float", lanes), 0)

        def starts() -> Sequence[Value]:
            for n, row in enumerate(rows):
                place = self._number(over, Weights.ROWS) + n
                f.store(self._start(row), f.element(self._starts, place, I32))
            return ()

        def some(column: Value) -> None:
            totals = loops.nested(
                over, partial(self._block, over, rows, column), [zero] * (len(rows) * len(vectors))
            )
            found = iter(totals)
            for row in rows:
                for before in vectors:
                    start = frame.index(columns.start) + column + before
                    with frame.level(row, lanes=Lanes(columns.var, start, lanes, None)):
                        self._finish(run, [next(found)])

        if self._digits.zero:
            loops.nested(over, starts, ())
        f.loop(0, Weights.PANEL, lanes * Weights.VECTORS, [], some)

    def _start(self, row: Place) -> Value:
        """The zero-point correction of the sum of a row."""
        f, total = self._function, None
        for first in range(0, self._repeated.count, _STEP):
            factors = self._factors(row, range(first, first + _STEP))
            sums = fours(pairs(f.const(factors.type, self._digits.zero), factors))
            total = sums if total is None else total + sums
        assert total is not None
        return f.fold_lanes([total], lambda x, y: x + y)[0]

    def _factors(self, row: Place, offsets: range) -> Value:
        """Some int8 values of a row, counted from the start of the current block."""
        with self._frame.level(row):
            return self._frame.load_offsets(self._digits.factors, offsets, self._repeated.inner)

    def _block(
        self, over: Sequence[Axis], rows: Sequence[Place], column: Value, *totals: Value
    ) -> Sequence[Value]:
        """The totals plus the products of a block."""
        f, lanes, count = self._function, self._lanes, self._repeated.count
        vectors = range(0, lanes * Weights.VECTORS, lanes)
        none = f.const(Type("i32", lanes), 0)
        sums = [none] * len(totals)
        base = self._number(over, count // 4 * Weights.PANEL) + column
        type, wide = Type("i8", 4 * lanes), Type("i32", lanes)
        for first in range(0, count, _STEP):
            short = [f.const(Type("i16", 2 * lanes), 0)] * len(totals)
            for n in range(first, first + _STEP, 4):
                digits = []
                for before in vectors:
                    at = f.element(self._bytes, base + (n // 4 * Weights.PANEL + before), wide)
                    digits.append(f.load(type, at))
                for r, row in enumerate(rows):
                    word = f.new(I32, f"bitcast {self._factors(row, range(n, n + 4))} to i32")
                    factors = f.new(type, f"bitcast {f.splat(word, lanes)} to {type}")
                    for v, vector in enumerate(digits):
                        place = r * Weights.VECTORS + v
                        if "vpdpbusd" in f.module.instructions:
                            sums[place] = dots(sums[place], vector, factors)
                        else:
                            short[place] = short[place] + pairs(vector, factors)
            if "vpdpbusd" not in f.module.instructions:
                sums = [x + fours(y) for x, y in zip(sums, short, strict=True)]
        scales = []
        for before in vectors:
            at = f.element(
                self._scales, self._number(over, Weights.PANEL) + column + before, _FLOAT
            )
            scales.append(f.load(Type("float", lanes), at))
        results = []
        for place, (total, sum_) in enumerate(zip(totals, sums, strict=True)):
            r, v = divmod(place, Weights.VECTORS)
            if self._digits.zero:
                start = f.load(
                    I32, f.element(self._starts, self._number(over, Weights.ROWS) + r, I32)
                )
                sum_ = sum_ - f.splat(start, lanes)
            results.append(f.fma(f.cast("sitofp", sum_, "float"), scales[v], total))
        return results


def has_panels(run: Run, repeated: RepeatedLoads) -> bool:
    """True if the sums of many rows can be computed in panels."""
    [member], axes = run.assignments, (*repeated.outer, *repeated.inner)
    columns = repeated.columns
    if repeated.rows is None or columns is None or repeated.own is None or not repeated.outer:
        return False
    if member.initial is None or any(a.extent.constant is None for a in axes):
        return False
    if any(a.extent.constant == 0 or as_poly(a.start).constant is None for a in axes):
        return False
    inside = prod(a.extent.constant or 0 for a in repeated.outer[1:]) * repeated.count
    extent = columns.extent.constant
    is_wide = extent is None or extent >= Weights.PANEL
    return is_wide and inside <= Weights.DEPTH and is_factor(repeated.own)
