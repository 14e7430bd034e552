"""Emits matmuls with packed weights and few rows (GEMV): weights are dequantised in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise, product
from operator import add

from relaxpy.exec.loops.nest.nodes import loads
from relaxpy.exec.loops.plan.tree import Run
from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.machine.tuning import Weights
from relaxpy.exec.native.llvm.writer import I8, Type, Value
from relaxpy.exec.native.loops.axes import Loops
from relaxpy.exec.native.loops.decoded_panels import DigitPanels, FloatPanels, has_panels
from relaxpy.exec.native.loops.decoding import Decoder, DigitSums, Place
from relaxpy.exec.native.trees.repeated import Digits, RepeatedLoads
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import replace


class DecodedSums:
    """The sums of a run for some rows and columns at once, with the innermost loops as lanes.

    An element is decoded once for the rows, and the other factor is read once for the columns.
    """

    def __init__(
        self,
        loops: Loops,
        run: Run,
        repeated: RepeatedLoads,
        finish: Callable[[Run, Sequence[Value]], None],
    ) -> None:
        if not loops.function.module.has_avx512 and not repeated.tables:
            # Bytes are extended when read, but not more than a register has.
            repeated = replace(repeated, lanes=min(repeated.lanes, 8))
        self._loops, self._run, self._repeated = loops, run, repeated
        self._frame, self._function = loops.frame, loops.function
        self._finish = finish
        self._prepared: Value | None = None
        self._decoder = Decoder(loops.frame, repeated)

    def emit(self) -> None:
        """Emit the loops of the run."""
        run, known = self._run, (self._repeated.rows, self._repeated.columns)
        rest = tuple(a for a in run.axes if all(a is not b for b in known))
        cells = Weights.CELLS[self._function.module.vector_bits]
        if self._digits is not None:
            cells = Weights.CELLS_OF_DIGITS[self._function.module.vector_bits]
        most = max(cells)

        def sums() -> None:
            self._loops.several(known[0], most, columns)

        def columns(rows: Sequence[Place]) -> None:
            count = cells[min(n for n in cells if n >= len(rows))]
            self._prepare(rows)
            self._loops.several(known[1], count, partial(self._sums, rows))

        self._loops.iterations(rest, lambda: self._in_panels(sums))

    def _in_panels(self, otherwise: Callable[[], None]) -> None:
        """The sums of many rows in panels of columns; those of few ones otherwise."""
        run, repeated, f = self._run, self._repeated, self._function
        rows, columns, digits = repeated.rows, repeated.columns, self._digits
        if not has_panels(run, repeated) or rows is None or columns is None:
            return otherwise()
        least_rows = Weights.LEAST_ROWS
        if digits is not None:
            least_rows = Weights.LEAST_DIGIT_ROWS[f.module.vector_bits]
        counts = []
        for axis, least in ((rows, least_rows), (columns, Weights.PANEL)):
            start, stop = self._loops.bounds(axis)
            counts.append(f.compare("sge", f.index(stop) - start, least))

        def panels() -> None:
            decoder = Decoder(self._frame, repeated)
            with self._frame.conditionally():
                if digits is None:
                    FloatPanels(self._loops, run, decoder).emit(columns)
                else:
                    DigitPanels(self._loops, run, decoder, digits, self._finish).emit(columns)

        def few() -> None:
            with self._frame.conditionally():
                otherwise()

        f.branch(f.arithmetic("and", *counts), panels, few)
        return None

    def _prepare(self, rows: Sequence[Place]) -> None:
        """Convert rows once for all columns: several rows of digits, or a single one to floats.

        Floats are in the order of the lanes. Where no other factor is packed, lanes have the order
        of memory, and read it unchanged.
        """
        repeated, f, own = self._repeated, self._function, self._repeated.own
        self._prepared, self._decoder.order = None, range(repeated.count)
        order, step = repeated.order, repeated.lanes
        is_packed = order != list(self._decoder.order)
        if own is None or repeated.columns is None or len(repeated.outer) != 1:
            return
        [axis] = repeated.outer
        extent, start = axis.extent.constant, self._loops.bounds(axis)[0]
        if extent is None or start != 0 or extent * repeated.count > Weights.PREPARED:
            return
        if (digits := self._digits) is not None:
            if len(rows) > 1:
                self._prepare_digits(rows, digits, extent)
            return
        if len(rows) != 1 or not is_packed:
            return
        [row] = rows
        memory = f.alloca(Type("float"), extent * repeated.count)

        def block() -> Sequence[Value]:
            parts = []
            for first in range(0, repeated.count, step):
                with self._decoder.numbered(first):
                    parts.append(self._decoder.read(own, row, first, {}))
            whole = reduce(_joined, parts)
            for first in range(0, repeated.count, step):
                lanes = f.shuffle(whole, None, order[first : first + step])
                f.store(lanes, self._place(memory, first))
            return ()

        self._loops.nested((axis,), block, ())
        self._prepared, self._decoder.order = memory, order

    def _prepare_digits(self, rows: Sequence[Place], digits: Digits, extent: int) -> None:
        """Store the factors of several rows, where a whole vector of blocks is multiplied."""
        f = self._function
        memory = f.alloca(I8, len(rows) * extent * self._repeated.count * 3 // 2)

        def store(places: Sequence[Place], _: Sequence[Value]) -> Sequence[Value]:
            with self._frame.level(places[0]), self._frame.conditionally():
                for number in range(len(rows) if len(places) == self._several else 0):
                    adder = self._adder(digits, rows, number, len(places))
                    adder.store(self._adder_place(memory, len(rows), number))
            return ()

        self._in_blocks(self._several, store, ())
        self._prepared = memory

    def _adder_place(self, memory: Value, rows: int, number: int) -> Value:
        """The address of the stored factors of a row in the current blocks."""
        [axis] = self._repeated.outer
        size = self._repeated.count * 3 // 2
        at = self._frame.index(axis.var) * (rows * size) + number * self._several * size
        return self._function.element(memory, at, I8)

    def _place(self, memory: Value, first: int) -> Value:
        """The address of the prepared lanes in the current iteration of the outer loop."""
        [axis] = self._repeated.outer
        at = self._frame.index(axis.var) * self._repeated.count + first
        return self._function.element(memory, at, Type("float", self._repeated.lanes))

    def _own(self, own: PrimExpr, row: Place, first: int) -> Value:
        """The factor of a row in the lanes from `first` on."""
        if self._prepared is None:
            return self._decoder.read(own, row, first, {})
        type = Type("float", self._repeated.lanes)
        return self._function.load(type, self._place(self._prepared, first))

    def _sums(self, rows: Sequence[Place], columns: Sequence[Place]) -> None:
        """The sums of some rows and columns."""
        if (digits := self._digits) is not None:
            self._sums_of_digits(rows, columns, digits)
            return
        f, repeated = self._function, self._repeated
        chains = repeated.count // repeated.lanes if len(rows) * len(columns) == 1 else 1

        def block(sums: Sequence[Value], *, is_first: bool) -> list[Value]:
            totals = list(sums)
            for number, first in enumerate(range(0, repeated.count, repeated.lanes)):
                with self._decoder.numbered(first):
                    # LLVM moves nothing past a prefetch: values that one row shares in a block are
                    # computed once, and the vectors of several rows stay in registers.
                    ahead = Weights.AHEAD if (number == 0 and is_first) or len(rows) > 1 else 0
                    decoded = [
                        self._decoder.read(repeated.shared, column, first, repeated.tables, ahead)
                        for column in columns
                    ]
                    some = slice(number % chains, None, chains)
                    if repeated.own is None:
                        totals[some] = map(add, decoded, totals[some])
                    else:
                        own = [self._own(repeated.own, row, first) for row in rows]
                        pairs = zip(product(own, decoded), totals[some], strict=True)
                        totals[some] = [f.fma(weight, x, sum_) for (x, weight), sum_ in pairs]
            return totals

        def blocks(places: Sequence[Place], sums: Sequence[Value]) -> Sequence[Value]:
            for number, place in enumerate(places):
                with self._frame.level(place):
                    sums = block(sums, is_first=number == 0)
            return sums

        none = f.const(Type("float", repeated.lanes), 0)
        sums = [none] * (len(rows) * len(columns) * chains)
        found = self._in_blocks(self._in_a_line if len(rows) == 1 else 1, blocks, sums)
        totals = [reduce(add, found[n : n + chains]) for n in range(0, len(found), chains)]
        self._finish_all(rows, columns, totals)

    def _finish_all(
        self, rows: Sequence[Place], columns: Sequence[Place], totals: Sequence[Value]
    ) -> None:
        """Store the results of some rows and columns, whose sums are the lanes of `totals`."""
        frame, results = self._frame, self._function.fold_lanes(totals, add)
        for (row, column), result in zip(product(rows, columns), results, strict=True):
            with frame.level({**row, **column}):
                frame.pin([result])
                self._finish(self._run, [result])

    def _in_blocks(
        self,
        several: int,
        body: Callable[[Sequence[Place], Sequence[Value]], Sequence[Value]],
        carried: Sequence[Value],
    ) -> Sequence[Value]:
        """`carried = body(blocks, carried)` for all blocks, `several` of them at once."""
        frame, loops, outer = self._frame, self._loops, self._repeated.outer
        if not outer:
            return body([{}], carried)
        axis = outer[-1]

        def some(index: Value, *values: Value, size: int) -> Sequence[Value]:
            frame.pin(values)
            if loops.tested:
                loops.leave_if_failed()
            places = [index, *(index + number for number in range(1, size))]
            stored, frame.stored = frame.stored, dict(frame.stored)
            with frame.level(), loops.opened(axis):
                frame.settle(places)
                result = body([{axis.var: place} for place in places], values)
            frame.stored = stored
            return result

        def along(*values: Value) -> Sequence[Value]:
            cuts = loops.cuts(axis, [several] if several > 1 else [])
            for (low, high), size in zip(pairwise(cuts), (several, 1), strict=False):
                values = tuple(loops.stretches(low, high, size, values, partial(some, size=size)))
            frame.pin(values)
            frame.forget()
            return values

        return loops.nested(outer[:-1], along, carried)

    @property
    def _in_a_line(self) -> int:
        """The blocks whose packed elements fill a cache line, which is prefetched at once."""
        repeated = self._repeated
        sizes = [
            (max(offsets) + 1) * load.buffer.dtype.bits // 8
            for load, offsets in repeated.offsets.items()
            if load in set(loads(repeated.decoded))
        ]
        return max(1, LINE_BYTES // max(sizes))

    @property
    def _digits(self) -> Digits | None:
        """The integers for dot-product instructions, if there are such instructions."""
        module = self._function.module
        has_pairs = "pmaddwd" in module.instructions and module.vector_bits >= 256
        return self._repeated.digits if has_pairs else None

    def _sums_of_digits(
        self, rows: Sequence[Place], columns: Sequence[Place], digits: Digits
    ) -> None:
        """As `_sums`, with exact sums of the integers of as many blocks as a vector has."""
        frame, f, count = self._frame, self._function, self._repeated.count
        zero = f.const(Type("float", f.module.vector_bits // 32), 0)

        def blocks(places: Sequence[Place], sums: Sequence[Value]) -> Sequence[Value]:
            size = len(places)
            lanes = min(size * count, f.module.vector_bits // 4) // Weights.OF_A_SUM
            with frame.level(places[0]), frame.conditionally():
                fields = [self._decoder.fields(digits, column, size) for column in columns]
                scales = [self._decoder.scales(digits, column, size, lanes) for column in columns]
                found = [
                    (adder.sums(x), scale)
                    for adder in [self._adder(digits, rows, n, size) for n in range(len(rows))]
                    for x, scale in zip(fields, scales, strict=True)
                ]
            return [self._plus(sum_, *x) for sum_, x in zip(sums, found, strict=True)]

        totals = self._in_blocks(self._several, blocks, [zero for _ in product(rows, columns)])
        self._finish_all(rows, columns, totals)

    def _plus(self, total: Value, sums: Value, scale: Value) -> Value:
        """`total` plus scaled integers, which may have fewer lanes."""
        f, lanes, few = self._function, total.type.lanes, sums.type.lanes
        floats = f.cast("sitofp", sums, "float")
        if few == lanes:
            return f.fma(floats, scale, total)
        places = [min(lane, few) for lane in range(lanes)]
        return total + f.shuffle(floats * scale, f.const(floats.type, 0), places)

    @property
    def _several(self) -> int:
        """The blocks whose digits fill a vector."""
        digits = self._digits
        bits = digits.bits if digits is not None else 1
        return max(1, self._function.module.vector_bits // bits // self._repeated.count)

    def _adder(self, digits: Digits, rows: Sequence[Place], number: int, size: int) -> DigitSums:
        """The accumulator of int8 products of some blocks of one of the rows."""
        count = size * self._repeated.count
        if self._prepared is not None and size == self._several:
            place = self._adder_place(self._prepared, len(rows), number)
            return DigitSums.load(self._function, place, count)
        with self._frame.level(rows[number]):
            factors = self._frame.load_offsets(digits.factors, range(count), self._repeated.inner)
        return DigitSums.of(self._function, digits.zero, factors)


def _joined(a: Value, b: Value) -> Value:
    """The lanes of `a`, a multiple of those of `b`, followed by those of `b`."""
    f, few, many = a.function, b.type.lanes, a.type.lanes
    wide = b if few == many else f.shuffle(b, None, [min(n, few - 1) for n in range(many)])
    return f.shuffle(a, wide, range(many + few))
