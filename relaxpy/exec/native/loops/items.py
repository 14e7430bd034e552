"""Emits items of a loop nest in source order, one element at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, assert_never

from relaxpy.exec.loops.nest import nodes as nest
from relaxpy.exec.machine.tuning import Vectors
from relaxpy.exec.native.llvm.writer import I8, Value
from relaxpy.exec.native.trees.obligations import Obligation, of_access, of_value
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.native.values.environment import Lanes
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.stmt import ForKind
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.exec.native.loops.axes import Loops


_VECTOR_BITS = 512
"""The bits of the elements that an iteration of a vectorised loop stores."""


class Items:
    """Emits items with `loops` and their values.

    If they are `checked`, the obligations of each are tested before it. Items without a position
    have that of `span`.
    """

    def __init__(self, loops: Loops, *, checked: bool = False, span: Span | None = None) -> None:
        self.loops, self.frame, self.function = loops, loops.frame, loops.function
        self.checked, self.span = checked, span
        self.live: Value | None = None
        """The address of a byte that is 1 until a jump in the current iteration."""
        self.broken: Value | None = None
        """The address of a byte that is 1 after a break."""

    def items(self, items: Sequence[nest.Item]) -> None:
        """Emit items one after the other.

        Errors:
            RefusedError: one of them has no native form.
        """
        for number, item in enumerate(items):
            self._item(item)
            rest = items[number + 1 :]
            if rest and self.live is not None and any(True for _ in nest.jumps((item,))):
                goes_on = self.function.compare("ne", self.function.load(I8, self.live), 0)
                self.function.branch(goes_on, partial(self._skippable, rest))
                self.frame.forget()
                return

    def iterations(self, axes: Sequence[nest.Axis], body: Callable[[], None]) -> None:
        """`body` in each iteration of nested loops, whose bounds are tested as well."""
        if not axes:
            body()
            return
        axis, *inner = axes
        self._check((axis.start, axis.stop), axis.span)
        self.loops.loop(axis, lambda: self.iterations(inner, body), listens=bool(inner))

    def guarded(self, guards: Sequence[PrimExpr], store: nest.Store) -> None:
        """A store if all guards hold; each is computed only if those before it hold."""
        if not self.checked:
            self.loops.where(guards, lambda: self.store(store))
            return
        item: nest.Item = store
        for guard in reversed(guards):
            item = nest.Branch(guard, (item,))
        self._item(item)

    def _item(self, item: nest.Item) -> None:
        if isinstance(item, nest.Store):
            # As in Python, the value is computed before the indices.
            self._check((item.value, *item.indices), item.span)
        elif not isinstance(item, nest.WhileLoop):
            self._check(nest.expressions(item), getattr(item, "span", None))
        match item:
            case nest.Loop(axis=axis, body=body) if any(True for _ in nest.jumps(body)):
                self._loop_with_jumps(axis, body)
            case nest.Loop(axis=axis, body=body) if axis.var in self.loops.program.annotated:
                self._annotated(axis, body)
            case nest.Loop(axis=axis, body=body) if self._has_lanes(axis, body):
                self._in_lanes(axis, body)
            case nest.Loop(axis=axis, body=body):
                has_loops = any(isinstance(i, nest.Loop) for i in nest.walk_items(body))
                self.loops.loop(axis, lambda: self.items(body), listens=has_loops)
            case nest.Branch(condition=condition, body=body, orelse=orelse):
                test = self.frame.value(condition)
                self.function.branch(
                    test, lambda: self._skippable(body), lambda: self._skippable(orelse)
                )
                self.frame.forget()
            case nest.WhileLoop(condition=condition, body=body):
                self._while(condition, body, item.span)
            case nest.Store():
                self.store(item)
            case nest.Bind(var=var, value=value):
                bound = self.frame.value(value)
                self.frame.pin([bound])
                self.frame.bind(var, bound)
            case nest.Check(condition=condition, message=message):
                if self.checked:
                    frame = self.frame
                    frame.require(Obligation((), (), condition, message=message, span=item.span))
            case nest.Return():
                raise RefusedError("a result that is returned")
            case nest.Invoke():
                raise RefusedError("a call of a function")
            case nest.Alloc(buffer=buffer):
                raise RefusedError(f"the shape of {buffer.name} is known only while it runs")
            case nest.Jump(kind=kind):
                self._jump(kind)
            case _:
                assert_never(item)

    def _annotated(self, axis: nest.Axis, body: Sequence[nest.Item]) -> None:
        """A loop that is vectorised or unrolled if possible, otherwise serial."""
        kind, extent = self.loops.program.annotated[axis.var], axis.extent.constant
        if kind == ForKind.UNROLLED and extent is not None and extent <= Vectors.UNROLLED:
            start = self.function.index(self.loops.bounds(axis)[0])
            for number in range(extent):
                place = {axis.var: start + number}
                with self.frame.level(place), self.loops.opened(axis):
                    self.items(body)
            self.frame.forget()
        elif kind == ForKind.VECTORIZED and self.frame.lanes is None and not self.checked:
            self._in_lanes(axis, body)
        else:
            self.loops.loop(axis, lambda: self.items(body))

    def _has_lanes(self, axis: nest.Axis, body: Sequence[nest.Item]) -> bool:
        """True if a vectorised loop stores to local buffers private to its iterations.

        Its values must be valid in each iteration, so that no test is needed in between.
        """
        plan, frame, own = self.loops.program.plan, self.frame, {}
        kind = plan.nest.kinds.get(axis.var)
        if kind != ForKind.VECTORIZED or frame.lanes is not None:
            return False
        local, axes = {entry.buffer for entry in plan.nest.local}, (*frame.axes, axis)
        for item in body:
            if not isinstance(item, nest.Store) or item.buffer in own or item.buffer not in local:
                return False
            own[item.buffer] = item.indices
            *outer, last = item.indices or (axis.start,)
            if last is not axis.var or any(mentions(index, {axis.var}) for index in outer):
                return False
            if any(of_value(item.value, axes, (), frame.shape_vars)) or any(
                of_access(item.buffer, item.indices, axes, (), frame.shape_vars)
            ):
                return False
        read = [load for item in body for x in nest.expressions(item) for load in nest.loads(x)]
        return all(
            plan.nest.views.get(load.buffer) not in own
            and load.indices == own.get(load.buffer, load.indices)
            for load in read
        )

    def _in_lanes(self, axis: nest.Axis, body: Sequence[nest.Item]) -> None:
        """A loop whose iterations are the lanes of vectors."""
        bits = [
            i.buffer.dtype.bits for i in nest.walk_items(tuple(body)) if isinstance(i, nest.Store)
        ]
        count, extent = _VECTOR_BITS // max([8, *bits]), axis.extent.constant
        if extent is not None:
            count = min(count, 1 << max(extent - 1, 1).bit_length())

        def chunk(lanes: Lanes, number: int) -> Sequence[Value]:
            with self.frame.level(lanes=lanes):
                self._lanes(body, None)
            return ()

        self.loops.chunks(axis, count, 1, chunk, ())

    def _lanes(self, items: Sequence[nest.Item], condition: Value | None) -> None:
        """Items in the lanes where the condition holds."""
        frame = self.frame
        for item in items:
            match item:
                case nest.Store(buffer=buffer, indices=indices, value=value):
                    inside = frame.both(condition, frame.unproved(buffer, indices))
                    stored = frame.narrowed(frame.value(value), buffer.dtype)
                    frame.store(buffer, indices, stored, inside)
                case nest.Branch(condition=test, body=body, orelse=orelse):
                    holds = frame.value(test)
                    self._lanes(body, frame.both(condition, holds))
                    if orelse:
                        fails = frame.value(ops.logical_not(test))
                        self._lanes(orelse, frame.both(condition, fails))
                case nest.Loop(axis=axis, body=body):
                    self.loops.loop(axis, partial(self._lanes, body, condition))
                case _:
                    raise RefusedError("a vectorised loop has more than stores and loops")

    def _check(self, values: Iterable[PrimExpr], span: Span | None = None) -> None:
        """Test the obligations of evaluating `values`."""
        if not self.checked:
            return
        frame = self.frame
        for value in values:
            for obligation in of_value(value, tuple(frame.axes), (), frame.shape_vars):
                frame.require(replace(obligation, span=span or self.span))

    def _jump(self, kind: str) -> None:
        f, none = self.function, self.function.const(I8, 0)
        assert self.live is not None
        assert self.broken is not None
        f.store(none, self.live)
        if kind == "break":
            f.store(f.const(I8, 1), self.broken)

    @contextmanager
    def _jumping(self) -> Iterator[tuple[Value, Value]]:
        """A loop with jumps, and its flags for them."""
        f, outer = self.function, (self.live, self.broken)
        live, broken = f.alloca(I8, 1), f.alloca(I8, 1)
        f.store(f.const(I8, 0), broken)
        self.live, self.broken = live, broken
        yield live, broken
        self.live, self.broken = outer

    def _loop_with_jumps(self, axis: nest.Axis, body: Sequence[nest.Item]) -> None:
        f, frame, loops = self.function, self.frame, self.loops
        start, stop = map(f.index, loops.bounds(axis))
        with self._jumping() as (live, broken):

            def holds(index: Value) -> Value:
                runs = f.compare("eq", f.load(I8, broken), 0)
                return f.arithmetic("and", f.compare("slt", index, stop), runs)

            def inside(index: Value) -> Sequence[Value]:
                f.store(f.const(I8, 1), live)
                with frame.level({axis.var: index}), loops.opened(axis):
                    self.items(body)
                return [index + 1]

            f.while_loop([start], holds, inside)
        frame.forget()

    def _skippable(self, items: Sequence[nest.Item]) -> None:
        with self.frame.conditionally():
            self.items(items)

    def _while(self, condition: PrimExpr, body: Sequence[nest.Item], span: Span | None) -> None:
        f, frame = self.function, self.frame
        with self._jumping() as (live, broken):

            def holds() -> Value:
                with frame.level():
                    self._check([condition], span)
                    unbroken = f.compare("eq", f.load(I8, broken), 0)
                    return f.arithmetic("and", frame.value(condition), unbroken)

            def inside() -> Sequence[Value]:
                f.store(f.const(I8, 1), live)
                with frame.level():
                    self.items(body)
                self.loops.listen()
                return ()

            f.while_loop((), holds, inside)
        frame.forget()

    def store(self, store: nest.Store) -> None:
        """One store; nothing if an index is out of bounds."""
        frame, dtype, inside = self.frame, store.buffer.dtype, None
        if self.checked:
            axes = tuple(frame.axes)
            for o in of_access(store.buffer, store.indices, axes, (), frame.shape_vars):
                frame.require(replace(o, span=store.span or self.span))
        else:
            inside = frame.unproved(store.buffer, store.indices)
        value = frame.narrowed(frame.value(store.value), dtype)
        if inside is None:
            frame.store(store.buffer, store.indices, value)
            return

        def perform() -> None:
            with frame.conditionally():
                frame.store(store.buffer, store.indices, value)

        self.function.branch(inside, perform)
