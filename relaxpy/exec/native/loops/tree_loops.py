"""Emits loop trees: runs, loops, blocks of rows, and tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from relaxpy.exec.loops.nest.nodes import Axis, Store
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import For, Run, Tile, Tree
from relaxpy.exec.loops.plan.updates import Update
from relaxpy.exec.machine.tuning import Cost, Rows, Tiles, Vectors
from relaxpy.exec.native.calls.interrupt import Interrupt
from relaxpy.exec.native.contraction.operands import Size, ceil_div, combine, digits, total
from relaxpy.exec.native.llvm.writer import BOOL, I8, I64, Function, Value
from relaxpy.exec.native.loops.items import Items
from relaxpy.exec.native.loops.run_loops import RunLoops
from relaxpy.exec.native.threads.code import parallel, slots
from relaxpy.exec.native.trees import cost
from relaxpy.exec.native.trees.masks import Masked
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.exec.native.trees.program import KernelProgram, ObligationTests, Tasks, may_fail
from relaxpy.exec.native.trees.recurrences import Recurrence
from relaxpy.exec.native.trees.short_rows import short_rows
from relaxpy.exec.native.trees.strategy import strategy_of
from relaxpy.exec.native.values.datatypes import storage_type
from relaxpy.exec.native.values.environment import Lanes
from relaxpy.exec.native.values.expressions import Values
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Add, Var


class TreeLoops(RunLoops):
    """Emits the loop trees of a kernel.

    `scratch` has the local buffers of tasks: the number of elements of those that a task allocates,
    or else the bytes of each of the areas for the threads.
    """

    def __init__(self, program: KernelProgram, frame: Values) -> None:
        super().__init__(program, frame)
        self.scratch: dict[Buffer, Value | int] = {}

    def tree(self, tree: Tree) -> None:
        """Emit one tree."""
        match tree:
            case Run():
                emit = self._scalar if tree.is_scalar else self.run
                self.where(tree.tests, lambda: emit(tree))
            case For(axis=axis, body=body):
                steps = [t for t in body if isinstance(t, Run) and not t.loops]
                self.function.promoted |= bool(steps)  # their variables are buffers
                has_loops = len(steps) < len(body)
                self.loop(axis, lambda: self._sequence(body), listens=has_loops)
            case Tile():
                self._tile(tree)
            case Tasks():
                self._tasks(tree)
            case ObligationTests(obligations=required):
                self.where(tree.tests, lambda: self._late(required))
            case _:
                raise AssertionError(f"an unknown tree: {tree}")

    def _sequence(self, trees: Sequence[Tree]) -> None:
        for tree in trees:
            self.tree(tree)

    def _late(self, required: Sequence[Obligation]) -> None:
        """Test obligations of the next tree."""
        with self.frame.level():
            self.require(required)

    def _scalar(self, run: Run) -> None:
        """A statement in each iteration, one after the other."""
        written = {w.buffer for w in run.statement.writes}
        with self.frame.writing(self.aliases(written)):
            match strategy_of(run, self.program):
                case Recurrence(before=before, update=Update() as update):
                    self.iterations(
                        run.loops[:-1], lambda: self._prefixes(run, before, update), listens=True
                    )
                case Recurrence(before=before, has_chains=True):
                    self.iterations(run.loops[:-2], lambda: self._chains(run, before), listens=True)
                case Recurrence(before=before):
                    self.iterations(
                        run.loops[:-1], lambda: self._recurrence(run, before, [{}]), listens=True
                    )
                case _:
                    self._statement(run)

    def _prefixes(self, run: Run, before: BufferLoad, update: Update) -> None:
        """A prefix scan: the innermost loop in vectors, combined with the lanes before them."""
        frame, f, axis = self.frame, self.function, run.loops[-1]
        count, [statement] = self.count(run, axis), run.assignments
        dtype = statement.target.dtype
        is_sum = update.combine == "add"
        step = partial(frame.binary, Add if is_sum else type(statement.value), dtype)

        def chunk(lanes: Lanes, number: int, last: Value) -> Sequence[Value]:
            with frame.level(lanes=lanes):
                value, nothing = frame.wide(frame.value(update.operand), count), None
                if is_sum:
                    nothing = f.const(value.type, 0)
                distance = 1
                while distance < count:
                    # The first lanes are combined with zeros, or as extremes with themselves.
                    rest = count if nothing else 0
                    order = [n - distance if n >= distance else rest + n for n in range(count)]
                    moved = f.shuffle(value, nothing, order)
                    frame.pin([moved])
                    value = step(value, moved)
                    distance *= 2
                all_of_vector, value = value, step(frame.wide(last, count), value)
                inside = frame.unproved(statement.target, statement.indices)
                narrow = frame.narrowed(value, dtype)
                frame.store(statement.target, statement.indices, narrow, inside)
            if dtype.is_float:
                return [f.lane(value, count - 1)]
            # The next vector waits for one operation of integers, and not for all of these.
            return [step(last, f.lane(all_of_vector, count - 1))]

        self.chunks(axis, count, 1, chunk, self.first(axis, before, [{}]))

    def _chains(self, run: Run, before: BufferLoad) -> None:
        """The recurrences of the loop around the innermost one, several of them interleaved."""
        f, outer = self.function, run.loops[-2]
        start, stop = map(f.index, self.bounds(outer))
        last = stop - f.remainder(stop - start, Vectors.CHAINS)

        def chains(first: Value, count: int) -> None:
            indices = [first + n for n in range(count)]
            with self.frame.level(), self.opened(outer):
                self.frame.settle(indices)
                self._recurrence(run, before, [{outer.var: index} for index in indices])

        self.stretches(start, last, Vectors.CHAINS, (), lambda index: chains(index, Vectors.CHAINS))
        f.loop(last, stop, 1, (), lambda index: chains(index, 1))
        self.frame.forget()

    def _recurrence(
        self, run: Run, before: BufferLoad, chains: Sequence[Mapping[Var, Value]]
    ) -> None:
        """The innermost loop with the last results in registers, for each of several `chains`."""
        frame, axis = self.frame, run.loops[-1]
        statement, key = run.statement, (before.buffer, before.indices)
        assert isinstance(statement, Assignment)

        def body(*last: Value) -> list[Value]:
            results = []
            for chain, value in zip(chains, last, strict=True):
                outer = frame.stored
                with frame.level(chain):
                    frame.stored = {**outer, key: value}
                    result = frame.value(statement.value)
                    Items(self).store(Store(statement.target, statement.indices, statement.value))
                    frame.stored = outer
                results.append(result)
            return results

        self.loop(axis, body, self.first(axis, before, chains))

    def _statement(self, run: Run) -> None:
        """A statement in its loops; those of a checked run are items, as their bounds may fail."""
        statement = run.statement
        span = statement.span if isinstance(statement, Assignment) else None
        items = Items(self, checked=run.checked, span=span)

        def body() -> None:
            if isinstance(statement, Assignment):
                store = Store(statement.target, statement.indices, statement.value)
                items.guarded(statement.guards, store)
            else:
                self.function.promoted = True  # the variables of items are buffers
                items.items(statement.items)

        items.iterations(run.loops, body)

    def _tile(self, tile: Tile) -> None:
        """The blocks of rows, one after the other."""
        rows = short_rows(tile, self.program)
        if rows is not None:
            self.rows(rows)
            return
        frame, f = self.frame, self.function
        count = tile.size
        assert count is not None
        start, stop = self.bounds(tile.axis)
        for buffer in tile.local:
            row = tile.rows[buffer]
            strides: list[IndexPoly] = []
            stride = as_poly(1)
            for axis, size in reversed(list(enumerate(buffer.shape))):
                if axis == tile.single.get(buffer):
                    strides.insert(0, as_poly(0))
                    continue
                strides.insert(0, stride)
                stride = stride * (as_poly(count) if axis == row.axis else as_poly(size))
            first = (as_poly(tile.low) + row.offset) * strides[row.axis] * -1
            frame.blocks[buffer] = strides, first
        self.share()
        self.proofs[tile.low] = self.proofs.get(tile.axis.start, tile.axis)

        def block(index: Value) -> None:
            end = index + count
            if count > 1:
                last = f.index(stop)
                end = f.select(f.compare("slt", end, last), end, last)
            known = {tile.low: index, tile.axis.var: index, tile.high: end}
            with frame.level(known), self.opened(tile.axis):
                if isinstance(tile, Masked):
                    self._masked(tile)
                else:
                    self._steps(tile)

        self.stretches(start, stop, count, (), lambda index: block(index))
        frame.forget()
        del self.proofs[tile.low]

    def _steps(self, tile: Tile) -> None:
        """The steps of a block; the last one that reads a row again prefetches the next row.

        The first step has waited for the memory of its row, and the others leave it idle. Hardware
        prefetches rows only within a page. This was measured with vectors of 512 bits, which are a
        line each; programs with shorter ones are as before.
        """
        is_single = tile.size == 1 and self.function.module.has_avx512
        ahead = self._rows_ahead(tile) if is_single else {}
        for step in tile.body:
            self.frame.ahead = {
                buffer: distance for buffer, (last, distance) in ahead.items() if last is step
            }
            self.tree(step)
        self.frame.ahead = {}

    def _rows_ahead(self, tile: Tile) -> dict[Buffer, tuple[Tree, int]]:
        """The last step that reads a row of memory again, and the bytes to the next row."""
        readers: dict[Buffer, list[Tree]] = {}
        distances: dict[Buffer, int] = {}
        for step in tile.body:
            for member in step.stores if isinstance(step, Run) else ():
                for buffer, indices in member.elements():
                    rows = affine(self.frame.position(buffer, indices), {tile.axis.var})
                    stride = None if rows is None else rows.constant(tile.axis.var)
                    size = (stride or 0) * storage_type(buffer.dtype).bits // 8
                    if 0 < size <= Tiles.NEAREST_BYTES:
                        distances[buffer] = size
                        readers.setdefault(buffer, []).append(step)
        return {
            buffer: (steps[-1], distances[buffer])
            for buffer, steps in readers.items()
            if buffer not in self.frame.written and steps[0] is not steps[-1]
        }

    def _masked(self, tile: Masked) -> None:
        """A block of rows with the columns that its mask shows."""
        frame, f = self.frame, self.function
        *before, last_product = tile.body
        stop = f.index(self.bounds(tile.columns)[1])
        for flag in tile.flags:
            frame.pointers[flag] = f.alloca(storage_type(flag.dtype), 1)
        self.proofs |= dict.fromkeys((tile.first, tile.panel[0]), tile.columns)

        def shown(first: Value, last: Value, again: Value) -> list[Value]:
            with frame.level({tile.first: first, tile.last: last}):
                self.masked = tile
                self._sequence(before)
                self.masked = None
            is_part = f.arithmetic("or", f.compare("ne", first, 0), f.compare("ne", last, stop))
            [again] = f.branch(is_part, lambda: [self._flag(tile.lost)], lambda: [no])
            return [f.select(again, f.const(I64, 0), first), f.select(again, stop, last), again]

        no, yes = f.const(BOOL, 0), f.const(BOOL, 1)
        rows = f.index(frame.variable(tile.high)) - frame.variable(tile.low)
        every = [f.const(I64, 0), stop]
        has_tiles = f.compare("sge", rows, Rows.LEAST_MASKED)
        start = f.branch(has_tiles, lambda: self._shown_columns(tile, stop), lambda: every)
        first, last, _ = f.while_loop([*start, yes], lambda *now: now[2], shown)
        frame.forget()
        with frame.level({tile.first: first, tile.last: last}):
            self.masked = tile
            self._sequence([last_product])
            self.masked = None

    def _shown_columns(self, tile: Masked, stop: Value) -> list[Value]:
        """The range of the columns that a block needs."""
        f, zero, no = self.function, self.function.const(I64, 0), self.function.const(BOOL, 0)
        panel = tile.panel_size

        def test(run: Run, low: Value, high: Value) -> Value:
            with self.frame.level(dict(zip(tile.panel, (low, high), strict=True))):
                return self._flag(run)

        def hidden(low: Value, high: Value) -> Value:
            """True if the mask hides all elements of a panel; False if it is empty."""

            def tested() -> list[Value]:
                end = f.intrinsic("smin", high, stop)
                return [f.arithmetic("xor", test(tile.seen, low, end), f.const(BOOL, 1))]

            [result] = f.branch(f.compare("slt", low, high), tested, lambda: [no])
            return result

        end = f.arithmetic("and", stop + (panel - 1), -panel)
        [end] = f.while_loop(
            [end], lambda n: hidden(f.intrinsic("smax", n - panel, 0), n), lambda n: [n - panel]
        )
        [first] = f.while_loop(
            [zero], lambda n: hidden(n, f.intrinsic("smin", n + panel, end)), lambda n: [n + panel]
        )
        last = f.intrinsic("smin", end, stop)
        needs_all = f.compare("eq", end, 0)
        for low, high in ((zero, first), (last, stop)):
            needs_all = f.arithmetic("or", needs_all, test(tile.infinite, low, high))
        return [f.select(needs_all, zero, first), f.select(needs_all, stop, last)]

    def _flag(self, run: Run) -> Value:
        """True if a run that tests something stores a non-zero value."""
        f, target = self.function, run.assignments[0].target
        self.run(run)
        self.frame.forget()
        value = f.load(storage_type(target.dtype), self.frame.pointers[target])
        return f.compare("une" if value.type.is_float else "ne", value, 0)

    def share(self) -> None:
        """Let each buffer alias the one whose memory the plan gives it."""
        frame = self.frame
        for buffer, owner in self.plan.shared.items():
            if owner in frame.pointers:
                frame.pointers[buffer] = frame.pointers[owner]
                if owner in frame.blocks:
                    frame.blocks[buffer] = frame.blocks[owner]

    def _tasks(self, tree: Tasks) -> None:
        """A parallel loop; its tasks capture all values known here."""
        frame, f = self.frame, self.function
        is_long = cost.has_long_tasks(tree) and not f.module.is_exported
        extents = [self._extent(axis) for axis in tree.outer]
        extents.append(ceil_div(f, self._extent(tree.axis), tree.size))
        blocks = total(f, extents)
        share = 1 if tree.number is not None else self._share(tree, blocks)
        if tree.parts_of_rows:
            share = f.intrinsic("smax", f.index(share), f.index(ceil_div(f, blocks, slots(f))))
        sizes = (*extents, blocks, share, *self.scratch.values())
        values = [*frame.pointers.values(), *frame.variables.values(), *frame.bound.values()]
        values += [] if frame.failures is None else [frame.failures.record]
        values += [n for n in sizes if isinstance(n, Value)]
        captured = {v.name: v for v in values if v.name.startswith("%")}

        def body(inner: Function, task: Value, slot: Value, *arguments: Value) -> None:
            passed = dict(zip(captured, arguments, strict=True))

            def value(outer: Value) -> Value:
                return passed.get(outer.name, Value(inner, outer.type, outer.name))

            def size(outer: Size) -> Size:
                return value(outer) if isinstance(outer, Value) else outer

            pointers = {buffer: value(pointer) for buffer, pointer in frame.pointers.items()}
            rows = tree.body
            local = self.program.declared(rows) if isinstance(rows, Tile) else {}
            for buffer, count in self.scratch.items():
                if buffer not in local:
                    continue
                if isinstance(count, Value):
                    area = slot * value(count)
                    pointers[buffer] = inner.element(pointers[buffer], area, I8)
                else:
                    pointers[buffer] = inner.alloca(storage_type(buffer.dtype), max(count, 1))
            variables = {var: value(known) for var, known in frame.variables.items()}
            there = Values(inner, pointers, variables, frame.written, frame.shape_vars)
            there.axes, there.blocks = list(frame.axes), dict(frame.blocks)
            there.bound.update((var, value(known)) for var, known in frame.bound.items())
            if frame.failures is not None:
                record = value(frame.failures.record)
                there.failures = frame.failures.of_task(inner, record, task)
            loops = TreeLoops(self.program, there)
            loops.proofs, loops.in_task = dict(self.proofs), True
            loops.tested = may_fail(tree)
            if is_long:
                assert there.failures is not None
                loops.interrupt = Interrupt(inner, slot, there.failures.record)
            first = task * size(share)
            last = inner.intrinsic("smin", first + size(share), size(blocks))

            def run() -> Sequence[Value]:
                if is_long:
                    loops.leave_if_failed()
                loops.blocks(tree, first, last, [size(n) for n in extents])
                return ()

            inner.attempt(run, lambda: ())

        rounded = combine(f, "add", blocks, combine(f, "add", share, -1))
        parallel(f, combine(f, "sdiv", rounded, share), list(captured.values()), body)
        if may_fail(tree) or is_long:
            self.leave_if_failed()
        frame.forget()

    def _extent(self, axis: Axis) -> Size:
        """The number of iterations of an axis."""
        start, stop = self.bounds(axis)
        if not isinstance(start, Value) and not isinstance(stop, Value):
            return max(stop - start, 0)
        f = self.function
        return f.intrinsic("smax", f.index(stop) - start, 0)

    def _share(self, tree: Tasks, blocks: Size) -> Size:
        """The grain: the number of blocks of a task."""
        f, constant = self.function, tree.cost.constant
        if constant is not None and not isinstance(blocks, Value):
            return max(1, Cost.GRAIN // max(constant, 1), -(-blocks // Cost.MOST_TASKS))
        time = f.intrinsic("smax", self.frame.index(tree.cost), 1)
        least = f.intrinsic("smax", f.new(I64, f"sdiv i64 {Cost.GRAIN}, {time.name}"), 1)
        return f.intrinsic("smax", least, f.index(ceil_div(f, blocks, Cost.MOST_TASKS)))

    def blocks(self, tree: Tasks, first: Value, last: Value, extents: Sequence[Size]) -> None:
        """The blocks of a task."""
        f, axis = self.function, tree.axis
        start, stop = map(f.index, self.bounds(axis))

        def run(low: Value, high: Value, outer: Sequence[Value], number: Value) -> None:
            known = {tree.low: low, tree.high: f.intrinsic("smin", high, stop)}
            known |= {a.var: value for a, value in zip(tree.outer, outer, strict=True)}
            self.proofs[tree.low] = self.proofs.get(axis.start, axis)
            if self.tested:
                self.leave_if_failed()
            with ExitStack() as stack:
                if tree.number is not None:
                    known[tree.number.var] = number
                    stack.enter_context(self.frame.within(tree.number))
                stack.enter_context(self.frame.level(known))
                for enclosing in tree.outer:
                    stack.enter_context(self.opened(enclosing))
                self.tree(tree.body)

        def part(number: Value) -> list[Value]:
            """The block `number`, or all from it on in the same iteration of the outer axes.

            The number of the next block, where that depends on it.
            """
            *indices, inner = digits(f, number, extents)
            outer = [
                f.index(combine(f, "add", self.bounds(a)[0], index))
                for a, index in zip(tree.outer, indices, strict=True)
            ]
            low = start + combine(f, "mul", inner, tree.size)
            count: Size = 1
            if tree.parts_of_rows:
                count = f.intrinsic("smin", last - number, f.index(extents[-1]) - inner)
            run(low, low + combine(f, "mul", count, tree.size), outer, number)
            return [number + count] if tree.parts_of_rows else []

        if tree.outer and tree.parts_of_rows:
            f.while_loop([first], lambda number: f.compare("slt", number, last), part)
        elif tree.outer or tree.number is not None:
            f.loop(first, last, 1, (), part)
        else:
            run(start + first * tree.size, start + last * tree.size, (), first)
        self.frame.forget()
