"""Emits runs: loops in which stores and accumulations run side by side, in vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from relaxpy.exec.loops.nest.buffers import position_of, strides_of
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Run
from relaxpy.exec.machine.tuning import Vectors
from relaxpy.exec.native.contraction.contract import emit_product
from relaxpy.exec.native.llvm.interleave import transposed
from relaxpy.exec.native.llvm.writer import I64, Value
from relaxpy.exec.native.loops.axes import Loops
from relaxpy.exec.native.trees.cost import has_long_code
from relaxpy.exec.native.trees.masks import Masked
from relaxpy.exec.native.trees.product import Product
from relaxpy.exec.native.trees.repeated import RepeatedLoads
from relaxpy.exec.native.trees.short_rows import ShortRows, Step
from relaxpy.exec.native.trees.strategy import (
    LANE_BITS,
    SEARCHED,
    Carried,
    Columns,
    Context,
    Elements,
    Reduction,
    Search,
    most_lanes,
    strategy_of,
    unroll_of,
)
from relaxpy.exec.native.trees.transpose import Transpose
from relaxpy.exec.native.values.accumulate import combined, identity
from relaxpy.exec.native.values.datatypes import storage_type, value_type
from relaxpy.exec.native.values.environment import Lanes
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Add, Cast, Max, Min, Mul, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import replace


class RunLoops(Loops):
    """Emits runs of assignments, those of `masked` blocks for the columns that a mask shows."""

    masked: Masked | None = None

    def run(self, run: Run) -> None:
        """Emit the loops of a run."""
        written = {m.target for m in run.stores}
        with self.frame.writing(self.aliases(written)):
            self._run(run)

    def _run(self, run: Run) -> None:
        context = Context(
            self.proofs, self._has_whole_rows, self._with_all_columns, self.frame.axes
        )
        match strategy_of(run, self.program, context):
            case Transpose() as transpose:
                rest = tuple(a for a in run.axes if a not in (transpose.along, transpose.across))
                self.iterations(rest, lambda: self._transposed(run, transpose), listens=True)
            case ShortRows() as rows:
                self.rows(rows)
            case Product() as product:
                whole = self._with_all_columns(run)
                columns, over = (
                    None if a == b else self._shown()
                    for a, b in ((whole.axes, run.axes), (whole.over, run.over))
                )
                in_task = self.in_task or self.program.is_short
                emit_product(product, self.frame, in_task=in_task, columns=columns, over=over)
                self.frame.forget()
            case RepeatedLoads() as repeated:
                from relaxpy.exec.native.loops.decoded_sums import DecodedSums

                DecodedSums(self, run, repeated, self._finish).emit()
            case Carried(along=along, rows=rows, before=before):
                *outer, _ = rows.ordered
                carried = partial(self._carried, rows, along, before)
                self.iterations(outer, carried, listens=True)
            case Columns(along=along, form="swept"):
                rest = tuple(a for a in run.axes if a is not along)
                self.iterations(rest, lambda: self._sweep(run, along), listens=True)
            case Columns(along=along, form=form, beside=beside):
                rest = tuple(a for a in run.axes if a is not along and a is not beside)
                count = self._together_in(run, along) if form == "wide" else 1
                of_columns = partial(self._columns, run, along, count, beside)
                self.iterations(rest, of_columns, listens=True)
            case Reduction(along=along):
                self.iterations(run.axes, lambda: self._element(run, along))
            case Search(condition=condition):
                self.iterations(run.axes, lambda: self._search(run, condition))
            case Elements():
                self.iterations(run.axes, lambda: self._one_by_one(run))
            case _:
                raise AssertionError("a run in the order of the text")

    def _with_all_columns(self, run: Run) -> Run:
        """A run over the columns that a mask shows as one over all of them."""
        if self.masked is None:
            return run
        masked = self.masked

        def whole(axis: Axis) -> Axis:
            if axis.start is not masked.first:
                return axis
            return Axis(axis.var, masked.columns.start, masked.columns.stop)

        axes, over = (tuple(map(whole, loops)) for loops in (run.axes, run.over))
        return run if axes == run.axes and over == run.over else replace(run, axes=axes, over=over)

    def _shown(self) -> tuple[Value, Value]:
        """The range of the columns that a mask shows."""
        assert self.masked is not None
        return self.frame.variable(self.masked.first), self.frame.variable(self.masked.last)

    def _has_whole_rows(self, buffer: Buffer) -> bool:
        """True if the strides of a buffer are those declared, also in a block of rows."""
        strides, _ = self.frame.blocks.get(buffer, (None, None))
        declared = map(as_poly, strides_of(buffer))
        return strides is None or all(a.same(b) for a, b in zip(strides, declared, strict=True))

    def aliases(self, written: set[Buffer]) -> frozenset[Buffer]:
        """The buffers that use the memory of `written`."""
        root = self.plan.shared
        owners = {root.get(b, b) for b in written}
        return frozenset({*owners, *(b for b, owner in root.items() if owner in owners)})

    def count(self, run: Run, along: Axis) -> int:
        """The number of lanes for the values of a run.

        Gathers have half of them: their positions have 64 bits, and a tail takes as long as a whole
        vector.
        """
        elements = [e for m in run.assignments for e in m.elements()]
        gathers = any(_is_gathered(position_of(*element), along.var) for element in elements)
        return most_lanes(run) // (2 if gathers else 1)

    def _columns(self, run: Run, along: Axis, count: int = 1, beside: Axis | None = None) -> None:
        """The iterations of `along` as lanes, of `count` vectors; accumulations run inside.

        Several iterations of the axis `beside` are computed together.
        """
        twice, size = self._repeats(run), self._short_count(run, along)

        def chunk(lanes: Lanes, number: int) -> Sequence[Value]:
            with self.frame.level(lanes=lanes):
                together = partial(self._together, run, lanes.count)
                self.several(beside, Vectors.BESIDE, together, twice=twice)
            return ()

        is_long = has_long_code(run, 1 if beside is None else Vectors.BESIDE)
        chunks = partial(self.chunks, along, size, count, chunk, ())
        chunks(wide=True, twice=twice, is_long=is_long)

    def _short_count(self, run: Run, along: Axis) -> int:
        """The number of lanes, of a short row as many as it fills by more than half.

        They have at least 128 bits: smaller vectors have no masked stores.
        """
        size, extent = self.count(run, along), along.extent.constant
        bits = min(storage_type(b.dtype).bits for m in run.assignments for b, _ in m.elements())
        while extent and size >= max(2 * extent, 256 // bits):
            size //= 2
        return size

    def _carried(self, rows: Run, along: Axis, before: BufferLoad) -> None:
        """The rows of a recurrence, one after the other, with the last one in registers."""
        frame, [statement] = self.frame, rows.assignments
        target, indices = statement.target, statement.indices

        def chunk(lanes: Lanes, number: int) -> Sequence[Value]:
            def row(last: Value) -> list[Value]:
                outer = frame.stored
                with frame.level():
                    frame.stored = {**outer, (before.buffer, before.indices): last}
                    value = frame.wide(frame.value(statement.value), lanes.count)
                    inside = frame.unproved(target, indices)
                    frame.store(target, indices, frame.narrowed(value, target.dtype), inside)
                    frame.stored = outer
                return [value]

            with frame.level(lanes=lanes):
                axis = rows.ordered[-1]
                self.loop(axis, row, self.first(axis, before, [{}], lanes.count))
            return ()

        self.chunks(along, self._short_count(rows, along), 1, chunk, ())

    def first(
        self, axis: Axis, before: BufferLoad, chains: Sequence[Mapping[Var, Value]], lanes: int = 1
    ) -> list[Value]:
        """The elements before the first iteration of each chain, if there is an iteration."""
        frame, f, dtype = self.frame, self.function, before.buffer.dtype
        start, stop = self.bounds(axis)

        def first() -> list[Value]:
            values = []
            for chain in chains:
                with frame.level({axis.var: f.index(start), **chain}), self.opened(axis):
                    value = frame.widened(frame.load(before), dtype)
                    values.append(frame.wide(value, lanes))
            return values

        def none() -> list[Value]:
            zero = f.const(value_type(dtype), 0)
            return [frame.wide(zero, lanes)] * len(chains)

        values = f.branch(f.compare("slt", f.index(start), stop), first, none)
        frame.pin(values)
        return values

    def _together_in(self, run: Run, along: Axis) -> int:
        """The number of vectors of sums that are computed together: as many as are full."""
        count, columns = Vectors.SUMS, along.extent.constant
        while columns is not None and count > max(1, columns // self.count(run, along)):
            count //= 2
        return count

    def _together(self, run: Run, lanes: int, places: Sequence[Mapping[Var, Value]]) -> None:
        """The iterations at `places`, unrolled and jammed: their sums are interleaved.

        If these are few, each is that of several sums of the elements in turn, to hide the latency.
        """
        frame, starts = self.frame, self._starts(run, lanes)
        width, turns = len(starts), 1
        size = width * len(places)
        ready = self._ready(run) if len(places) > 1 else []

        def body(*sums: Value) -> list[Value]:
            known: list[dict[PrimExpr, Value]] = [{} for _ in places]
            for node in ready:
                for place, values in zip(places, known, strict=True):
                    with frame.level(place):
                        a, b = (values.get(x) or frame.value(x) for x in (node.a, node.b))
                        values[node] = frame.binary(type(node), node.dtype, a, b)
            results: list[Value] = []
            for n, place in enumerate(places):
                with frame.level(place):
                    results += self._body(run, sums[n * width : (n + 1) * width])
            return [*sums[size:], *results]

        over, inmost = run.over, body
        count, rows = Vectors.SUMS, over[-1].extent.constant if over else 1
        if (rows is None or rows > count) and not has_long_code(run, count * len(places)):
            over, inmost = over[:-1], partial(self.unrolled, run.over[-1], count, body)
            bits = sum(start.type.bits for start in starts) * lanes * len(places)
            most = count * LANE_BITS  # not of the CPU: the order of a sum depends on sizes alone
            while bits and turns < count and 2 * turns * bits <= most:
                turns *= 2
        sums = self.nested(over, inmost, starts * len(places) * turns)
        members = run.accumulations * len(places)
        totals = [self._tree(member, sums[n::size]) for n, member in enumerate(members)]
        for n, place in enumerate(places):
            with frame.level(place):
                self._finish(run, totals[n * width : (n + 1) * width])

    def _ready(self, run: Run) -> list[Add | Max | Min]:
        """Sums that a run reads and can compute before its stores, each after its operands."""
        written = self.aliases({m.target for m in run.stores})
        found: list[Add | Max | Min] = []
        for member in run.assignments:
            if member.guards or not written.isdisjoint(x.buffer for x in loads(member.value)):
                continue
            pending = [member.value]
            while pending:
                match pending.pop():
                    case (Add(a=a, b=b) | Max(a=a, b=b) | Min(a=a, b=b)) as node:
                        found.append(node)
                        pending += [a, b]
                    case Mul(a=a, b=b):
                        pending += [a, b]
                    case Cast(value=value):
                        pending.append(value)
                    case _:
                        pass
        return found[::-1]

    def _repeats(self, run: Run) -> bool:
        """True if iterations are idempotent: running one again stores the same values."""
        members = run.stores
        elided = self.program.elided
        read = {
            load.buffer
            for m in members
            for value in (m.value, *m.guards, *m.indices)
            for load in loads(value)
        }
        written = self.aliases({m.target for m in members} - elided) - elided
        has_start = all(m.combine is None or m.initial is not None for m in members)
        return has_start and written.isdisjoint(read)

    def rows(self, rows: ShortRows) -> None:
        """Rows of few elements as lanes."""
        frame = self.frame
        buffers = {load.buffer for step in rows.steps for v in step.values for load in loads(v)}
        written = rows.written
        bits = max(storage_type(b.dtype).bits for b in buffers | written)

        def chunk(lanes: Lanes, number: int) -> Sequence[Value]:
            outer, frame.stored = frame.stored, dict(frame.stored)
            with frame.level(lanes=lanes):
                for row in rows.loads:
                    self._load_rows(row)
                for step in rows.steps:
                    frame.stored[step.register.buffer, step.register.indices] = self._step(step)
                for pairs in rows.stores:
                    self._store_rows(pairs)
            frame.stored = outer
            return ()

        def vectors() -> None:
            self.chunks(rows.axis, LANE_BITS // max(bits, 16), 1, chunk, ())

        with frame.writing(self.aliases(written)):
            self.iterations(rows.outer, vectors, listens=True)

    def _load_rows(self, row: Sequence[BufferLoad]) -> None:
        """Load adjacent elements of memory as vectors."""
        frame = self.frame
        if all(frame.unproved(load.buffer, load.indices) is None for load in row):
            values = frame.load_rows(row[0])
            frame.pin(values)
            for load, value in zip(row, values, strict=True):
                frame.stored[load.buffer, load.indices] = frame.widened(value, load.buffer.dtype)

    def _step(self, step: Step) -> Value:
        frame = self.frame
        if step.combine is None:
            [value] = step.values
            return frame.value(value)
        assert step.initial is not None
        dtype, total = step.register.buffer.dtype, frame.value(step.initial)
        for part in step.values:
            operand = frame.value(part)
            lanes = max(total.type.lanes, operand.type.lanes)
            sides = (frame.wide(side, lanes) for side in (total, operand))
            total = combined(step.combine, dtype, *sides)
            frame.pin([total])
        return frame.rounded(total, dtype)

    def _store_rows(self, pairs: Sequence[tuple[BufferLoad, BufferLoad]]) -> None:
        """Store registers to memory, adjacent ones as vectors."""
        frame = self.frame
        elements = [element for _, element in pairs]
        values = [
            frame.narrowed(frame.stored[register.buffer, register.indices], element.buffer.dtype)
            for register, element in pairs
        ]
        tests = [frame.unproved(e.buffer, e.indices) for e in elements]
        if len(pairs) > 1 and all(test is None for test in tests):
            frame.store_rows(elements[0], values)
            return
        for element, value, test in zip(elements, values, tests, strict=True):
            frame.store(element.buffer, element.indices, value, test)

    def _transposed(self, run: Run, transpose: Transpose) -> None:
        """The iterations of two axes in squares; the last ones overlap those before them."""
        frame, f, side = self.frame, self.function, transpose.side
        along, across = transpose.along, transpose.across
        (start, stop), (low, high) = self.bounds(along), self.bounds(across)
        last, lowest = (f.index(n) - side for n in (stop, high))
        has_square = f.arithmetic(
            "and", f.compare("sge", last, start), f.compare("sge", lowest, low)
        )

        def square(first: Value, row: Value) -> None:
            with frame.level({along.var: first, across.var: row}):
                columns = {access: self._square(access, transpose) for access in transpose.loads}
                with frame.level():
                    frame.settle(v for values in columns.values() for v in values)
                    for n in range(side):
                        self._row_of_square(run, transpose, n, columns)

        def squares(first: Value) -> None:
            at = f.intrinsic("smin", first, last)
            f.loop(low, high, side, (), lambda n: square(at, f.intrinsic("smin", n, lowest)))

        def one_by_one() -> None:
            with frame.conditionally():
                self.iterations((across,), lambda: self._columns(run, along))

        f.branch(
            has_square, lambda: self.stretches(start, stop, side, (), squares) and None, one_by_one
        )
        frame.forget()

    def _square(
        self, access: tuple[Buffer, tuple[PrimExpr, ...]], transpose: Transpose
    ) -> list[Value]:
        """The elements read in a square, as vectors along the axis of the targets."""
        frame, f = self.frame, self.function
        first, start = (frame.variable(a.var) for a in (transpose.along, transpose.across))
        lanes = Lanes(transpose.across.var, start, transpose.side, None)
        rows = []
        for n in range(transpose.side):
            with (
                frame.level({transpose.along.var: first + n}, lanes=lanes),
                self.opened(transpose.along),
                self.opened(transpose.across),
            ):
                rows.append(frame.load(BufferLoad(*access)))
        return transposed(f, rows)

    def _row_of_square(
        self,
        run: Run,
        transpose: Transpose,
        number: int,
        columns: Mapping[tuple[Buffer, tuple[PrimExpr, ...]], Sequence[Value]],
    ) -> None:
        frame = self.frame
        first, start = (frame.variable(a.var) for a in (transpose.along, transpose.across))
        lanes = Lanes(transpose.along.var, first, transpose.side, None)
        with (
            frame.level({transpose.across.var: start + number}, lanes=lanes),
            self.opened(transpose.along),
            self.opened(transpose.across),
        ):
            outer = frame.stored
            frame.stored = dict(outer)
            for (buffer, indices), values in columns.items():
                frame.stored[buffer, indices] = frame.widened(values[number], buffer.dtype)
            self._body(run, ())
            frame.stored = outer

    def _sweep(self, run: Run, along: Axis) -> None:
        """As `_columns`, but row by row in the order of memory, with the targets as sums."""
        frame, f, count = self.frame, self.function, self.count(run, along)
        members = run.accumulations
        [row] = run.over

        def begin(lanes: Lanes, number: int) -> Sequence[Value]:
            with frame.level(lanes=lanes):
                for member in members:
                    if member.initial is not None:
                        first = frame.value(member.initial)
                        self._store_value(member, first)
            return ()

        def rows(numbers: Sequence[Value]) -> None:
            def chunk(lanes: Lanes, number: int) -> Sequence[Value]:
                with frame.level(lanes=lanes):
                    sums = [self._present(member) for member in members]
                    sums = [frame.wide(total, lanes.count) for total in sums]
                    frame.pin(sums)
                    for index in numbers:
                        with frame.level({row.var: index}), self.opened(row):
                            sums = self._body(run, sums)
                    for member, total in zip(members, sums, strict=True):
                        self._store_value(member, total)
                return ()

            with frame.level():
                frame.settle(numbers)
                self.chunks(along, count, 1, chunk, ())

        if any(m.initial is not None for m in members):
            self.chunks(along, count, 1, begin, ())
        start, blocks, stop = self.cuts(row, [Vectors.SWEPT_ROWS])
        self.stretches(
            start,
            blocks,
            Vectors.SWEPT_ROWS,
            (),
            lambda index: rows([index, *(index + n for n in range(1, Vectors.SWEPT_ROWS))]),
        )
        f.loop(blocks, stop, 1, (), lambda index: rows([index]))
        frame.forget()

    def _one_by_one(self, run: Run) -> None:
        """One iteration of the axes, without lanes."""
        sums = self._starts(run, 1)
        self._finish(run, self.nested(run.over, lambda *c: self._body(run, c), sums))

    def _element(self, run: Run, along: Axis) -> None:
        """One iteration of the axes; accumulations run with `along` as lanes."""
        count = self.count(run, along)
        rest = tuple(a for a in run.over if a is not along)
        unroll = unroll_of(run)
        while unroll > 1 and (along.extent.constant or unroll * count) < unroll * count:
            unroll //= 2
        starts = self._starts(run, count)
        width, pieces = len(starts), 1
        machine = self.function.module
        # Long code is computed piece by piece; with few registers, a piece is a whole vector.
        is_long = bool(starts) and has_long_code(run, 1)
        if is_long and machine.vector_registers > Vectors.FEW_REGISTERS:
            pieces = max(1, starts[0].type.bits * count // machine.vector_bits)
            starts = self._starts(run, count // pieces) * pieces
        kept = {m.target for m in run.assignments if m.combine is None} - self.program.elided
        is_ordered = pieces > 1 or (is_long and bool(kept) and not machine.has_avx512)

        def row(*carried: Value) -> Sequence[Value]:
            def body(lanes: Lanes, number: int, *sums: Value) -> Sequence[Value]:
                updated = list(sums)
                for n, piece in enumerate(self._pieces(lanes, pieces), number * pieces):
                    mine = slice(n * width, (n + 1) * width)
                    with self.frame.level(lanes=piece):
                        updated[mine] = self._body(run, sums[mine])
                    if is_ordered:
                        updated[mine] = map(self.function.ordered, updated[mine])
                return updated

            return self.chunks(along, count, unroll, body, carried)

        sums = self.nested(rest, row, starts * unroll)
        members = run.accumulations
        totals: list[Value] = []
        for number, member in enumerate(members):
            mine = sums[number::width]
            parts = [self._tree(member, mine[n::pieces]) for n in range(pieces)]
            combine = member.combine
            assert combine is not None
            join = partial(combined, combine, member.target.dtype)
            while half := len(parts) // 2:
                parts = [*map(join, parts[:half], parts[half:])]
            totals += self.function.fold_lanes(parts, join)
        self.frame.pin(totals)
        self._finish(run, totals)

    def _pieces(self, lanes: Lanes, pieces: int) -> Iterator[Lanes]:
        """Equal parts of consecutive lanes."""
        count, mask = lanes.count // pieces, lanes.mask
        for first in range(0, lanes.count, count):
            part = (
                None
                if mask is None
                else self.function.shuffle(mask, None, range(first, first + count))
            )
            yield Lanes(lanes.var, lanes.start + first, count, part)

    def _search(self, run: Run, condition: PrimExpr) -> None:
        """The first iteration of the only axis of accumulation in which the condition holds."""
        f, frame = self.function, self.frame
        [axis], [member] = run.over, run.assignments
        start, stop = map(f.index, self.bounds(axis))

        def hits(index: Value, mask: Value | None) -> list[Value]:
            """The next index, or the same index and the bits of the matching lanes."""
            frame.pin([index] if mask is None else [index, mask])
            with self.opened(axis), frame.level(lanes=Lanes(axis.var, index, SEARCHED, mask)):
                found = frame.wide(frame.value(condition), SEARCHED)
                if mask is not None:
                    found = f.arithmetic("and", found, mask)
                bits = f.new(I64, f"bitcast {found} to i64")
            missed = f.compare("eq", bits, 0)
            return [f.select(missed, index + SEARCHED, index), bits]

        def rest(index: Value) -> list[Value]:
            return hits(index, f.lanes_below(stop - index, SEARCHED))

        def goes_on(index: Value, bits: Value) -> Value:
            complete = f.compare("sle", index + SEARCHED, stop)
            return f.arithmetic("and", complete, f.compare("eq", bits, 0))

        none = f.const(I64, 0)
        index, bits = f.while_loop([start, none], goes_on, lambda index, bits: hits(index, None))
        left = f.arithmetic("and", f.compare("eq", bits, 0), f.compare("slt", index, stop))
        index, bits = f.branch(left, lambda: rest(index), lambda: [index, bits])
        f.module.declare("llvm.cttz.i64", I64, ["i64", "i1 immarg"])
        place = index + f.new(I64, f"call i64 @llvm.cttz.i64({bits}, i1 false)")
        kept = value_type(member.target.dtype)
        if kept != I64:
            place = f.cast("trunc", place, kept.element)
        assert member.initial is not None
        frame.pin([place])
        missing = frame.value(member.initial)
        self._store_value(member, f.select(f.compare("eq", bits, 0), missing, place))
        frame.forget()

    def _tree(self, member: Assignment, values: Sequence[Value]) -> Value:
        assert member.combine is not None
        values = list(values)
        while len(values) > 1:
            values = [
                combined(member.combine, member.target.dtype, a, b)
                for a, b in zip(values[::2], values[1::2], strict=True)
            ]
        return values[0]

    def _starts(self, run: Run, lanes: int) -> list[Value]:
        return [
            identity(self.function, m.combine, m.target.dtype, lanes)
            for m in run.assignments
            if m.combine is not None
        ]

    def _body(self, run: Run, sums: Sequence[Value]) -> list[Value]:
        """One iteration of the members; the accumulators afterwards."""
        frame = self.frame
        outer, frame.stored = frame.stored, dict(frame.stored)
        remaining = list(sums)
        results: list[Value] = []
        for member in run.assignments:
            if member.combine is None:
                self._store_member(member)
            else:
                results.append(self._accumulated(member, remaining.pop(0)))
        frame.stored = outer
        return results

    def _condition(self, member: Assignment) -> Value | None:
        condition: Value | None = None
        for guard in member.guards:
            condition = self.frame.both(condition, self.frame.value(guard))
        return condition

    def _store_member(self, member: Assignment) -> None:
        frame = self.frame
        target, indices = member.target, member.indices
        if target in self.program.elided:
            frame.stored[target, indices] = frame.value(member.value)
            return
        condition = frame.both(self._condition(member), frame.unproved(target, indices))
        if condition is not None and frame.lanes is None:

            def inside() -> None:
                with frame.conditionally():
                    value = frame.value(member.value)
                    frame.store(target, indices, frame.narrowed(value, target.dtype))

            self.function.branch(condition, inside)
            self._forget_stored(target)
            return
        value = frame.value(member.value)
        frame.store(target, indices, frame.narrowed(value, target.dtype), condition)
        self._forget_stored(target)
        if condition is None:
            frame.stored[target, indices] = value

    def _forget_stored(self, target: Buffer) -> None:
        """Invalidate the known elements of a buffer: a store may have overwritten them."""
        stored = self.frame.stored
        self.frame.stored = {key: value for key, value in stored.items() if key[0] is not target}

    def _accumulated(self, member: Assignment, total: Value) -> Value:
        frame, f = self.frame, self.function
        condition = self._condition(member)
        lanes = total.type.lanes
        value = frame.wide(frame.value(member.value), lanes)
        assert member.combine is not None
        result = combined(member.combine, member.target.dtype, total, value)
        # The lanes that are not active in a chunk along the axes are not stored.
        mask = frame.lanes.mask if frame.lanes is not None else None
        condition = frame.both(condition, mask)
        if condition is not None:
            result = f.select(frame.wide(condition, lanes), result, total)
        frame.pin([result])
        return result

    def _finish(self, run: Run, totals: Sequence[Value]) -> None:
        """Store the results of the accumulations."""
        frame = self.frame
        members = run.accumulations
        for member, total in zip(members, totals, strict=True):
            self._store_total(member, total)
        frame.forget()

    def _store_total(self, member: Assignment, total: Value) -> None:
        frame = self.frame
        dtype = member.target.dtype
        initial = member.initial
        first = self._present(member) if initial is None else frame.value(initial)
        assert member.combine is not None
        lanes = total.type.lanes
        sum_ = combined(member.combine, dtype, frame.wide(first, lanes), total)
        frame.pin([sum_])
        result = frame.rounded(sum_, dtype)
        self._store_value(member, result)

    def _present(self, member: Assignment) -> Value:
        """The current value of the target of an accumulation."""
        load = BufferLoad(member.target, member.indices)
        return self.frame.widened(self.frame.load(load), member.target.dtype)

    def _store_value(self, member: Assignment, value: Value) -> None:
        """Store the value of an accumulation, unless the element is out of bounds."""
        frame, target = self.frame, member.target
        inside = frame.unproved(target, member.indices)
        narrow = frame.narrowed(value, target.dtype)
        if inside is None or frame.lanes is not None:
            frame.store(target, member.indices, narrow, inside)
            return

        def perform() -> None:
            with frame.conditionally():
                frame.store(target, member.indices, narrow)

        self.function.branch(inside, perform)


def _is_gathered(position: IndexPoly, var: Var) -> bool:
    """True if consecutive values of a variable read at positions loaded from memory."""
    return any(mentions(x, {var}) for atom in position.atoms() for x in loads(atom))
