"""Emits the loop tree of a kernel as a function in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise

from relaxpy.exec.kernel.nest.buffers import strides_of
from relaxpy.exec.kernel.nest.nodes import Axis, Store
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.native.accumulate import combined, identity
from relaxpy.exec.native.contract import emit_product, product_of
from relaxpy.exec.native.frame import Lanes, RefusedError, storage_type
from relaxpy.exec.native.groups import Group, Member, lane_axis
from relaxpy.exec.native.items import Items
from relaxpy.exec.native.llvm import (
    BOOL,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    Function,
    Module,
    Type,
    Value,
)
from relaxpy.exec.native.obligations import Obligation, obligations
from relaxpy.exec.native.tree import For, Ordered, Program, Rows, Tree
from relaxpy.exec.native.values import Values
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var

LANE_BITS = 512
"""The bits of a vector of values, on every machine: the order of sums does not depend on it."""
_STACK_BYTES = 1 << 14
"""Up to so many bytes, a local buffer is on the stack."""


class KernelEmitter:
    """Emits `program` as a function `name` of the pointers of its arrays, its scalars and sizes.

    The function returns 0, or 1 if it has done nothing since an obligation does not hold.
    """

    def __init__(self, module: Module, name: str, program: Program, sizes: Sequence[Var]) -> None:
        plan = program.plan
        self.program, self.plan = program, plan
        params: list[tuple[Type, str]] = []
        buffers: dict[Buffer, int] = {}
        variables: dict[Var, int] = {}
        for number, param in enumerate(plan.func.params):
            buffer = plan.func.buffer_of(param)
            if buffer is None:
                variables[param] = number
            else:
                buffers[buffer] = number
            params.append((I64 if buffer is None else POINTER, f"p{number}"))
        for size in sizes:
            variables[size] = len(params)
            params.append((I64, f"p{len(params)}"))
        self.function = f = module.function(name, params, I32)
        self.frame = Values(
            f,
            {buffer: f.params[n] for buffer, n in buffers.items()},
            {var: f.params[n] for var, n in variables.items()},
            program.written,
            plan.shape_vars,
        )
        self.proofs: dict[PrimExpr, Axis] = {}

    def emit(self) -> Function:
        """The function.

        Errors:
            RefusedError: a part of the kernel has no native form.
        """
        f = self.function
        required = obligations(self.plan, self.program.written)
        if not required:
            self._work()
            f.ret(f.const(I32, 0))
            return f
        failed = self._failed(required)
        [status] = f.branch(failed, lambda: [f.const(I32, 1)], self._work)
        f.ret(status)
        return f

    def _work(self) -> list[Value]:
        """Run the trees with memory for local buffers; 1 if there is none."""
        f = self.function
        memory, pointers = self._allocate()
        if memory is None:
            self._trees(pointers)
            return [f.const(I32, 0)]
        absent = f.new(BOOL, f"icmp eq {memory}, null")

        def run() -> list[Value]:
            self._trees(pointers)
            f.call("free", VOID, memory)
            return [f.const(I32, 0)]

        return f.branch(absent, lambda: [f.const(I32, 1)], run)

    def _trees(self, pointers: Sequence[Value]) -> None:
        with self.frame.level():
            self.frame.settle(pointers)
            for tree in self.program.trees:
                self.tree(tree)

    # ---- obligations

    def _failed(self, required: Sequence[Obligation]) -> Value:
        """Whether an obligation fails."""
        failed: Value = self.function.const(BOOL, 0)
        done: set[object] = set()
        for obligation in required:
            key = (
                tuple((a.var, a.start, a.stop) for a in obligation.axes),
                obligation.path,
                obligation.index,
                obligation.size,
            )
            if key not in done:
                done.add(key)
                failed = self._fails(obligation, obligation.axes, failed)
        return failed

    def _fails(self, obligation: Obligation, axes: Sequence[Axis], failed: Value) -> Value:
        frame, f = self.frame, self.function
        if axes:
            [result] = self.loop(
                axes[0], lambda found: [self._fails(obligation, axes[1:], found)], [failed]
            )
            return result
        value = frame.index(obligation.index)
        if obligation.size is None:
            bad = f.compare("eq", value, 0)
        else:
            bad = f.compare("uge", value, frame.extent(obligation.size))
        for test in obligation.path:
            bad = f.arithmetic("and", bad, frame.value(test))
        return f.arithmetic("or", failed, bad)

    # ---- memory

    def _allocate(self) -> tuple[Value | None, list[Value]]:
        """Give memory to the local buffers: the stack, or a block, which is returned.

        Pointers into that are returned, too.
        """
        frame, f = self.frame, self.function
        rows = {
            b: tree for t in self.program.trees for tree in _rows_in(t) for b in tree.step.local
        }
        total = f.const(I64, 0)
        offsets: dict[Buffer, Value] = {}
        elided, shared = self.program.elided, self.plan.shared
        needed = {
            shared.get(e.buffer, e.buffer) for e in self.plan.nest.local if e.buffer not in elided
        }
        for entry in self.plan.nest.local:
            buffer = entry.buffer
            if buffer in shared or buffer not in needed:
                continue
            if buffer.strides:
                raise RefusedError(f"the local buffer {buffer.name} has strides")
            count = _count(buffer, rows.get(buffer))
            type = storage_type(buffer.dtype)
            number = count.constant
            if number is not None and number * type.bits // 8 <= _STACK_BYTES:
                frame.pointers[buffer] = f.alloca(type, max(number, 1))
                continue
            size = frame.index(count * (type.bits // 8))
            size = f.select(f.compare("sgt", size, 0), size, f.const(I64, 0)) + 63
            offsets[buffer] = total
            total = total + f.arithmetic("and", size, -64)
        memory = f.call("malloc", POINTER, total + 64) if offsets else None
        pointers = []
        for buffer, offset in offsets.items():
            assert memory is not None
            frame.pointers[buffer] = f.element(memory, offset, I8)
            pointers.append(frame.pointers[buffer])
        self._share()
        return memory, pointers

    def _share(self) -> None:
        """Let buffers use the memory of others, as the plan says."""
        frame = self.frame
        for buffer, owner in self.plan.shared.items():
            if owner in frame.pointers:
                frame.pointers[buffer] = frame.pointers[owner]
                if owner in frame.shifts:
                    frame.shifts[buffer] = frame.shifts[owner]

    # ---- trees

    def tree(self, tree: Tree) -> None:
        """Emit one tree."""
        match tree:
            case Group():
                self._if(tree.tests, lambda: self.group(tree))
            case Ordered():
                self._if(tree.tests, lambda: self._ordered(tree))
            case For(axis=axis, body=body):
                self.loop(axis, lambda: self._sequence(body))
            case Rows():
                self._rows(tree)

    def _sequence(self, trees: Sequence[Tree]) -> None:
        for tree in trees:
            self.tree(tree)

    def _if(self, tests: Sequence[PrimExpr], body: Callable[[], None]) -> None:
        if not tests:
            body()
            return
        frame = self.frame
        condition: Value | None = None
        for test in tests:
            condition = frame.both(condition, frame.value(test))
        assert condition is not None

        def inside() -> None:
            with frame.conditionally():
                body()

        self.function.branch(condition, inside)

    def loop(
        self,
        axis: Axis,
        body: Callable[..., Sequence[Value] | None],
        carried: Sequence[Value] = (),
    ) -> list[Value]:
        """`carried = body(*carried)` in each iteration of the axis."""
        frame = self.frame
        start, stop = self.bounds(axis)

        def inside(index: Value, *values: Value) -> Sequence[Value] | None:
            frame.pin(values)
            with frame.level({axis.var: index}), self.opened(axis):
                return body(*values)

        results = self.function.loop(start, stop, 1, carried, inside)
        frame.pin(results)
        frame.forget()
        return results

    def bounds(self, axis: Axis) -> tuple[Value | int, Value | int]:
        """The bounds of an axis, as numbers where they are known."""
        start, stop = as_poly(axis.start), as_poly(axis.stop)
        low: Value | int | None = start.constant
        high: Value | int | None = stop.constant
        low = self.frame.index(start) if low is None else low
        return low, self.frame.index(stop) if high is None else high

    def opened(self, axis: Axis) -> AbstractContextManager[None]:
        """A context in which the bounds of `axis` are used in proofs."""
        proof = self.proofs.get(axis.start)
        known = axis if proof is None else Axis(axis.var, proof.start, proof.stop)
        return self.frame.within(known)

    def _ordered(self, tree: Ordered) -> None:
        """A statement in each iteration, one after the other."""
        statement = tree.statement
        written = {w.buffer for w in statement.writes}
        with self.frame.writing(self._aliases(written)):
            self._iterations(tree.axes, lambda: self._statement(tree))

    def _iterations(self, axes: Sequence[Axis], body: Callable[[], None]) -> None:
        if not axes:
            body()
            return
        self.loop(axes[0], lambda: self._iterations(axes[1:], body))

    def _statement(self, tree: Ordered) -> None:
        statement = tree.statement
        items = Items(self)
        if isinstance(statement, Assignment):
            store = Store(statement.target, statement.indices, statement.value)
            self._if(statement.guards, lambda: items.store(store))
        else:
            items.items(statement.items)

    def _aliases(self, written: set[Buffer]) -> frozenset[Buffer]:
        """The buffers that use the memory of `written`."""
        root = self.plan.shared
        owners = {root.get(b, b) for b in written}
        return frozenset({*owners, *(b for b, owner in root.items() if owner in owners)})

    def _rows(self, tree: Rows) -> None:
        """The blocks of rows, one after the other."""
        step, frame, f = tree.step, self.frame, self.function
        start, stop = self.bounds(step.axis)
        for buffer in step.local:
            row = step.rows[buffer]
            stride = as_poly(strides_of(buffer)[row.axis])
            frame.shifts[buffer] = (as_poly(step.low) + row.offset) * stride * -1
        self._share()
        self.proofs[step.low] = step.axis

        def block(index: Value) -> None:
            end = index + tree.size
            if tree.size > 1:
                last = f.index(stop)
                end = f.select(f.compare("slt", end, last), end, last)
            known = {step.low: index, tree.row: index, step.high: end}
            with frame.level(known), frame.within(step.axis):
                for inner in tree.body:
                    self.tree(inner)

        f.loop(start, stop, tree.size, (), lambda index: block(index))
        frame.forget()
        del self.proofs[step.low]

    # ---- groups

    def group(self, group: Group) -> None:
        """Emit the loops of a group."""
        written = {m.target for m in group.members}
        with self.frame.writing(self._aliases(written)):
            product = product_of(group, self.program.root)
            if product is not None:
                emit_product(product, self.frame)
                self.frame.forget()
                return
            along = lane_axis(group)
            if along is not None and any(along is a for a in group.axes):
                rest = tuple(a for a in group.axes if a is not along)
                self._iterations(rest, lambda: self._columns(group, along))
            else:
                self._iterations(group.axes, lambda: self._element(group, along))

    def count(self, group: Group) -> int:
        """The number of lanes for the values of a group."""
        buffers = {b for m in group.members for b in (m.target, *(b for b, _ in m.reads()))}
        bits = max(storage_type(b.dtype).bits for b in buffers)
        return LANE_BITS // max(bits, 16)

    def _columns(self, group: Group, along: Axis) -> None:
        """The iterations of `along` as lanes; accumulations run inside these."""

        def chunk(lanes: Lanes, number: int) -> Sequence[Value]:
            with self.frame.level(lanes=lanes):
                sums = self._starts(group, lanes.count)
                sums = self._nested(group.over, lambda *c: self._body(group, c), sums)
                self._finish(group, sums)
            return ()

        self._chunks(along, self.count(group), 1, chunk, ())

    def _element(self, group: Group, along: Axis | None) -> None:
        """One iteration of the axes; accumulations run with `along` as lanes."""
        if along is None:
            sums = self._starts(group, 1)
            sums = self._nested(group.over, lambda *c: self._body(group, c), sums)
            self._finish(group, sums)
            return
        count = self.count(group)
        rest = tuple(a for a in group.over if a is not along)
        unroll = 4 if group.reduces and len(group.members) == 1 else 2
        width = len(self._starts(group, count))

        def row(*carried: Value) -> Sequence[Value]:
            def body(lanes: Lanes, number: int, *sums: Value) -> Sequence[Value]:
                mine = slice(number * width, (number + 1) * width)
                with self.frame.level(lanes=lanes):
                    updated = self._body(group, sums[mine])
                return [*sums[: mine.start], *updated, *sums[mine.stop :]]

            return self._chunks(along, count, unroll, body, carried)

        sums = self._nested(rest, row, self._starts(group, count) * unroll)
        members = [m for m in group.members if m.combine is not None]
        totals: list[Value] = []
        for number, member in enumerate(members):
            parts = sums[number::width]
            total = self._tree(member, parts)
            combine = member.combine
            assert combine is not None
            dtype = member.target.dtype
            totals.append(self.function.fold_lanes(total, partial(combined, combine, dtype)))
        self.frame.pin(totals)
        self._finish(group, totals)

    def _tree(self, member: Member, values: Sequence[Value]) -> Value:
        assert member.combine is not None
        values = list(values)
        while len(values) > 1:
            values = [
                combined(member.combine, member.target.dtype, a, b)
                for a, b in zip(values[::2], values[1::2], strict=True)
            ]
        return values[0]

    def _starts(self, group: Group, lanes: int) -> list[Value]:
        return [
            identity(self.function, m.combine, m.target.dtype, lanes)
            for m in group.members
            if m.combine is not None
        ]

    def _nested(
        self,
        axes: Sequence[Axis],
        body: Callable[..., Sequence[Value]],
        carried: Sequence[Value],
    ) -> list[Value]:
        if not axes:
            return list(body(*carried))
        return self.loop(axes[0], lambda *c: self._nested(axes[1:], body, c), carried)

    def _chunks(
        self,
        axis: Axis,
        count: int,
        unroll: int,
        body: Callable[..., Sequence[Value]],
        carried: Sequence[Value],
    ) -> list[Value]:
        """`carried = body(lanes, number, *carried)` for vectors of iterations of the axis.

        `number` is the position of a vector among `unroll` vectors that follow each other.
        """
        f, frame = self.function, self.frame
        start, stop = self.bounds(axis)

        def full(copies: int) -> Callable[..., Sequence[Value]]:
            def inside(index: Value, *values: Value) -> Sequence[Value]:
                frame.pin(values)
                result: Sequence[Value] = values
                for number in range(copies):
                    at = index if number == 0 else index + number * count
                    with self.opened(axis):
                        result = body(Lanes(axis.var, at, count, None), number, *result)
                    frame.pin(result)
                return result

            return inside

        def rest(index: Value, *values: Value) -> Sequence[Value]:
            frame.pin(values)
            mask = f.lanes_below(f.index(stop) - index, count)
            with self.opened(axis):
                return body(Lanes(axis.var, index, count, mask), 0, *values)

        strides = sorted({count * unroll, count}, reverse=True)
        cuts: list[Value | int]
        if isinstance(start, int) and isinstance(stop, int):
            stop = max(stop, start)
            cuts = [start, *(start + (stop - start) // s * s for s in strides), stop]
        else:
            first, last = f.index(start), f.index(stop)
            extent = last - first
            ends = [last - f.new(I64, f"srem {extent}, {s}") for s in strides]
            cuts = [first, *ends, last]
        bodies = [*((s, full(s // count)) for s in strides), (count, rest)]
        values = list(carried)
        for (low, high), (step, inside) in zip(pairwise(cuts), bodies, strict=True):
            if isinstance(low, int) and isinstance(high, int) and low == high:
                continue
            values = f.loop(low, high, step, values, inside)
            frame.pin(values)
        frame.forget()
        return values

    def _body(self, group: Group, sums: Sequence[Value]) -> list[Value]:
        """One iteration of the members; the accumulators afterwards."""
        frame = self.frame
        outer, frame.stored = frame.stored, dict(frame.stored)
        remaining = list(sums)
        results: list[Value] = []
        for member in group.members:
            if member.combine is None:
                self._store_member(member)
            else:
                results.append(self._accumulated(member, remaining.pop(0)))
        frame.stored = outer
        return results

    def _condition(self, member: Member) -> Value | None:
        condition: Value | None = None
        for guard in member.guards:
            condition = self.frame.both(condition, self.frame.value(guard))
        return condition

    def _store_member(self, member: Member) -> None:
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
            return
        value = frame.value(member.value)
        frame.store(target, indices, frame.narrowed(value, target.dtype), condition)
        if condition is None:
            frame.stored[target, indices] = value

    def _accumulated(self, member: Member, total: Value) -> Value:
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

    def _finish(self, group: Group, totals: Sequence[Value]) -> None:
        """Store the results of the accumulations."""
        frame = self.frame
        members = [m for m in group.members if m.combine is not None]
        for member, total in zip(members, totals, strict=True):
            if member.initial is None or member.always:
                self._store_total(member, total)
                continue
            tests = [
                ops.convert(as_poly(a.start).expr() < as_poly(a.stop).expr())
                for a in group.over
                if not a.extent.is_at_least(1, self.plan.shape_vars)
            ]
            self._if(tests, partial(self._store_total, member, total))
        frame.forget()

    def _store_total(self, member: Member, total: Value) -> None:
        frame = self.frame
        target, dtype = member.target, member.target.dtype
        if member.initial is not None:
            first = frame.value(member.initial)
        else:
            first = frame.widened(frame.load(BufferLoad(target, member.indices)), dtype)
        assert member.combine is not None
        lanes = total.type.lanes
        sum_ = combined(member.combine, dtype, frame.wide(first, lanes), total)
        frame.pin([sum_])
        result = frame.rounded(sum_, dtype)
        inside = frame.unproved(target, member.indices)
        if inside is not None and frame.lanes is None:
            raise RefusedError("an accumulation into an element that may be outside")
        frame.store(target, member.indices, frame.narrowed(result, dtype), inside)


def _count(buffer: Buffer, rows: Rows | None) -> IndexPoly:
    """The number of elements of a local buffer; of its rows in one block if it is one of `rows`."""
    count = as_poly(1)
    for axis, size in enumerate(buffer.shape):
        # The strides are those of the whole buffer, so only outermost rows need less memory.
        in_block = axis == 0 and rows is not None and rows.step.rows[buffer].axis == 0
        count = count * (as_poly(rows.size) if rows is not None and in_block else as_poly(size))
    return count


def _rows_in(tree: Tree) -> Iterator[Rows]:
    match tree:
        case Rows():
            yield tree
        case For(body=body):
            for inner in body:
                yield from _rows_in(inner)
        case _:
            pass
