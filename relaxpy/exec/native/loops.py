"""Emits loops: over the iterations of axes, and over vectors of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise

from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.native.frame import Lanes
from relaxpy.exec.native.interrupt import Interrupt
from relaxpy.exec.native.llvm import Function, Type, Value
from relaxpy.exec.native.obligations import Obligation
from relaxpy.exec.native.tree import Program
from relaxpy.exec.native.values import Values
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.tir.expr import PrimExpr

_TESTED = 8
"""The iterations in which an obligation is tested at once."""


class Loops:
    """Emits loops of `program` in the function of `frame`.

    `proofs` has the axes whose bounds are used in proofs in place of those that start with a
    variable, the first iteration of a block.
    """

    def __init__(self, program: Program, frame: Values) -> None:
        self.program, self.plan = program, program.plan
        self.frame: Values = frame
        self.function: Function = frame.function
        self.proofs: dict[PrimExpr, Axis] = {}
        self.in_task = False
        """Whether the function is that of a task."""
        self.interrupt: Interrupt | None = None
        """What ends `while` loops if a signal of Python arrives."""

    def where(self, tests: Sequence[PrimExpr], body: Callable[[], None]) -> None:
        """`body` if all of `tests` hold."""
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

    def failed(self, obligation: Obligation, axes: Sequence[Axis]) -> Value:
        """Whether an obligation does not hold in an iteration of nested loops."""
        frame, f = self.frame, self.function
        if not axes:
            return frame.fails(obligation)

        def chunk(lanes: Lanes, number: int, found: Value) -> Sequence[Value]:
            with frame.level(lanes=lanes):
                bad = frame.wide(frame.fails(obligation), _TESTED)
                if lanes.mask is not None:
                    bad = f.arithmetic("and", bad, lanes.mask)
                return [f.arithmetic("or", found, bad)]

        def last(found: Value) -> Sequence[Value]:
            return self.chunks(axes[-1], _TESTED, 1, chunk, [found])

        first = f.const(Type("i1", _TESTED), 0)
        [found] = self.nested(axes[:-1], last, [first])
        return f.fold_lanes(found, lambda a, b: f.arithmetic("or", a, b))

    def nested(
        self,
        axes: Sequence[Axis],
        body: Callable[..., Sequence[Value]],
        carried: Sequence[Value],
    ) -> list[Value]:
        """`carried = body(*carried)` in each iteration of nested loops."""
        if not axes:
            return list(body(*carried))
        return self.loop(axes[0], lambda *c: self.nested(axes[1:], body, c), carried)

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

    def iterations(self, axes: Sequence[Axis], body: Callable[[], None]) -> None:
        """`body` in each iteration of nested loops."""
        if not axes:
            body()
            return
        self.loop(axes[0], lambda: self.iterations(axes[1:], body))

    def chunks(
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
            ends = [last - f.remainder(extent, s) for s in strides]
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
