"""Emits sums of products with packed elements, which are decoded in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from itertools import pairwise, product
from math import prod
from operator import add
from typing import TypeAlias

from relaxpy.dataclass import replace
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.tree import Run
from relaxpy.exec.native.llvm.function import Type, Value
from relaxpy.exec.native.loops.axes import Loops
from relaxpy.exec.native.loops.digit_sums import DigitSums
from relaxpy.exec.native.trees.repeated import Digits, RepeatedLoads, Table
from relaxpy.exec.native.values.datatypes import value_type
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var

Place: TypeAlias = Mapping[Var, Value]
"""The values of variables in an iteration."""

_OF_A_SUM = 8
"""The digits of which a lane has the sum."""
_CELLS = {1: 1, 2: 4, 4: 4, 8: 3}
_FEWER_CELLS = {1: 1, 2: 2, 4: 1}
"""How many columns of sums fit into the registers with so many rows, with AVX-512 and without.

Those of a single row are read one by one, as memory has them: this is what their time is for.
"""
_CELLS_OF_DIGITS = {1: 1, 2: 2, 4: 2}
"""The same of columns whose integers are added as such."""
_PREPARED_BYTES = 1 << 16
"""The most memory for rows that are converted before all columns."""
_FLOAT_BYTES = 4
_NEAR = 1024
"""The elements of a row that the nearest cache has, together with those of the other rows."""
_AHEAD = 1 << 11
"""How many bytes ahead packed elements are fetched: processors do not see their order in time."""
_PERMUTATIONS = {16: "llvm.x86.avx512.permvar.sf.512", 8: "llvm.x86.avx2.permps"}
"""The instruction that selects floats of a register by their numbers, by its lanes."""


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
        self._loops, self._run, self._repeated = loops, run, repeated
        self._frame, self._function = loops.frame, loops.function
        self._finish = finish
        self._prepared: Value | None = None
        self._order: Sequence[int] = range(repeated.count)

    def emit(self) -> None:
        """Emit the loops of the run."""
        run, known = self._run, (self._repeated.rows, self._repeated.columns)
        rest = tuple(a for a in run.axes if all(a is not b for b in known))
        cells = _CELLS if self._function.module.has_avx512 else _FEWER_CELLS
        if self._digits is not None:
            cells = _CELLS_OF_DIGITS
        most = max(cells)

        def columns(rows: Sequence[Place]) -> None:
            count = cells[min(n for n in cells if n >= len(rows))]
            self._prepare(rows)
            self._parts(
                lambda *part: self._every(known[1], count, partial(self._sums, rows, *part))
            )

        self._loops.iterations(rest, lambda: self._every(known[0], most, columns))

    def _every(self, axis: Axis | None, most: int, body: Callable[[Sequence[Place]], None]) -> None:
        """`body` for all iterations of an axis, at most so many at once."""
        if axis is None:
            return body([{}])
        extent, frame = axis.extent.constant, self._frame
        steps = [most >> n for n in range(most.bit_length())]
        if extent is not None and extent <= most:
            steps = [max(extent, 1)]

        def some(index: Value, count: int) -> None:
            places = [index, *(index + n for n in range(1, count))]
            with frame.level(), self._loops.opened(axis):
                frame.settle(places)
                body([{axis.var: place} for place in places])

        cuts = self._loops.cuts(axis, steps)
        for (low, high), step in zip(pairwise(cuts), steps, strict=False):
            self._loops.stretches(low, high, step, (), partial(some, count=step))
        return None

    def _prepare(self, rows: Sequence[Place]) -> None:
        """Convert the rows to floats in the order of the lanes, once for all columns.

        Where no other factor is packed, lanes have the order of memory, and read it as it is.
        """
        repeated, f, own = self._repeated, self._function, self._repeated.own
        self._prepared, self._order = None, range(repeated.count)
        order = repeated.order
        is_packed = order != list(self._order) and self._digits is None
        if own is None or repeated.columns is None or len(repeated.outer) != 1 or not is_packed:
            return
        [axis] = repeated.outer
        extent, start = axis.extent.constant, self._loops.bounds(axis)[0]
        if extent is None or start != 0:
            return
        size, step = extent * repeated.count, repeated.lanes
        if size * len(rows) * _FLOAT_BYTES > _PREPARED_BYTES:
            return
        memory = f.alloca(Type("float"), size * len(rows))

        def block() -> Sequence[Value]:
            for number, row in enumerate(rows):
                parts = []
                for first in range(0, repeated.count, step):
                    with self._numbered(first):
                        parts.append(self._read(own, row, first, {}))
                whole = reduce(_joined, parts)
                for first in range(0, repeated.count, step):
                    lanes = f.shuffle(whole, None, order[first : first + step])
                    f.store(lanes, self._place(memory, number, first))
            return ()

        self._loops.nested((axis,), block, ())
        self._prepared, self._order = memory, order

    def _place(self, memory: Value, row: int, first: int) -> Value:
        """Where the prepared lanes of a row are in the running iteration of the outer loop."""
        [axis] = self._repeated.outer
        count, extent = self._repeated.count, axis.extent.constant
        assert extent is not None
        at = self._frame.index(axis.var) * count + (row * extent * count + first)
        return self._function.element(memory, at, Type("float", self._repeated.lanes))

    def _own(self, own: PrimExpr, row: Place, number: int, first: int) -> Value:
        """The factor of a row in the lanes from `first` on."""
        if self._prepared is None:
            return self._read(own, row, first, {})
        type = Type("float", self._repeated.lanes)
        return self._function.load(type, self._place(self._prepared, number, first))

    @contextmanager
    def _numbered(self, first: int) -> Iterator[None]:
        """A context in which variables have the values of the lanes from `first` on."""
        frame, f, repeated = self._frame, self._function, self._repeated
        stored, frame.stored = frame.stored, dict(frame.stored)
        with frame.level(), frame.conditionally():
            for var, numbers in repeated.numbers.items():
                frame.bind(var, f.constants(value_type(var.dtype), self._lanes(numbers, first)))
            yield
        frame.stored = stored

    def _lanes(self, numbers: Sequence[int], first: int) -> list[int]:
        """The numbers of a block that belong to the lanes from `first` on."""
        return [numbers[n] for n in self._order[first : first + self._repeated.lanes]]

    def _parts(self, body: Callable[[Run, Sequence[Axis]], None]) -> None:
        """`body` for parts of the sums, of which all rows are near, and which add to the target."""
        run, repeated, f = self._run, self._repeated, self._function
        extents = [axis.extent.constant for axis in repeated.outer]
        known = [n for n in extents if n is not None]
        rows = None if repeated.rows is None else repeated.rows.extent.constant
        if repeated.rows is None or rows == 1 or not known or len(known) < len(extents):
            return body(run, repeated.outer)
        [axis, *inner], [count, *_] = repeated.outer, known
        size = max(1, _NEAR // (prod(known[1:]) * repeated.count))
        start, stop = self._loops.bounds(axis)
        if start != 0 or size >= count:
            return body(run, repeated.outer)

        def part(run: Run, low: PrimExpr, high: PrimExpr) -> None:
            body(run, (Axis(axis.var, low, high), *inner))

        def following(index: Value) -> None:
            low, high = Var("lo", INT64), Var("hi", INT64)
            end = f.intrinsic("smin", index + size, f.index(stop))
            with self._frame.level({low: index, high: end}):
                part(adding, low, high)

        [member] = run.assignments
        adding = replace(run, statements=(replace(member, initial=None),))
        part(run, IntImm(INT64, 0), IntImm(INT64, size))
        self._loops.stretches(size, stop, size, (), following)
        return None

    def _sums(
        self, rows: Sequence[Place], run: Run, outer: Sequence[Axis], columns: Sequence[Place]
    ) -> None:
        """The sums of some rows and columns over the iterations of `outer`."""
        f, repeated = self._function, self._repeated
        numbered = [(row, number) for number, row in enumerate(rows)]
        chains = repeated.count // repeated.lanes if len(rows) * len(columns) == 1 else 1

        def block(*sums: Value) -> Sequence[Value]:
            totals = list(sums)
            for number, first in enumerate(range(0, repeated.count, repeated.lanes)):
                with self._numbered(first):
                    ahead = 0 if number else _AHEAD
                    decoded = [
                        self._read(repeated.shared, column, first, repeated.tables, ahead)
                        for column in columns
                    ]
                    some = slice(number % chains, None, chains)
                    if repeated.own is None:
                        totals[some] = map(add, decoded, totals[some])
                    else:
                        own = [self._own(repeated.own, *row, first) for row in numbered]
                        pairs = zip(product(own, decoded), totals[some], strict=True)
                        totals[some] = [f.fma(weight, x, sum_) for (x, weight), sum_ in pairs]
            return totals

        if (digits := self._digits) is not None:
            self._sums_of_digits(rows, run, outer, columns, digits)
            return
        none = f.const(Type("float", repeated.lanes), 0)
        found = self._loops.nested(outer, block, [none] * (len(rows) * len(columns) * chains))
        totals = [reduce(add, found[n : n + chains]) for n in range(0, len(found), chains)]
        for (row, column), total in zip(product(rows, columns), totals, strict=True):
            with self._frame.level({**row, **column}):
                result = f.fold_lanes(total, lambda x, y: x + y)
                self._frame.pin([result])
                self._finish(run, [result])

    @property
    def _digits(self) -> Digits | None:
        """The integers whose products are added as such, if there are instructions for that."""
        module = self._function.module
        has_pairs = module.triple.startswith("x86_64") and module.vector_bits >= 256
        return self._repeated.digits if has_pairs else None

    def _sums_of_digits(
        self,
        rows: Sequence[Place],
        run: Run,
        outer: Sequence[Axis],
        columns: Sequence[Place],
        digits: Digits,
    ) -> None:
        """As `_sums`, with exact sums of the integers of as many blocks as a vector has."""
        frame, f, loops, count = self._frame, self._function, self._loops, self._repeated.count
        several = max(1, f.module.vector_bits // digits.bits // count)
        zero = f.const(Type("float", f.module.vector_bits // 32), 0)
        *before, axis = outer

        def blocks(index: Value, *sums: Value, size: int) -> Sequence[Value]:
            frame.pin(sums)
            stored, frame.stored = frame.stored, dict(frame.stored)
            with frame.level({axis.var: index}), loops.opened(axis), frame.conditionally():
                fields = [self._fields(digits, column, size) for column in columns]
                scales = [self._scales(digits, column, size) for column in columns]
                found = [
                    (adder.sums(x), scale)
                    for adder in [self._adder(digits, row, size) for row in rows]
                    for x, scale in zip(fields, scales, strict=True)
                ]
            frame.stored = stored
            return [self._plus(sum_, *x) for sum_, x in zip(sums, found, strict=True)]

        def along(*sums: Value) -> Sequence[Value]:
            results: Sequence[Value] = sums
            cuts = loops.cuts(axis, [several] if several > 1 else [])
            for (low, high), size in zip(pairwise(cuts), (several, 1), strict=False):
                results = loops.stretches(low, high, size, results, partial(blocks, size=size))
            frame.pin(results)
            frame.forget()
            return results

        totals = loops.nested(before, along, [zero for _ in product(rows, columns)])
        for (row, column), total in zip(product(rows, columns), totals, strict=True):
            with frame.level({**row, **column}):
                result = f.fold_lanes(total, lambda x, y: x + y)
                frame.pin([result])
                self._finish(run, [result])

    def _plus(self, total: Value, sums: Value, scale: Value) -> Value:
        """`total` plus scaled integers, which may have fewer lanes."""
        f, lanes, few = self._function, total.type.lanes, sums.type.lanes
        floats = f.cast("sitofp", sums, "float")
        if few == lanes:
            return f.fma(floats, scale, total)
        places = [min(lane, few) for lane in range(lanes)]
        return total + f.shuffle(floats * scale, f.const(floats.type, 0), places)

    def _adder(self, digits: Digits, row: Place, size: int) -> DigitSums:
        """What adds products with the int8 of some blocks of a row."""
        offsets = range(size * self._repeated.count)
        with self._frame.level(row):
            factors = self._frame.load_offsets(digits.factors, offsets, self._repeated.inner)
        return DigitSums(self._function, digits.zero, factors)

    def _fields(self, digits: Digits, column: Place, size: int) -> Value:
        """The packed integers of some blocks as bytes."""
        packed = digits.packed
        count = size * self._repeated.count * digits.bits // packed.buffer.dtype.bits
        with self._frame.level(column):
            value = self._frame.load_offsets(packed, range(count), self._repeated.inner, _AHEAD)
        type = Type("i8", value.type.lanes * value.type.bits // 8)
        return self._function.new(type, f"bitcast {value} to {type}")

    def _scales(self, digits: Digits, column: Place, size: int) -> Value:
        """The scales of some blocks, in as many lanes as these have sums."""
        frame = self._frame
        digit_count = min(size * self._repeated.count, self._function.module.vector_bits // 4)
        lanes = digit_count // _OF_A_SUM
        with frame.level(column):
            for load, step in digits.steps.items():
                offsets = [step * (lane * size // lanes) for lane in range(lanes)]
                loaded = frame.load_offsets(load, offsets, self._repeated.inner)
                frame.stored[load.buffer, load.indices] = frame.widened(loaded, load.buffer.dtype)
            value = frame.wide(frame.value(digits.scale), lanes)
        frame.pin([value])
        return value

    def _read(
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
                frame.bind(var, self._entries(table))
            self._load(factor, first, ahead)
            value = frame.wide(frame.value(factor), self._repeated.lanes)
        frame.pin([value])
        return value

    def _load(self, value: PrimExpr, first: int, ahead: int) -> None:
        """Read what a value needs of memory."""
        frame, repeated = self._frame, self._repeated
        for load in dict.fromkeys(loads(value)):
            offsets = self._lanes(repeated.offsets[load], first)
            loaded = frame.load_offsets(load, offsets, repeated.inner, ahead)
            frame.stored[load.buffer, load.indices] = frame.widened(loaded, load.buffer.dtype)

    def _entries(self, table: Table) -> Value:
        """The entries of a table, which are in one register if there is an instruction for that."""
        frame, f, lanes = self._frame, self._function, self._repeated.lanes
        if not f.module.has_avx512 or table.count > lanes:
            return frame.value(table.value)
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


def _joined(a: Value, b: Value) -> Value:
    """The lanes of `a`, whose number is a multiple of that of `b`, and those of `b`."""
    f, few, many = a.function, b.type.lanes, a.type.lanes
    wide = b if few == many else f.shuffle(b, None, [min(n, few - 1) for n in range(many)])
    return f.shuffle(a, wide, range(many + few))
